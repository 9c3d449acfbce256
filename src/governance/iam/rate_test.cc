// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/rate.h"

#include <gtest/gtest.h>

#include "foundation/sys/random.h"
#include "governance/iam/throttle.h"
#include "governance/iam/zone.h"

namespace falaj::iam {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;

TEST(Rate, LetsABurstThroughThenTheAverage) {
  const Rate rate{2, 3};
  Bucket bucket;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(take(bucket, rate, 0).admitted);
  const auto refused = take(bucket, rate, 0);
  EXPECT_FALSE(refused.admitted);
  EXPECT_EQ(refused.retry_after_us, kSecondUs / 2);
  EXPECT_FALSE(take(bucket, rate, kSecondUs / 2 - 1).admitted);
  EXPECT_TRUE(take(bucket, rate, kSecondUs / 2).admitted);
}

TEST(Rate, NeverAdmitsMoreThanItPromises) {
  sys::SimRandom random(11);
  for (int world = 0; world < 200; ++world) {
    const Rate rate{1.0 + static_cast<double>(random.below(50)), 1.0 + static_cast<double>(random.below(20))};
    Bucket bucket;
    std::int64_t now = 0;
    double admitted = 0;
    for (int i = 0; i < 500; ++i) {
      now += static_cast<std::int64_t>(random.below(100'000));
      const auto result = take(bucket, rate, now);
      admitted += result.admitted;
      ASSERT_NE(result.admitted, result.retry_after_us > 0);
      ASSERT_LE(admitted, rate.burst + static_cast<double>(now) * 1e-6 * rate.per_second + 1e-6);
    }
  }
}

TEST(Rate, TheHintIsLongEnoughAndAClockGoneBackRefillsNothing) {
  const Rate rate{3, 5};
  Bucket bucket;
  while (take(bucket, rate, kSecondUs).admitted) {
  }
  EXPECT_FALSE(take(bucket, rate, 0).admitted);
  EXPECT_TRUE(take(bucket, rate, kSecondUs + take(bucket, rate, kSecondUs).retry_after_us).admitted);
  EXPECT_EQ(take(bucket, rate, kSecondUs, 6).retry_after_us, -1);
}

TEST(Throttle, SlowsDownFromTheFifthFailure) {
  Throttle throttle;
  std::int64_t now = 0;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(throttle.begin("ada", now), 0);
  EXPECT_EQ(throttle.begin("ada", now), kSecondUs);
  now += kSecondUs;
  EXPECT_EQ(throttle.begin("ada", now), 0);
  EXPECT_EQ(throttle.begin("ada", now), 2 * kSecondUs);
  EXPECT_EQ(throttle.begin("bob", now), 0);
  throttle.succeeded("ada");
  EXPECT_EQ(throttle.begin("ada", now), 0);
  EXPECT_EQ(delay_after_us(4), 0);
  EXPECT_EQ(delay_after_us(1'000), 15 * 60 * kSecondUs);
}

TEST(Throttle, IsBoundedAndForgetsTheLeastGuiltyFirst) {
  Throttle throttle(3);
  for (int i = 0; i < 8; ++i) throttle.begin("attacked", i * 100 * kSecondUs);
  const std::int64_t now = 7 * 100 * kSecondUs;
  for (int i = 0; i < 100; ++i) throttle.begin("account" + std::to_string(i), now);
  EXPECT_GT(throttle.begin("attacked", now), 0);
}

TEST(Zone, BytesStayUnlessAGrantLetsThemGo) {
  const auto uae = ZoneName::parse("uae-north"), eu = ZoneName::parse("eu-west");
  const auto model = Scope::parse("/t/acme/p/flights/blob/models/delay"),
             raw = Scope::parse("/t/acme/p/flights/blob/raw");
  const std::vector<TransferGrant> grants = {
      {"g", uae, eu, Scope::of_project("acme", "flights"), "blob/models/*", "no personal data", "user/ada", 100}};
  EXPECT_TRUE(may_transfer(grants, uae, eu, model, 99));
  EXPECT_FALSE(may_transfer(grants, uae, eu, model, 100));  // expired
  EXPECT_FALSE(may_transfer(grants, eu, uae, model, 99));   // the other way
  EXPECT_FALSE(may_transfer(grants, uae, eu, raw, 99));
  EXPECT_FALSE(may_transfer(grants, uae, eu, Scope::parse("/t/other/p/flights/blob/models/delay"), 99));
  EXPECT_TRUE(may_transfer({}, uae, uae, raw, 99));
  EXPECT_FALSE(may_transfer({}, uae, eu, raw, 99));
}

}  // namespace
}  // namespace falaj::iam
