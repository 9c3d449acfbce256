// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/token.h"

#include <algorithm>
#include <cstdint>

#include <boost/crc.hpp>

#include "foundation/base/error.h"

namespace falaj::crypto {
namespace {

constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::size_t kIdChars = 26, kSecretChars = 43, kChecksumChars = 6;

std::string_view prefix(CredentialKind kind) { return kind == CredentialKind::token ? "falaj_" : "falajs_"; }

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  if (c >= 'a' && c <= 'z') return c - 'a' + 36;
  return -1;
}

// A big-endian number of 256 bits in 43 digits of base 62 (62^43 is just above 2^256), most significant first.
std::string to_base62(Secret number) {
  std::string out(kSecretChars, '0');
  for (auto at = out.rbegin(); at != out.rend(); ++at) {
    unsigned remainder = 0;
    for (auto& byte : number) {
      const unsigned value = remainder << 8 | static_cast<unsigned>(byte);
      byte = static_cast<std::byte>(value / 62);
      remainder = value % 62;
    }
    *at = kDigits[remainder];
  }
  return out;
}

std::optional<Secret> from_base62(std::string_view text) {
  std::array<std::uint32_t, 8> limbs{};  // least significant first
  // Five digits at a time (62^5 fits 32 bits): this runs for every API call.
  for (std::size_t at = 0; at < text.size();) {
    std::uint32_t scale = 1, group = 0;
    for (const auto end = std::min(at + (text.size() - at - 1) % 5 + 1, text.size()); at < end; ++at) {
      const int d = digit(text[at]);
      if (d < 0) return std::nullopt;
      group = group * 62 + static_cast<std::uint32_t>(d);
      scale *= 62;
    }
    std::uint64_t carry = group;
    for (auto& limb : limbs) {
      carry += std::uint64_t{limb} * scale;
      limb = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) return std::nullopt;  // 2^256 or more
  }
  Secret number{};
  for (std::size_t i = 0; i < number.size(); ++i)
    number[31 - i] = static_cast<std::byte>(limbs[i / 4] >> (8 * (i % 4)));
  return number;
}

std::string checksum(std::string_view text) {
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  std::uint32_t value = crc.checksum();
  std::string out(kChecksumChars, '0');
  for (auto at = out.rbegin(); at != out.rend(); ++at, value /= 62) *at = kDigits[value % 62];
  return out;
}

}  // namespace

std::string format_credential(CredentialKind kind, const Credential& credential) {
  std::string text(prefix(kind));
  text += credential.id.str();
  text += '_';
  text += to_base62(credential.secret);
  return text += checksum(text);
}

std::optional<Credential> parse_credential(CredentialKind kind, std::string_view text) {
  const auto start = prefix(kind);
  if (text.size() != start.size() + kIdChars + 1 + kSecretChars + kChecksumChars || !text.starts_with(start))
    return std::nullopt;
  const auto body = text.substr(0, text.size() - kChecksumChars);
  if (checksum(body) != text.substr(body.size())) return std::nullopt;
  const auto id = body.substr(start.size(), kIdChars);
  const auto secret = from_base62(body.substr(body.size() - kSecretChars));
  if (!secret || body[start.size() + kIdChars] != '_') return std::nullopt;
  try {
    return Credential{TokenId::parse(id), *secret};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace falaj::crypto
