// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/credentials.h"

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/sys/random.h"
#include "governance/iam/workload.h"

namespace falaj::iam {
namespace {

Credential random_credential(sys::Random& random) {
  Credential c;
  c.id.bits = {random.next(), random.next()};
  random.fill(c.secret);
  return c;
}

TEST(Token, HasOneSpellingWhichIsReadBack) {
  sys::SimRandom random(7);
  for (int i = 0; i < 2'000; ++i) {
    const auto c = random_credential(random);
    const auto text = format_credential(CredentialKind::token, c);
    ASSERT_EQ(text.size(), kTokenChars);
    ASSERT_EQ(parse_credential(CredentialKind::token, text), c) << text;
  }
}

TEST(Token, KeepsItsFormat) {
  Credential c;
  c.id = TokenId::parse("01hzy5m9x0abcdefghjkmnpqrs");
  for (std::size_t i = 0; i < c.secret.size(); ++i) c.secret[i] = static_cast<std::byte>(i);
  EXPECT_EQ(format_credential(CredentialKind::token, c),
            "falaj_01hzy5m9x0abcdefghjkmnpqrs_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1blnGT");
  Credential largest;
  largest.secret.fill(std::byte{0xff});
  EXPECT_EQ(parse_credential(CredentialKind::token, format_credential(CredentialKind::token, largest)), largest);
}

TEST(Token, RefusesAnyChangedCharacter) {
  sys::SimRandom random(8);
  const auto text = format_credential(CredentialKind::token, random_credential(random));
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto changed = text;
    changed[i] = changed[i] == 'a' ? 'b' : 'a';
    EXPECT_FALSE(parse_credential(CredentialKind::token, changed)) << i;
  }
  // 2^256 has 43 digits as well; with a right checksum only the size of the number tells.
  EXPECT_FALSE(parse_credential(CredentialKind::token,
                                "falaj_00000000000000000000000000_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp20ojiY3"));
  EXPECT_FALSE(parse_credential(CredentialKind::token, text.substr(1)));
  EXPECT_FALSE(parse_credential(CredentialKind::token, text + "a"));
  EXPECT_FALSE(parse_credential(CredentialKind::token, ""));
  EXPECT_FALSE(parse_credential(CredentialKind::session, text));
}

crypto::Key key_of(char c) { return crypto::Key::from(as_bytes(std::string(32, c))); }

WorkloadClaims claims() {
  return {"train-7",
          3,
          "acme",
          "flights",
          1'000'000,
          61'000'000,
          {Scope::parse("/t/acme/p/flights/blob/in")},
          {Scope::parse("/t/acme/p/flights/blob/out")}};
}

TEST(WorkloadToken, IsReadBackOnlyWithItsKeyAndInItsTime) {
  const auto token = sign_workload(key_of('k'), claims());
  EXPECT_EQ(verify_workload(key_of('k'), token, 1'000'000), claims());
  EXPECT_FALSE(verify_workload(key_of('x'), token, 1'000'000));
  EXPECT_FALSE(verify_workload(key_of('k'), token, 999'999));
  EXPECT_TRUE(verify_workload(key_of('k'), token, 60'999'999));
  EXPECT_FALSE(verify_workload(key_of('k'), token, 61'000'000));
}

TEST(WorkloadToken, RefusesAnyChangedCharacter) {
  const auto token = sign_workload(key_of('k'), claims());
  for (std::size_t i = 0; i < token.size(); ++i) {
    auto changed = token;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(verify_workload(key_of('k'), changed, 2'000'000)) << i;
  }
}

TEST(WorkloadToken, AllowsExactlyItsInputsAndOutputs) {
  const auto c = claims();
  const auto in = c.inputs[0], out = c.outputs[0], other = Scope::parse("/t/acme/p/flights/blob/in/x");
  EXPECT_TRUE(permits(c, "blob.read", in));
  EXPECT_TRUE(permits(c, "blob.read", out));
  EXPECT_TRUE(permits(c, "blob.write", out));
  EXPECT_FALSE(permits(c, "blob.write", in));
  EXPECT_FALSE(permits(c, "blob.read", other));
  EXPECT_FALSE(permits(c, "blob.delete", out));
  EXPECT_FALSE(permits(c, "blob.list", Scope::of_project("acme", "flights")));
  EXPECT_FALSE(permits(c, "blob.read", Scope::of_project("acme", "flights")));
  EXPECT_FALSE(permits(c, "read", in));
}

TEST(WorkloadToken, IsNotMadeForMoreThanAJobMayHave) {
  auto longer = claims();
  longer.expires_us = longer.issued_us + kWorkloadLifeMaxUs;
  EXPECT_FALSE(sign_workload(key_of('k'), longer).empty());
  ++longer.expires_us;
  EXPECT_ERROR(sign_workload(key_of('k'), longer), Code::invalid);
  auto foreign = claims();
  foreign.inputs.push_back(Scope::parse("/t/other/p/flights/blob/in"));
  EXPECT_ERROR(sign_workload(key_of('k'), foreign), Code::invalid);
  auto whole = claims();
  whole.inputs.push_back(Scope::of_project("acme", "flights"));
  EXPECT_ERROR(sign_workload(key_of('k'), whole), Code::invalid);
  auto many = claims();
  for (int i = 0; i < 300; ++i)
    many.inputs.push_back(Scope::parse("/t/acme/p/flights/blob/input-" + std::to_string(i)));
  EXPECT_ERROR(sign_workload(key_of('k'), many), Code::invalid);
}

}  // namespace
}  // namespace falaj::iam
