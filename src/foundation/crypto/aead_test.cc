// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/aead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "foundation/base/testing.h"
#include "foundation/crypto/hash.h"
#include "foundation/crypto/openssl.h"

namespace falaj::crypto {
namespace {

constexpr std::size_t kPreamble = kSealOverheadBytes - kSealTagBytes;
constexpr std::size_t kSealedChunk = kSealChunkBytes + kSealTagBytes;
const Bytes kHeader = to_bytes("tenant=acme;zone=uae");

Key test_key(int n = 1) { return Key::from(Bytes(32, static_cast<std::byte>(n))); }

Bytes pattern(std::size_t size) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  return out;
}

Bytes seal_in_pieces(const Bytes& plain, std::size_t piece) {
  Sealer sealer(test_key(), kHeader);
  Bytes out;
  const auto add = [&](const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); };
  for (std::size_t at = 0; at < plain.size(); at += piece) {
    add(sealer.update(BytesView(plain).subspan(at, std::min(piece, plain.size() - at))));
  }
  add(sealer.finish());
  return out;
}

Bytes open_in_pieces(const Bytes& sealed, std::size_t piece) {
  Opener opener(test_key(), kHeader);
  Bytes out;
  const auto add = [&](const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); };
  for (std::size_t at = 0; at < sealed.size(); at += piece) {
    add(opener.update(BytesView(sealed).subspan(at, std::min(piece, sealed.size() - at))));
  }
  add(opener.finish());
  return out;
}

// Found by reading all at once and by reading in pieces.
void expect_refused(const Bytes& sealed, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_ERROR(open(test_key(), kHeader, sealed), Code::corrupt);
  EXPECT_ERROR(open_in_pieces(sealed, 50'000), Code::corrupt);
}

// NIST's GCM specification (McGrew and Viega), test cases 13, 14 and 16: proves that the cipher below the stream is
// AES-256-GCM with the tag and associated data where they belong.
TEST(AesGcm, GivesThePublishedCiphertexts) {
  struct Case {
    std::string key, iv, aad, plain, sealed, tag;
  };
  const std::string zeros(64, '0');
  const Case cases[] = {
      {zeros, "000000000000000000000000", "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
      {zeros, "000000000000000000000000", "", "00000000000000000000000000000000", "cea7403d4d606b6e074ec5d3baf39d18",
       "d0d1c8a799996bf0265b98b5d48ab919"},
      {"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
       "feedfacedeadbeeffeedfacedeadbeefabaddad2",
       "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de65"
       "7ba637b39",
       "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0"
       "abcc9f662",
       "76fc6ece0f4e1768cddf8853bb2d551b"},
  };
  for (const auto& c : cases) {
    const CipherCtx ctx(EVP_CIPHER_CTX_new());
    const Bytes key = from_hex(c.key), iv = from_hex(c.iv), aad = from_hex(c.aad), plain = from_hex(c.plain);
    Bytes sealed(plain.size()), tag(16);
    int n = 0;
    ASSERT_EQ(EVP_EncryptInit_ex2(ctx.get(), aes_256_gcm_algorithm(), raw(key), raw(iv), nullptr), 1);
    if (!aad.empty()) {
      ASSERT_EQ(EVP_EncryptUpdate(ctx.get(), nullptr, &n, raw(aad), static_cast<int>(aad.size())), 1);
    }
    if (!plain.empty()) {
      ASSERT_EQ(EVP_EncryptUpdate(ctx.get(), raw(sealed), &n, raw(plain), static_cast<int>(plain.size())), 1);
    }
    ASSERT_EQ(EVP_EncryptFinal_ex(ctx.get(), raw(tag), &n), 1);
    ASSERT_EQ(EVP_CIPHER_CTX_ctrl(ctx.get(), EVP_CTRL_AEAD_GET_TAG, 16, raw(tag)), 1);
    EXPECT_EQ(to_hex(sealed), c.sealed);
    EXPECT_EQ(to_hex(tag), c.tag);
  }
}

// Written out by hand from docs/formats/sealed_stream.md, with OpenSSL only.
TEST(SealedStream, IsLaidOutAsTheDocumentSays) {
  const Bytes plain = pattern(kSealChunkBytes + 5);
  const Bytes sealed = seal(test_key(), kHeader, plain);
  ASSERT_EQ(sealed.size(), 4 + 32 + 32 + kSealChunkBytes + 16 + 5 + 16);
  EXPECT_EQ(as_text(BytesView(sealed).first(4)), std::string_view("FSS\1", 4));
  Bytes derived(64);
  hkdf_sha256(test_key().view(), BytesView(sealed).subspan(4, 32), {as_bytes("falaj sealed stream v1"), kHeader},
              derived);
  EXPECT_EQ(Bytes(sealed.begin() + 36, sealed.begin() + 68), Bytes(derived.begin() + 32, derived.end()));

  const auto decrypt = [&](std::size_t at, std::size_t size, const std::string& nonce_hex) {
    const CipherCtx ctx(EVP_CIPHER_CTX_new());
    const Bytes nonce = from_hex(nonce_hex);
    Bytes out(size), tag(sealed.begin() + at + size, sealed.begin() + at + size + 16);
    int n = 0;
    EVP_DecryptInit_ex2(ctx.get(), aes_256_gcm_algorithm(), raw(derived), raw(nonce), nullptr);
    EVP_DecryptUpdate(ctx.get(), nullptr, &n, raw(kHeader), static_cast<int>(kHeader.size()));
    EVP_DecryptUpdate(ctx.get(), raw(out), &n, raw(BytesView(sealed).subspan(at)), static_cast<int>(size));
    EVP_CIPHER_CTX_ctrl(ctx.get(), EVP_CTRL_AEAD_SET_TAG, 16, raw(tag));
    EXPECT_EQ(EVP_DecryptFinal_ex(ctx.get(), raw(tag), &n), 1);
    return out;
  };
  EXPECT_EQ(decrypt(68, kSealChunkBytes, "000000000000000000000000"), Bytes(plain.begin(), plain.end() - 5));
  EXPECT_EQ(decrypt(68 + kSealedChunk, 5, "000000000000000000000101"), Bytes(plain.end() - 5, plain.end()));
}

TEST(SealedStream, ComesBackAtEverySizeHoweverItIsCut) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kSealChunkBytes - 1, kSealChunkBytes,
                                 kSealChunkBytes + 1, 3 * kSealChunkBytes, 3 * kSealChunkBytes + 7}) {
    SCOPED_TRACE(size);
    const Bytes plain = pattern(size);
    const Bytes sealed = seal(test_key(), kHeader, plain);
    EXPECT_EQ(sealed.size(), sealed_size(size));
    EXPECT_EQ(open(test_key(), kHeader, sealed), plain);
    for (const std::size_t piece : {std::size_t{1000}, kSealChunkBytes, kSealedChunk, 2 * kSealedChunk + 3}) {
      const Bytes in_pieces = seal_in_pieces(plain, piece);
      EXPECT_EQ(in_pieces.size(), sealed.size());
      EXPECT_EQ(open(test_key(), kHeader, in_pieces), plain);
      EXPECT_EQ(open_in_pieces(sealed, piece), plain);
    }
  }
  EXPECT_EQ(open_in_pieces(seal_in_pieces(pattern(1000), 1), 1), pattern(1000));
}

