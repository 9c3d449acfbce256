// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/hash.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/crypto/key.h"
#include "foundation/crypto/openssl.h"

namespace falaj::crypto {
namespace {

// FIPS 180-4 examples.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(sha256("").hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").hex(),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')).hex(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameInPiecesAndReadyAgainAfterFinish) {
  Sha256 hash;
  for (int round = 0; round < 2; ++round) {
    hash.update(as_bytes("a"));
    hash.update({});
    hash.update(as_bytes("bc"));
    EXPECT_EQ(hash.finish(), sha256("abc"));
  }
  EXPECT_EQ(sha256({as_bytes("ab"), {}, as_bytes("c")}), sha256("abc"));
}

TEST(EqualInConstantTime, ComparesLengthAndBytes) {
  EXPECT_TRUE(equal_in_constant_time({}, {}));
  EXPECT_TRUE(equal_in_constant_time(as_bytes("abc"), as_bytes("abc")));
  EXPECT_FALSE(equal_in_constant_time(as_bytes("abc"), as_bytes("abd")));
  EXPECT_FALSE(equal_in_constant_time(as_bytes("abc"), as_bytes("ab")));
}

// RFC 4231, cases 1, 2, 3, 6 (a key longer than a block) and 7.
TEST(Hmac, GivesThePublishedCodes) {
  struct Case {
    Bytes key;
    Bytes data;
    std::string wanted;
  };
  const Case cases[] = {
      {Bytes(20, std::byte{0x0b}), to_bytes("Hi There"),
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {to_bytes("Jefe"), to_bytes("what do ya want for nothing?"),
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {Bytes(20, std::byte{0xaa}), Bytes(50, std::byte{0xdd}),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {Bytes(131, std::byte{0xaa}), to_bytes("Test Using Larger Than Block-Size Key - Hash Key First"),
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {Bytes(131, std::byte{0xaa}),
       to_bytes("This is a test using a larger than block-size key and a larger than block-size data. The key needs to "
                "be hashed before being used by the HMAC algorithm."),
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (const auto& c : cases) EXPECT_EQ(hmac_sha256(c.key, {c.data}).hex(), c.wanted);
  const Key key = Key::from(Bytes(32, std::byte{7}));
  EXPECT_EQ(hmac_sha256(key, as_bytes("abc")), hmac_sha256(key.view(), {as_bytes("a"), as_bytes("bc")}));
}

// RFC 5869, appendix A.1 to A.3.
TEST(Hkdf, GivesThePublishedKeys) {
  const auto range = [](int from, int to) {
    Bytes out;
    for (int i = from; i <= to; ++i) out.push_back(static_cast<std::byte>(i));
    return out;
  };
  const auto hkdf = [](const Bytes& key, const Bytes& salt, const Bytes& info, std::size_t size) {
    Bytes out(size);
    hkdf_sha256(key, salt, {info}, out);
    return to_hex(out);
  };
  const Bytes key(22, std::byte{0x0b});
  EXPECT_EQ(hkdf(key, range(0x00, 0x0c), range(0xf0, 0xf9), 42),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
  EXPECT_EQ(
      hkdf(range(0x00, 0x4f), range(0x60, 0xaf), range(0xb0, 0xff), 82),
      "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b"
      "8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
  EXPECT_EQ(hkdf(key, {}, {}, 42),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

TEST(Key, IsDerivedDifferentlyForEachPurposeAndSalt) {
  const Key root = Key::random();
  const auto hex = [&](std::string_view salt, std::string_view purpose) {
    return to_hex(derive(root, as_bytes(salt), purpose).view());
  };
  EXPECT_EQ(hex("s", "a"), hex("s", "a"));
  EXPECT_NE(hex("s", "a"), hex("s", "b"));
  EXPECT_NE(hex("s", "a"), hex("t", "a"));
  EXPECT_NE(to_hex(Key::random().view()), to_hex(root.view()));
}

TEST(Key, HasExactly32Bytes) {
  EXPECT_ERROR(Key::from(Bytes(31)), Code::corrupt);
  EXPECT_ERROR(Key::from(Bytes(33)), Code::corrupt);
}

TEST(Key, IsWipedWhenDropped) {
  const std::byte* where = nullptr;
  {
    const Key key = Key::from(Bytes(32, std::byte{0x5a}));
    where = key.view().data();
    EXPECT_EQ(where[0], std::byte{0x5a});
  }
  // The slot stays mapped, so it may be looked at; nobody took it since.
  EXPECT_EQ(Bytes(where, where + Key::kBytes), Bytes(Key::kBytes));
}

TEST(Key, StaysItselfWhenMovedAndCopied) {
  Key a = Key::from(Bytes(32, std::byte{1}));
  Key b = Key::from(Bytes(32, std::byte{2}));
  const Key c = a.copy();
  b = std::move(a);
  EXPECT_EQ(b.view()[0], std::byte{1});
  EXPECT_EQ(c.view()[0], std::byte{1});
  EXPECT_NE(c.view().data(), b.view().data());
  std::vector<Key> many;  // more than one slab of slots
  for (int i = 0; i < 2000; ++i) many.push_back(Key::from(Bytes(32, static_cast<std::byte>(i))));
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(many[i].view()[31], static_cast<std::byte>(i));
}

}  // namespace
}  // namespace falaj::crypto
