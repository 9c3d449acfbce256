// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/sign.h"

#include <openssl/err.h>

#include <utility>

#include "foundation/crypto/openssl.h"

namespace falaj::crypto {

Signer::Signer(const Key& seed)
    : key_(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, raw(seed.view()), seed.view().size())) {
  must(key_ != nullptr, "make a signing key");
}
Signer::~Signer() { EVP_PKEY_free(static_cast<EVP_PKEY*>(key_)); }
Signer::Signer(Signer&& other) noexcept : key_(std::exchange(other.key_, nullptr)) {}

PublicKey Signer::public_key() const {
  PublicKey out;
  std::size_t size = out.size();
  must(EVP_PKEY_get_raw_public_key(static_cast<EVP_PKEY*>(key_), raw(out), &size) == 1 && size == out.size(),
       "read a public key");
  return out;
}

Signature Signer::sign(BytesView message) const {
  const MdCtx ctx(EVP_MD_CTX_new());
  Signature out;
  std::size_t size = out.size();
  must(ctx && EVP_DigestSignInit(ctx.get(), nullptr, nullptr, nullptr, static_cast<EVP_PKEY*>(key_)) == 1 &&
           EVP_DigestSign(ctx.get(), raw(out), &size, raw(message), message.size()) == 1 && size == out.size(),
       "sign");
  return out;
}

bool verify(const PublicKey& key, BytesView message, const Signature& signature) {
  const Pkey pkey(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(BytesView(key)), key.size()));
  const MdCtx ctx(EVP_MD_CTX_new());
  const bool ok =
      pkey && ctx && EVP_DigestVerifyInit(ctx.get(), nullptr, nullptr, nullptr, pkey.get()) == 1 &&
      EVP_DigestVerify(ctx.get(), raw(BytesView(signature)), signature.size(), raw(message), message.size()) == 1;
  if (!ok) ERR_clear_error();
  return ok;
}

}  // namespace falaj::crypto
