// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/aead.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "foundation/crypto/hash.h"
#include "foundation/crypto/openssl.h"

namespace falaj::crypto {

namespace {

// The layout, in one place: magic, salt, commitment, then chunks of ciphertext each followed by its tag.
constexpr std::array<std::byte, 4> kMagic = {std::byte{'F'}, std::byte{'S'}, std::byte{'S'}, std::byte{1}};
constexpr std::string_view kPurpose = "falaj sealed stream v1";
constexpr std::size_t kPreambleBytes = kMagic.size() + kSaltBytes + sizeof(Digest);
static_assert(kPreambleBytes + kSealTagBytes == kSealOverheadBytes);
constexpr std::size_t kSealedChunkBytes = kSealChunkBytes + kSealTagBytes;

[[noreturn]] void not_what_was_sealed(const char* what) {
  throw Error(Code::corrupt, std::string("sealed bytes are not what was sealed: ") + what);
}

// Seals or opens the chunks of one stream, in order.
class ChunkCipher {
 public:
  enum class Way { seal, open };

  ChunkCipher(Way way, const Key& key, BytesView header, BytesView salt)
      : way_(way), header_(header.begin(), header.end()), ctx_(EVP_CIPHER_CTX_new()) {
    // The header goes into the key as well as beside every chunk: a wrong one is found before anything is decrypted.
    std::array<std::byte, Key::kBytes + sizeof(Digest)> derived;
    hkdf_sha256(key.view(), salt, {as_bytes(kPurpose), header}, derived);
    std::copy_n(derived.begin() + Key::kBytes, sizeof(Digest), commitment_.bytes.begin());
    const bool ok = ctx_ && EVP_CipherInit_ex2(ctx_.get(), aes_256_gcm_algorithm(), raw(derived), nullptr,
                                               way == Way::seal, nullptr) == 1;
    OPENSSL_cleanse(derived.data(), derived.size());
    must(ok, "begin a sealed stream");
  }

  const Digest& commitment() const { return commitment_; }

  // Requires: plain is at most a chunk; out has room for it and a tag.
  void seal(BytesView plain, bool last, std::byte* out) {
    begin_chunk(last);
    run(plain, out);
    auto* tag = reinterpret_cast<unsigned char*>(out) + plain.size();
    must(EVP_CipherFinal_ex(ctx_.get(), tag, &written_) == 1, "seal a chunk");
    must(EVP_CIPHER_CTX_ctrl(ctx_.get(), EVP_CTRL_AEAD_GET_TAG, kSealTagBytes, tag) == 1, "seal a chunk");
  }

  // Requires: sealed has at least a tag; out has room for the rest. On corrupt, `out` must not be used.
  void open(BytesView sealed, bool last, std::byte* out) {
    begin_chunk(last);
    const auto body = sealed.first(sealed.size() - kSealTagBytes);
    auto* tag = const_cast<unsigned char*>(raw(sealed.last(kSealTagBytes)));  // OpenSSL only reads it
    run(body, out);
    must(EVP_CIPHER_CTX_ctrl(ctx_.get(), EVP_CTRL_AEAD_SET_TAG, kSealTagBytes, tag) == 1, "open a chunk");
    unsigned char nothing[1];
    if (EVP_CipherFinal_ex(ctx_.get(), nothing, &written_) != 1) not_what_was_sealed("a chunk does not verify");
  }

 private:
  void begin_chunk(bool last) {
    if (counter_ > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(Code::exhausted, "a sealed stream has at most 2^32 chunks");
    }
    std::array<unsigned char, 12> nonce{};
    for (int i = 0; i < 4; ++i) nonce[7 + i] = static_cast<unsigned char>(counter_ >> (24 - 8 * i));
    nonce[11] = last ? 1 : 0;
    ++counter_;
    must(EVP_CipherInit_ex2(ctx_.get(), nullptr, nullptr, nonce.data(), way_ == Way::seal, nullptr) == 1,
         "begin a chunk");
    must(EVP_CipherUpdate(ctx_.get(), nullptr, &written_, raw(header_), static_cast<int>(header_.size())) == 1,
         "bind a chunk to its header");
  }
  void run(BytesView in, std::byte* out) {
    // Given no input, OpenSSL takes a null output for associated data: leave it out.
    if (in.empty()) return;
    must(EVP_CipherUpdate(ctx_.get(), reinterpret_cast<unsigned char*>(out), &written_, raw(in),
                          static_cast<int>(in.size())) == 1,
         "run a chunk through the cipher");
  }

