// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/hash.h"

#include <openssl/crypto.h>
#include <openssl/err.h>

#include "foundation/crypto/openssl.h"

namespace falaj::crypto {

const EVP_MD* sha256_algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA2-256", nullptr);
  must(algorithm != nullptr, "fetch SHA-256");
  return algorithm;
}

const EVP_CIPHER* aes_256_gcm_algorithm() {
  static const EVP_CIPHER* const algorithm = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  must(algorithm != nullptr, "fetch AES-256-GCM");
  return algorithm;
}

void must(bool ok, const char* doing) {
  if (ok) return;
  ERR_clear_error();
  throw Error(Code::internal, std::string(doing) + ": refused by the cryptographic library");
}

namespace {
MdCtx new_sha256() {
  MdCtx ctx(EVP_MD_CTX_new());
  must(ctx && EVP_DigestInit_ex2(ctx.get(), sha256_algorithm(), nullptr) == 1, "begin SHA-256");
  return ctx;
}
}  // namespace

struct Sha256::Rep {
  MdCtx ctx = new_sha256();
};

Sha256::Sha256() : rep_(std::make_unique<Rep>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(BytesView bytes) {
  must(EVP_DigestUpdate(rep_->ctx.get(), bytes.data(), bytes.size()) == 1, "hash with SHA-256");
}

Digest Sha256::finish() {
  Digest digest;
  must(EVP_DigestFinal_ex(rep_->ctx.get(), raw(digest.bytes), nullptr) == 1, "finish SHA-256");
  must(EVP_DigestInit_ex2(rep_->ctx.get(), nullptr, nullptr) == 1, "begin SHA-256");
  return digest;
}

Digest sha256(std::initializer_list<BytesView> parts) {
  thread_local Sha256 hash;  // making a context costs more than hashing a small message
  for (const auto part : parts) hash.update(part);
  return hash.finish();
}

Digest sha256(BytesView bytes) { return sha256({bytes}); }

bool equal_in_constant_time(BytesView a, BytesView b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace falaj::crypto
