// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/sign.h"

#include <gtest/gtest.h>

namespace falaj::crypto {
namespace {

// RFC 8032, section 7.1, tests 1 to 3.
TEST(Ed25519, GivesThePublishedSignatures) {
  struct Case {
    std::string seed, public_key, message, signature;
  };
  const Case cases[] = {
      {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
       "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
       "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe2"
       "465"
       "5141438e7a100b"},
      {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
       "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
       "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302ae"
       "eb0"
       "0d291612bb0c00"},
      {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
       "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
       "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28"
       "dc0"
       "27beceea1ec40a"},
  };
  for (const auto& c : cases) {
    const Signer signer(Key::from(from_hex(c.seed)));
    EXPECT_EQ(to_hex(signer.public_key()), c.public_key);
    EXPECT_EQ(to_hex(signer.sign(from_hex(c.message))), c.signature);
    EXPECT_TRUE(verify(signer.public_key(), from_hex(c.message), signer.sign(from_hex(c.message))));
  }
}

TEST(Ed25519, RefusesAnotherMessageKeyOrSignature) {
  const Signer signer(Key::random()), other(Key::random());
  const Signature signature = signer.sign(as_bytes("pay 1"));
  EXPECT_TRUE(verify(signer.public_key(), as_bytes("pay 1"), signature));
  EXPECT_FALSE(verify(signer.public_key(), as_bytes("pay 2"), signature));
  EXPECT_FALSE(verify(other.public_key(), as_bytes("pay 1"), signature));
  for (std::size_t i = 0; i < signature.size(); ++i) {
    Signature damaged = signature;
    damaged[i] ^= std::byte{1};
    EXPECT_FALSE(verify(signer.public_key(), as_bytes("pay 1"), damaged)) << i;
  }
}

}  // namespace
}  // namespace falaj::crypto
