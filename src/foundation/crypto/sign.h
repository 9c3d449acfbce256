// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "foundation/base/bytes.h"
#include "foundation/crypto/key.h"

namespace falaj::crypto {

// Ed25519.
using PublicKey = std::array<std::byte, 32>;
using Signature = std::array<std::byte, 64>;

class Signer {
 public:
  explicit Signer(const Key& seed);
  PublicKey public_key() const { return public_key_; }
  Signature sign(BytesView message) const;  // thread-safe

 private:
  Key seed_;
  PublicKey public_key_;
};

bool verify(const PublicKey& key, BytesView message, const Signature& signature);

}  // namespace falaj::crypto