TEST(SealedStream, NeverRepeatsItself) {
  EXPECT_NE(seal(test_key(), kHeader, pattern(100)), seal(test_key(), kHeader, pattern(100)));
}

TEST(SealedStream, RefusesEveryBitFlipOfASmallOne) {
  const Bytes sealed = seal(test_key(), kHeader, pattern(40));
  for (std::size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    Bytes damaged = sealed;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_ERROR(open(test_key(), kHeader, damaged), Code::corrupt);
  }
}

TEST(SealedStream, RefusesEveryTruncationOfASmallOne) {
  const Bytes sealed = seal(test_key(), kHeader, pattern(40));
  for (std::size_t size = 0; size < sealed.size(); ++size) {
    expect_refused(Bytes(sealed.begin(), sealed.begin() + static_cast<long>(size)), std::to_string(size));
  }
}

class TamperedStream : public testing::Test {
 protected:
  Bytes chunk(const Bytes& sealed, std::size_t n) const {
    const auto at = kPreamble + n * kSealedChunk;
    return {sealed.begin() + static_cast<long>(at),
            sealed.begin() + static_cast<long>(std::min(sealed.size(), at + kSealedChunk))};
  }
  Bytes joined(const Bytes& sealed, std::initializer_list<Bytes> chunks) const {
    Bytes out(sealed.begin(), sealed.begin() + kPreamble);
    for (const auto& c : chunks) out.insert(out.end(), c.begin(), c.end());
    return out;
  }
  const Bytes plain_ = pattern(3 * kSealChunkBytes);
  const Bytes sealed_ = seal(test_key(), kHeader, plain_);
  const Bytes c0_ = chunk(sealed_, 0), c1_ = chunk(sealed_, 1), c2_ = chunk(sealed_, 2);
};