  const Way way_;
  const Bytes header_;
  CipherCtx ctx_;
  Digest commitment_;
  std::uint64_t counter_ = 0;
  int written_ = 0;
};

std::byte* put(BytesView bytes, std::byte* out) { return std::copy(bytes.begin(), bytes.end(), out); }

std::byte* put_preamble(BytesView salt, const Digest& commitment, std::byte* out) {
  return put(commitment.view(), put(salt, put(kMagic, out)));
}

ChunkCipher begin_opening(const Key& key, BytesView header, BytesView preamble) {
  if (!std::equal(kMagic.begin(), kMagic.end(), preamble.begin())) not_what_was_sealed("no such format");
  ChunkCipher cipher(ChunkCipher::Way::open, key, header, preamble.subspan(kMagic.size(), kSaltBytes));
  if (!equal_in_constant_time(cipher.commitment().view(), preamble.last(sizeof(Digest)))) {
    not_what_was_sealed("another key or another header");
  }
  return cipher;
}

void seal_with_salt(Bytes& sealed, const Key& key, BytesView header, BytesView plain, BytesView salt) {
  ChunkCipher cipher(ChunkCipher::Way::seal, key, header, salt);
  const std::size_t before = sealed.size();
  sealed.resize(before + sealed_size(plain.size()));
  std::byte* out = put_preamble(salt, cipher.commitment(), sealed.data() + before);
  do {
    const auto chunk = plain.first(std::min(plain.size(), kSealChunkBytes));
    plain = plain.subspan(chunk.size());
    cipher.seal(chunk, plain.empty(), out);
    out += chunk.size() + kSealTagBytes;
  } while (!plain.empty());
}

std::array<std::byte, kSaltBytes> random_salt() {
  std::array<std::byte, kSaltBytes> salt;
  must(RAND_bytes(raw(salt), kSaltBytes) == 1, "make a salt");
  return salt;
}

}  // namespace

struct Sealer::Rep {
  std::array<std::byte, kSaltBytes> salt = random_salt();
  ChunkCipher cipher;
  bool preamble_out = false;
  Bytes held;  // at most one chunk: whether it is the last is not known until more comes

  Rep(const Key& key, BytesView header) : cipher(ChunkCipher::Way::seal, key, header, salt) {}

  void append_preamble(Bytes& out) {
    if (std::exchange(preamble_out, true)) return;
    out.resize(kPreambleBytes);
    put_preamble(salt, cipher.commitment(), out.data());
  }
  void append_chunk(BytesView plain, bool last, Bytes& out) {
    const auto at = out.size();
    out.resize(at + plain.size() + kSealTagBytes);
    cipher.seal(plain, last, out.data() + at);
  }
};

Sealer::Sealer(const Key& key, BytesView header) : rep_(std::make_unique<Rep>(key, header)) {}
Sealer::~Sealer() = default;

Bytes Sealer::update(BytesView plain) {
  Bytes out;
  rep_->append_preamble(out);
  while (!plain.empty()) {
    if (rep_->held.size() == kSealChunkBytes) {
      rep_->append_chunk(rep_->held, false, out);
      rep_->held.clear();
    }
    while (rep_->held.empty() && plain.size() > kSealChunkBytes) {  // straight through, without a copy
      rep_->append_chunk(plain.first(kSealChunkBytes), false, out);
      plain = plain.subspan(kSealChunkBytes);
    }
    const auto part = plain.first(std::min(plain.size(), kSealChunkBytes - rep_->held.size()));
    rep_->held.insert(rep_->held.end(), part.begin(), part.end());
    plain = plain.subspan(part.size());
  }
  return out;
}

Bytes Sealer::finish() {
  Bytes out;
  rep_->append_preamble(out);
  rep_->append_chunk(rep_->held, true, out);
  rep_->held.clear();
  return out;
}

struct Opener::Rep {
  Key key;
  Bytes header;
  std::optional<ChunkCipher> cipher;  // once the preamble was read
  Bytes held;                         // the preamble so far, then at most one sealed chunk

