// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foundation/base/bytes.h"

namespace falaj::crypto {

// X.509 as far as we need it: a CA of our own that signs server, client and node certificates (ECDSA P-256).
struct CertificatePair {
  std::string certificate_pem;
  std::string key_pem;
};
struct CertificateRequest {
  std::string common_name;
  std::vector<std::string> dns_names, ip_addresses, uris;  // subject alternative names
  std::int64_t not_before_unix_s = 0, not_after_unix_s = 0;
  bool server = false, client = false;
};

CertificatePair make_ca(const std::string& common_name, std::int64_t not_before_unix_s, std::int64_t not_after_unix_s);
CertificatePair issue(const CertificatePair& ca, const CertificateRequest& request);

struct CertificateInfo {
  std::string common_name;
  std::vector<std::string> dns_names, uris;
  std::int64_t not_before_unix_s = 0, not_after_unix_s = 0;
  Digest fingerprint;  // SHA-256 of the DER form
};
CertificateInfo read_certificate(const std::string& pem);  // throws invalid

}  // namespace falaj::crypto
