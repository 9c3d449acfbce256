// SPDX-License-Identifier: Apache-2.0
#include "api/link.h"

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "foundation/client/api_client.h"
#include "foundation/crypto/hash.h"

namespace falaj::api {
namespace {

Digest signature_of(const Platform& platform, Method method, std::string_view path, std::string_view credential,
                    std::int64_t expires_us) {
  ByteWriter out;
  for (const auto part : {net::name(method), path, credential}) out.text(part);
  out.u64(static_cast<std::uint64_t>(expires_us));
  const auto key = crypto::derive(platform.answer_key, {}, "signed links");
  return crypto::hmac_sha256(key, out.bytes());
}

}  // namespace

std::string signed_link(const Platform& platform, std::string_view base, Method method, std::string_view path,
                        std::string_view credential, std::int64_t expires_us) {
  CHECK(path.starts_with('/'), "a link is to a whole path");
  std::string out(base);
  for (const auto element : split(path.substr(1), '/')) out += "/" + client::path_element(element);
  const auto signature = signature_of(platform, method, path, credential, expires_us);
  return out +
         fmt::format("?by={}&expires={}&signature={}", client::path_element(credential), expires_us, signature.hex());
}

std::string credential_of_link(const Platform& platform, const net::Head& head) {
  const auto refuse = [] {
    throw Error(Code::unauthenticated, "this address is not signed, was changed or is too old");
  };
  const auto by = head.parameter("by"), signature = head.parameter("signature");
  const auto expires = parse_int(head.parameter("expires").value_or(""));
  if (!by || !signature || !expires) refuse();
  const auto right = signature_of(platform, head.method, head.path, *by, *expires).hex();
  if (!crypto::equal_in_constant_time(as_bytes(*signature), as_bytes(right))) refuse();
  if (platform.clock.wall().count() >= *expires) refuse();
  return std::string(*by);
}

}  // namespace falaj::api