TEST_F(TamperedStream, IsRefusedWhenCutAtOrNearAChunkBoundary) {
  ASSERT_EQ(joined(sealed_, {c0_, c1_, c2_}), sealed_);
  expect_refused(joined(sealed_, {}), "no chunk");
  expect_refused(joined(sealed_, {c0_}), "one of three");
  expect_refused(joined(sealed_, {c0_, c1_}), "two of three");
  for (const std::size_t boundary :
       {kPreamble, kPreamble + kSealedChunk, kPreamble + 2 * kSealedChunk, sealed_.size()}) {
    for (long off = -17; off <= 17; ++off) {
      const long size = static_cast<long>(boundary) + off;
      if (size >= static_cast<long>(sealed_.size())) continue;
      EXPECT_ERROR(open(test_key(), kHeader, Bytes(sealed_.begin(), sealed_.begin() + size)), Code::corrupt);
    }
  }
}

TEST_F(TamperedStream, IsRefusedWhenReorderedRepeatedOrLengthened) {
  expect_refused(joined(sealed_, {c1_, c0_, c2_}), "swapped");
  expect_refused(joined(sealed_, {c0_, c0_, c2_}), "repeated");
  expect_refused(joined(sealed_, {c0_, c2_}), "one left out");
  expect_refused(joined(sealed_, {c0_, c1_, c2_, c2_}), "last twice");
  expect_refused(joined(sealed_, {c0_, c1_, c2_, Bytes(1)}), "a byte more");
  expect_refused(joined(sealed_, {c0_, c1_, c2_, Bytes(16)}), "an empty chunk more");
}

TEST_F(TamperedStream, IsRefusedWhenSplicedWithAnotherOfTheSameKey) {
  const Bytes other = seal(test_key(), kHeader, plain_);
  expect_refused(joined(sealed_, {chunk(other, 0), c1_, c2_}), "first of another");
  expect_refused(joined(sealed_, {c0_, c1_, chunk(other, 2)}), "last of another");
  Bytes other_salt = sealed_;
  std::copy(other.begin() + 4, other.begin() + 36, other_salt.begin() + 4);
  expect_refused(other_salt, "salt of another");
}

TEST_F(TamperedStream, IsRefusedWithAnotherHeaderOrKey) {
  EXPECT_ERROR(open(test_key(), to_bytes("tenant=evil;zone=uae"), sealed_), Code::corrupt);
  EXPECT_ERROR(open(test_key(), {}, sealed_), Code::corrupt);
  EXPECT_ERROR(open(test_key(2), kHeader, sealed_), Code::corrupt);
}

TEST_F(TamperedStream, GivesOnlyVerifiedBytesBeforeTheDamage) {
  Bytes damaged = sealed_;
  damaged[kPreamble + kSealedChunk + 9] ^= std::byte{1};
  Opener opener(test_key(), kHeader);
  Bytes out = opener.update(BytesView(damaged).first(kPreamble + kSealedChunk + 1));
  EXPECT_EQ(out, Bytes(plain_.begin(), plain_.begin() + kSealChunkBytes));
  EXPECT_ERROR(opener.update(BytesView(damaged).subspan(kPreamble + kSealedChunk + 1)), Code::corrupt);
}

TEST(WrappedKey, ComesBackOnlyForItsKeyAndContext) {
  const Key wrapping = test_key(3), wrapped = Key::random();
  const Bytes context = to_bytes("tenant acme v1");
  const Bytes bytes = wrap_key(wrapping, wrapped, context);
  EXPECT_EQ(bytes.size(), kWrappedKeyBytes);
  EXPECT_TRUE(equal_in_constant_time(unwrap_key(wrapping, bytes, context).view(), wrapped.view()));
  EXPECT_ERROR(unwrap_key(test_key(4), bytes, context), Code::corrupt);
  EXPECT_ERROR(unwrap_key(wrapping, bytes, to_bytes("tenant acme v2")), Code::corrupt);
  EXPECT_ERROR(unwrap_key(wrapping, BytesView(bytes).first(bytes.size() - 1), context), Code::corrupt);
  EXPECT_ERROR(unwrap_key(wrapping, seal(wrapping, context, pattern(31)), context), Code::corrupt);
  const Bytes salt(32, std::byte{9});
  EXPECT_EQ(wrap_key(wrapping, wrapped, context, salt), wrap_key(wrapping, wrapped, context, salt));
}

// A stream written by the first version of the format. It must be readable for ever; do not make it anew.
TEST(SealedStream, OpensTheGoldenFile) {
  std::ifstream in(FALAJ_TESTDATA "/sealed_stream_v1.bin", std::ios::binary);
  const std::string sealed((std::istreambuf_iterator<char>(in)), {});
  ASSERT_FALSE(sealed.empty());
  const Bytes plain = open(test_key(), as_bytes("golden header"), as_bytes(sealed));
  EXPECT_EQ(plain, pattern(kSealChunkBytes + 1000));
}

}  // namespace
}  // namespace falaj::crypto
