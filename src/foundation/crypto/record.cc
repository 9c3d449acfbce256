// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/record.h"

#include <openssl/rand.h>
#include <sodium.h>

#include <array>
#include <limits>

#include "foundation/crypto/openssl.h"

namespace falaj::crypto {

namespace {

[[noreturn]] void not_what_was_sealed() {
  throw Error(Code::corrupt, "a sealed record is not what was sealed, or not under this key and at this place");
}

CipherCtx begin(const Key& key, bool sealing) {
  CipherCtx ctx(EVP_CIPHER_CTX_new());
  must(ctx && EVP_CipherInit_ex2(ctx.get(), aes_256_gcm_algorithm(), raw(key.view()), nullptr, sealing, nullptr) == 1,
       "set up a cipher for records");
  return ctx;
}

// Nonce, then context; -1 keeps the way and null the key: only the nonce is new.
void begin_record(EVP_CIPHER_CTX* ctx, const unsigned char* nonce, BytesView context) {
  int n = 0;
  must(EVP_CipherInit_ex2(ctx, nullptr, nullptr, nonce, -1, nullptr) == 1, "begin a record");
  if (!context.empty())
    must(EVP_CipherUpdate(ctx, nullptr, &n, raw(context), static_cast<int>(context.size())) == 1,
         "bind a record to its context");
}

// Given no input, OpenSSL takes a null output for associated data: leave it out.
void run(EVP_CIPHER_CTX* ctx, BytesView in, unsigned char* out) {
  int n = 0;
  if (!in.empty())
    must(EVP_CipherUpdate(ctx, out, &n, raw(in), static_cast<int>(in.size())) == 1, "run a record through the cipher");
}

}  // namespace

struct RecordSealer::Rep {
  CipherCtx ctx;
  std::array<unsigned char, kRecordNonceBytes> nonce{};
  std::uint64_t next = 0;

  void advance() {
    constexpr std::uint64_t kEnd = std::uint64_t{1} << 32;
    if (next == 0 || next == kEnd) {
      must(RAND_bytes(nonce.data(), 8) == 1, "make a nonce");
      next = 0;
    }
    for (int i = 0; i < 4; ++i)
      nonce[static_cast<std::size_t>(8 + i)] = static_cast<unsigned char>(next >> (24 - 8 * i));
    ++next;
  }
};

RecordSealer::RecordSealer(const Key& key) : rep_(new Rep{begin(key, true), {}, 0}) {}
RecordSealer::~RecordSealer() = default;
RecordSealer::RecordSealer(RecordSealer&&) noexcept = default;

void RecordSealer::seal_onto(Bytes& out, BytesView context, BytesView plain) {
  const std::size_t at = out.size();
  out.resize(at + kRecordOverheadBytes + plain.size());
  auto* const to = raw(out) + at;
  auto* const ctx = rep_->ctx.get();
  rep_->advance();
  std::copy(rep_->nonce.begin(), rep_->nonce.end(), to);
  begin_record(ctx, rep_->nonce.data(), context);
  run(ctx, plain, to + kRecordNonceBytes);
  auto* const tag = to + kRecordNonceBytes + plain.size();
  int n = 0;
  must(EVP_CipherFinal_ex(ctx, tag, &n) == 1, "seal a record");
  must(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, kRecordTagBytes, tag) == 1, "seal a record");
}

struct RecordOpener::Rep {
  CipherCtx ctx;
};

RecordOpener::RecordOpener(const Key& key) : rep_(new Rep{begin(key, false)}) {}
RecordOpener::~RecordOpener() = default;
RecordOpener::RecordOpener(RecordOpener&&) noexcept = default;

void RecordOpener::open(BytesView context, BytesView sealed, std::byte* out) {
  if (sealed.size() < kRecordOverheadBytes) not_what_was_sealed();
  auto* const ctx = rep_->ctx.get();
  begin_record(ctx, raw(sealed), context);
  run(ctx, sealed.subspan(kRecordNonceBytes, sealed.size() - kRecordOverheadBytes),
      reinterpret_cast<unsigned char*>(out));
  auto* tag = const_cast<unsigned char*>(raw(sealed.last(kRecordTagBytes)));  // OpenSSL only reads it
  must(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, kRecordTagBytes, tag) == 1, "open a record");
  unsigned char nothing[1];
  int n = 0;
  if (EVP_CipherFinal_ex(ctx, nothing, &n) != 1) not_what_was_sealed();
}

RecordName record_name(const Key& key, BytesView name) {
  static_assert(crypto_shorthash_siphashx24_BYTES == sizeof(RecordName) &&
                crypto_shorthash_siphashx24_KEYBYTES <= Key::kBytes);
  RecordName out;
  crypto_shorthash_siphashx24(raw(out), raw(name), name.size(), raw(key.view()));
  return out;
}

}  // namespace falaj::crypto
