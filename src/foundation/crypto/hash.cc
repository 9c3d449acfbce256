// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/hash.h"

#include <cstdint>
#include <cstring>

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

// Word by word, as every request comes by here. The compiler is told that it cannot know `differs`, so it looks at all.
bool equal_in_constant_time(BytesView a, BytesView b) {
  if (a.size() != b.size()) return false;
  std::uint64_t differs = 0;
  std::size_t at = 0;
  for (; at + sizeof differs <= a.size(); at += sizeof differs) {
    std::uint64_t x = 0, y = 0;
    std::memcpy(&x, a.data() + at, sizeof x);
    std::memcpy(&y, b.data() + at, sizeof y);
    differs |= x ^ y;
    asm volatile("" : "+r"(differs));
  }
  for (; at < a.size(); ++at) {
    differs |= static_cast<std::uint64_t>(a[at] ^ b[at]);
    asm volatile("" : "+r"(differs));
  }
  return differs == 0;
}

}  // namespace falaj::crypto
