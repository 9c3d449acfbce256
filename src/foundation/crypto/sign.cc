// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/sign.h"

#include <sodium.h>

#include <algorithm>

#include "foundation/base/error.h"

// By libsodium: it signs in a third of OpenSSL's time, and refuses keys of small order and signatures in a second form.
namespace falaj::crypto {

namespace {

static_assert(crypto_sign_PUBLICKEYBYTES == std::tuple_size<PublicKey>() &&
              crypto_sign_BYTES == std::tuple_size<Signature>() && crypto_sign_SEEDBYTES == Key::kBytes);

unsigned char* raw(auto& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }
const unsigned char* raw(BytesView bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

// The library's form of a secret key: seed, then public key. On the stack only while it is needed.
struct WipedKey {
  unsigned char bytes[crypto_sign_SECRETKEYBYTES];
  ~WipedKey() { sodium_memzero(bytes, sizeof bytes); }
};

}  // namespace

Signer::Signer(const Key& seed) : seed_(seed.copy()) {
  CHECK(sodium_init() >= 0, "libsodium starts");
  WipedKey secret;
  CHECK(crypto_sign_seed_keypair(raw(public_key_), secret.bytes, raw(seed_.view())) == 0, "a signing key is made");
}

Signature Signer::sign(BytesView message) const {
  WipedKey secret;
  std::copy_n(raw(seed_.view()), Key::kBytes, secret.bytes);
  std::copy_n(raw(BytesView(public_key_)), public_key_.size(), secret.bytes + Key::kBytes);
  Signature out;
  CHECK(crypto_sign_detached(raw(out), nullptr, raw(message), message.size(), secret.bytes) == 0, "signing succeeds");
  return out;
}

bool verify(const PublicKey& key, BytesView message, const Signature& signature) {
  CHECK(sodium_init() >= 0, "libsodium starts");
  return crypto_sign_verify_detached(raw(BytesView(signature)), raw(message), message.size(), raw(BytesView(key))) == 0;
}

}  // namespace falaj::crypto
