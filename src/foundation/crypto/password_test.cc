// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/password.h"

#include <gtest/gtest.h>

#include <deque>

#include "foundation/base/testing.h"

namespace falaj::crypto {
namespace {

constexpr PasswordCost kCheap{.memory_bytes = 8U << 10, .passes = 1};

TEST(Password, IsVerifiedAgainstItsHashOnly) {
  const std::string hashed = hash_password("correct horse", kCheap);
  EXPECT_EQ(hashed.rfind("$argon2id$v=19$m=8,t=1,p=1$", 0), 0U) << hashed;
  EXPECT_TRUE(verify_password("correct horse", hashed));
  EXPECT_FALSE(verify_password("correct horsf", hashed));
  EXPECT_FALSE(verify_password("", hashed));
  EXPECT_FALSE(verify_password("correct horse", "not a hash"));
  EXPECT_FALSE(verify_password("correct horse", std::string(1000, 'x')));
  EXPECT_NE(hash_password("correct horse", kCheap), hashed) << "a fresh salt each time";
}

// From the reference program: echo -n password | argon2 somesaltsomesalt -id -t 2 -k 65536 -p 1 -l 32
TEST(Password, KeyIsArgon2id) {
  const Key key =
      key_from_passphrase("password", as_bytes("somesaltsomesalt"), {.memory_bytes = 64U << 20, .passes = 2});
  EXPECT_EQ(to_hex(key.view()), "fc33b78139231d34b71626bd6245c1d72efa190ad605c3d8166a72adcedfa2c2");
}

TEST(Password, KeyDependsOnPassphraseSaltAndCost) {
  const auto hex = [](std::string_view phrase, std::string_view salt, PasswordCost cost) {
    return to_hex(key_from_passphrase(phrase, as_bytes(salt), cost).view());
  };
  const std::string key = hex("phrase", "0123456789abcdef", kCheap);
  EXPECT_EQ(hex("phrase", "0123456789abcdef", kCheap), key);
  EXPECT_NE(hex("phrasf", "0123456789abcdef", kCheap), key);
  EXPECT_NE(hex("phrase", "0123456789abcdeg", kCheap), key);
  EXPECT_NE(hex("phrase", "0123456789abcdef", {.memory_bytes = 8U << 10, .passes = 2}), key);
  EXPECT_ERROR(key_from_passphrase("phrase", as_bytes("short"), kCheap), Code::corrupt);
}

TEST(Password, IsHashedAnewWhenTheCostRises) {
  const std::string hashed = hash_password("p", kCheap);
  EXPECT_FALSE(is_weaker(hashed, kCheap));
  EXPECT_TRUE(is_weaker(hashed));
}

TEST(Password, ManyAtOnceAreRefusedNotQueued) {
  const std::string hashed = hash_password("p", kCheap);
  {
    std::deque<PasswordPlace> held;
    for (std::size_t i = 0; i + 1 < kPasswordHashesMax; ++i) held.emplace_back();
    EXPECT_TRUE(verify_password("p", hashed)) << "the last place is good";
    held.emplace_back();
    EXPECT_ERROR(verify_password("p", hashed), Code::exhausted);
    EXPECT_ERROR(hash_password("p", kCheap), Code::exhausted);
    EXPECT_ERROR(key_from_passphrase("p", as_bytes("0123456789abcdef"), kCheap), Code::exhausted);
  }
  EXPECT_TRUE(verify_password("p", hashed)) << "places come back";
}

}  // namespace
}  // namespace falaj::crypto