  void append_chunk(BytesView sealed, bool last, Bytes& out) {
    const auto at = out.size();
    out.resize(at + sealed.size() - kSealTagBytes);
    cipher->open(sealed, last, out.data() + at);
  }
  // Moves bytes from `in` until `held` has `size`; true when it has.
  bool hold(std::size_t size, BytesView& in) {
    const auto part = in.first(std::min(in.size(), size - held.size()));
    held.insert(held.end(), part.begin(), part.end());
    in = in.subspan(part.size());
    return held.size() == size;
  }
};

Opener::Opener(const Key& key, BytesView header)
    : rep_(new Rep{key.copy(), Bytes(header.begin(), header.end()), std::nullopt, {}}) {}
Opener::~Opener() = default;

Bytes Opener::update(BytesView sealed) {
  Bytes out;
  if (!rep_->cipher) {
    if (!rep_->hold(kPreambleBytes, sealed)) return out;
    rep_->cipher.emplace(begin_opening(rep_->key, rep_->header, rep_->held));
    rep_->held.clear();
  }
  while (!sealed.empty()) {
    if (rep_->held.size() == kSealedChunkBytes) {
      rep_->append_chunk(rep_->held, false, out);
      rep_->held.clear();
    }
    while (rep_->held.empty() && sealed.size() > kSealedChunkBytes) {
      rep_->append_chunk(sealed.first(kSealedChunkBytes), false, out);
      sealed = sealed.subspan(kSealedChunkBytes);
    }
    rep_->hold(kSealedChunkBytes, sealed);
  }
  return out;
}

Bytes Opener::finish() {
  if (!rep_->cipher || rep_->held.size() < kSealTagBytes) not_what_was_sealed("the end is missing");
  Bytes out;
  rep_->append_chunk(rep_->held, true, out);
  rep_->held.clear();
  return out;
}

std::size_t sealed_size(std::size_t plain_bytes) {
  const std::size_t chunks = std::max<std::size_t>(1, (plain_bytes + kSealChunkBytes - 1) / kSealChunkBytes);
  return kPreambleBytes + plain_bytes + chunks * kSealTagBytes;
}

Bytes seal(const Key& key, BytesView header, BytesView plain) {
  Bytes sealed;
  seal_onto(sealed, key, header, plain);
  return sealed;
}

void seal_onto(Bytes& out, const Key& key, BytesView header, BytesView plain) {
  seal_with_salt(out, key, header, plain, random_salt());
}

Bytes open(const Key& key, BytesView header, BytesView sealed) {
  if (sealed.size() < kPreambleBytes + kSealTagBytes) not_what_was_sealed("the end is missing");
  ChunkCipher cipher = begin_opening(key, header, sealed.first(kPreambleBytes));
  sealed = sealed.subspan(kPreambleBytes);
  const std::size_t chunks = (sealed.size() + kSealedChunkBytes - 1) / kSealedChunkBytes;
  const std::size_t last_bytes = sealed.size() - (chunks - 1) * kSealedChunkBytes;
  if (last_bytes < kSealTagBytes) not_what_was_sealed("the end is missing");
  Bytes plain(sealed.size() - chunks * kSealTagBytes);
  std::byte* out = plain.data();
  while (!sealed.empty()) {
    const auto chunk = sealed.first(std::min(sealed.size(), kSealedChunkBytes));
    sealed = sealed.subspan(chunk.size());
    cipher.open(chunk, sealed.empty(), out);
    out += chunk.size() - kSealTagBytes;
  }
  return plain;
}

Bytes wrap_key(const Key& wrapping, const Key& wrapped, BytesView context, BytesView salt32) {
  CHECK(salt32.size() == kSaltBytes, "a salt has 32 bytes");
  Bytes sealed;
  seal_with_salt(sealed, wrapping, context, wrapped.view(), salt32);
  return sealed;
}

Bytes wrap_key(const Key& wrapping, const Key& wrapped, BytesView context) {
  return seal(wrapping, context, wrapped.view());
}

Key unwrap_key(const Key& wrapping, BytesView wrapped, BytesView context) {
  if (wrapped.size() != kWrappedKeyBytes) not_what_was_sealed("a wrapped key of another length");
  ChunkCipher cipher = begin_opening(wrapping, context, wrapped.first(kPreambleBytes));
  return Key::filled([&](auto out) { cipher.open(wrapped.subspan(kPreambleBytes), true, out.data()); });
}

}  // namespace falaj::crypto
