// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/s3_sign.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/key.h"

namespace falaj::blob {

namespace {
std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}
}  // namespace

std::string query_string(std::vector<std::pair<std::string, std::string>> parameters) {
  for (auto& [name, value] : parameters) {
    name = percent_encoded(name);
    value = percent_encoded(value);
  }
  std::sort(parameters.begin(), parameters.end());
  std::string out;
  for (const auto& [name, value] : parameters) out += (out.empty() ? "" : "&") + name + "=" + value;
  return out;
}

std::string amz_date(std::int64_t unix_us) {
  std::string out;
  for (const char c : format_time(unix_us).substr(0, 19)) {
    if (c != '-' && c != ':') out += c;
  }
  return out + "Z";
}

std::string sign(const S3Signed& request, const S3Credentials& credentials) {
  std::string lines, names;
  for (const auto& [name, value] : request.headers) {
    lines += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path, request.query,
                                            lines, names, request.payload_sha256);
  const std::string& date = request.headers.at("x-amz-date");
  const std::string day = date.substr(0, 8), scope = day + "/" + credentials.region + "/s3/aws4_request";
  const std::string to_sign = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", date, scope, crypto::sha256(canonical).hex());

  const auto first = crypto::hmac_sha256(as_bytes("AWS4" + credentials.secret_key), as_bytes(day));
  const auto regional = crypto::hmac_sha256(first.view(), as_bytes(credentials.region));
  const auto service = crypto::hmac_sha256(regional.view(), as_bytes("s3"));
  const auto key = crypto::hmac_sha256(service.view(), as_bytes("aws4_request"));
  return fmt::format("AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}", credentials.access_key, scope,
                     names, crypto::hmac_sha256(key.view(), as_bytes(to_sign)).hex());
}

}  // namespace falaj::blob
