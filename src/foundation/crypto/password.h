// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "foundation/base/bytes.h"
#include "foundation/crypto/key.h"

namespace falaj::crypto {

// Argon2id, 64 MiB and three passes unless a test asks for less. At most kPasswordHashesMax run at once in the process,
// because each takes that memory; one more throws exhausted.
struct PasswordCost {
  std::size_t memory_bytes = 64U << 20;
  unsigned passes = 3;
};
inline constexpr std::size_t kPasswordHashesMax = 4;

// One of the process's places for a hash, held for a scope; every function below takes one.
class PasswordPlace {
 public:
  PasswordPlace();  // throws exhausted
  ~PasswordPlace();
  PasswordPlace(const PasswordPlace&) = delete;
  PasswordPlace& operator=(const PasswordPlace&) = delete;
};

std::string hash_password(std::string_view password, PasswordCost cost = {});  // a PHC string
bool verify_password(std::string_view password, const std::string& hashed);
bool is_weaker(const std::string& hashed, PasswordCost cost = {});  // or other: hash anew at the next login
// A key from a passphrase; the same for the same salt (16 bytes) and cost.
Key key_from_passphrase(std::string_view passphrase, BytesView salt, PasswordCost cost = {});

}  // namespace falaj::crypto
