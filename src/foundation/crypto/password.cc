// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/password.h"

#include <sodium.h>

#include <atomic>

#include "foundation/base/error.h"

namespace falaj::crypto {

namespace {

std::atomic<std::size_t>& places_taken() {
  static std::atomic<std::size_t> taken{0};
  return taken;
}

void ready() {
  static const bool ok = sodium_init() >= 0;
  CHECK(ok, "libsodium starts");
}

}  // namespace

PasswordPlace::PasswordPlace() {
  ready();
  if (places_taken().fetch_add(1) >= kPasswordHashesMax) {
    --places_taken();
    throw Error(Code::exhausted, "too many passwords are being checked at once: try again");
  }
}
PasswordPlace::~PasswordPlace() { --places_taken(); }

std::string hash_password(std::string_view password, PasswordCost cost) {
  const PasswordPlace place;
  char hashed[crypto_pwhash_STRBYTES];
  if (crypto_pwhash_str_alg(hashed, password.data(), password.size(), cost.passes, cost.memory_bytes,
                            crypto_pwhash_ALG_ARGON2ID13) != 0) {
    throw Error(Code::exhausted, "hash a password: out of memory, or a cost out of range");
  }
  return hashed;
}

bool verify_password(std::string_view password, const std::string& hashed) {
  const PasswordPlace place;
  return hashed.size() < crypto_pwhash_STRBYTES &&
         crypto_pwhash_str_verify(hashed.c_str(), password.data(), password.size()) == 0;
}

bool is_weaker(const std::string& hashed, PasswordCost cost) {
  ready();
  return crypto_pwhash_str_needs_rehash(hashed.c_str(), cost.passes, cost.memory_bytes) != 0;
}

Key key_from_passphrase(std::string_view passphrase, BytesView salt, PasswordCost cost) {
  const PasswordPlace place;
  if (salt.size() != crypto_pwhash_SALTBYTES) throw Error(Code::corrupt, "a passphrase's salt has 16 bytes");
  return Key::filled([&](auto out) {
    if (crypto_pwhash(raw(out), out.size(), passphrase.data(), passphrase.size(), raw(salt), cost.passes,
                      cost.memory_bytes, crypto_pwhash_ALG_ARGON2ID13) != 0) {
      throw Error(Code::exhausted, "derive a key from a passphrase: out of memory, or a cost out of range");
    }
  });
}

}  // namespace falaj::crypto
