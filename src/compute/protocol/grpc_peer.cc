// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/grpc_peer.h"

#include <algorithm>
#include <cstdlib>
#include <span>

#include <openssl/pem.h>
#include <openssl/x509.h>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"

namespace falaj::protocol {
namespace {

constexpr unsigned kLookAgainSeconds = 5;

std::optional<Digest> digest_of(std::string_view pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                       BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> shown(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr),
                                                          X509_free);
  Digest digest;
  unsigned length = 0;
  if (!shown || X509_digest(shown.get(), EVP_sha256(), raw(std::span(digest.bytes)), &length) != 1) return std::nullopt;
  return digest;
}

}  // namespace

std::string address_of(std::string_view peer) {
  const auto scheme = peer.find(':'), port = peer.rfind(':');
  if (scheme == std::string_view::npos || port <= scheme) return std::string(peer);
  auto address = peer.substr(scheme + 1, port - scheme - 1);
  // An IPv6 address is in brackets, which gRPC percent-encodes.
  if (address.starts_with("%5B") && address.ends_with("%5D")) address = address.substr(3, address.size() - 6);
  if (address.starts_with("[") && address.ends_with("]")) address = address.substr(1, address.size() - 2);
  return std::string(address);
}

net::Peer peer_of(const std::string& peer, const grpc::AuthContext& auth) {
  net::Peer out;
  out.address = address_of(peer);
  for (const auto& kind : auth.FindPropertyValues("transport_security_type")) out.tls |= kind == "ssl" || kind == "tls";
  if (auth.IsPeerAuthenticated())
    for (const auto& pem : auth.FindPropertyValues("x509_pem_cert"))
      out.certificate = digest_of({pem.data(), pem.size()});
  return out;
}

std::shared_ptr<grpc::ServerCredentials> credentials_of(const std::optional<net::TlsFiles>& tls) {
  if (!tls) return grpc::InsecureServerCredentials();
  net::check_tls(*tls);
  // gRPC 1.51 cannot be told the least version. TLS 1.3 chooses among ciphers of its own; for older versions this
  // leaves one that needs a key shared beforehand, which nobody has: such clients are refused.
  ::setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES256-GCM-SHA384", 1);
  const auto provider = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      tls->key_file, tls->certificate_file, tls->client_ca_file, kLookAgainSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (tls->client_ca_file.empty()) {
    options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  } else {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

std::optional<std::int64_t> micros_left(gpr_timespec deadline) {
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) >= 0) return std::nullopt;
  const auto left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return std::max<std::int64_t>(1, left.tv_sec * 1'000'000 + left.tv_nsec / 1'000);
}

}  // namespace falaj::protocol
