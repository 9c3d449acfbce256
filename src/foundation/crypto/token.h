// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "foundation/base/bytes.h"
#include "foundation/base/id.h"

namespace falaj::crypto {

using TokenId = Id<struct TokenTag>;

// The text of a credential that a client holds:
//   falaj_<26 characters of id>_<43 of base62: 256 secret bits><6 of base62: CRC-32 of everything before>
// The prefix and the checksum let scanners find leaked ones without asking us; the id finds the row, so that only the
// SHA-256 of the secret is kept and compared. Sessions look the same with their own prefix.
enum class CredentialKind { token, session };

using Secret = std::array<std::byte, 32>;
struct Credential {
  TokenId id;
  Secret secret{};
  friend bool operator==(const Credential&, const Credential&) = default;
};

inline constexpr std::size_t kTokenChars = 6 + 26 + 1 + 43 + 6;

std::string format_credential(CredentialKind kind, const Credential& credential);
// Nothing unless every character is as format_credential would write it.
std::optional<Credential> parse_credential(CredentialKind kind, std::string_view text);

}  // namespace falaj::crypto
