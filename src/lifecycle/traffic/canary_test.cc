// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/canary.h"

#include <random>

#include <gtest/gtest.h>

namespace falaj::traffic {
namespace {

using What = CanaryDecision::What;

CanaryRule rule() {
  CanaryRule out;
  out.variant = "new";
  out.steps = {10, 100};
  out.every_us = 1'000;
  return out;
}
// So many answered, so many failed, all of those answered within so long.
Observed seen(std::int64_t requests, std::int64_t failures, std::int64_t us) {
  Observed out;
  out.counted.requests = requests;
  out.counted.failures = failures;
  out.counted.latency[Times::bucket(us)] = static_cast<std::uint64_t>(requests);
  return out;
}
Observed broken() {
  Observed out;
  out.broken = true;
  return out;
}
const Observed kOthers = seen(10'000, 0, 2'000);

TEST(Canary, GoesOnOnlyWithEnoughTimeAndRequests) {
  const CanaryState state{0, 5'000, 0};
  EXPECT_EQ(decide(rule(), state, 5'999, seen(1'000, 0, 2'000), kOthers).what, What::wait);
  EXPECT_EQ(decide(rule(), state, 6'000, seen(99, 0, 2'000), kOthers).what, What::wait);
  EXPECT_EQ(decide(rule(), state, 6'000, seen(100, 0, 2'000), kOthers).what, What::advance);
  EXPECT_EQ(decide(rule(), {1, 5'000, 0}, 6'000, seen(50, 0, 2'000), kOthers).what, What::wait);
  EXPECT_EQ(decide(rule(), {1, 5'000, 0}, 6'000, seen(100, 0, 2'000), kOthers).what, What::promote);
}

TEST(Canary, RollsBackWhatFailsMoreThanItMay) {
  const CanaryState state{0, 0, 0};
  const auto failing = decide(rule(), state, 1, seen(50, 10, 2'000), kOthers);
  EXPECT_EQ(failing.what, What::roll_back);
  EXPECT_EQ(failing.why, "10 of 60 requests failed");
  EXPECT_EQ(decide(rule(), state, 1, seen(1, 2, 2'000), kOthers).what, What::wait) << "two failures may be chance";
  EXPECT_EQ(decide(rule(), state, 1, seen(0, 3, 2'000), kOthers).what, What::roll_back);
  EXPECT_EQ(decide(rule(), state, 1, broken(), kOthers).what, What::roll_back);
}

TEST(Canary, RollsBackWhatIsSlower) {
  const CanaryState state{0, 0, 0};
  EXPECT_EQ(decide(rule(), state, 9'999, seen(200, 0, 9'000), kOthers).what, What::roll_back);
  EXPECT_EQ(decide(rule(), state, 9'999, seen(200, 0, 2'900), kOthers).what, What::advance);
  EXPECT_EQ(decide(rule(), state, 9'999, seen(200, 0, 900), seen(10'000, 0, 100)).what, What::advance)
      << "less than a millisecond is noise";
}

TEST(Canary, RollsBackNothingForSomeSlowRequests) {
  const CanaryState state{0, 0, 0};
  const auto some = [](std::uint64_t slow) {
    auto out = seen(1'000, 0, 2'000);
    out.counted.requests += static_cast<std::int64_t>(slow);
    out.counted.latency[Times::bucket(50'000)] = slow;
    return out;
  };
  EXPECT_EQ(decide(rule(), state, 9'999, some(15), kOthers).what, What::advance) << "1.5 of 100: may be chance";
  EXPECT_EQ(decide(rule(), state, 9'999, some(25), kOthers).what, What::roll_back);
}

TEST(Canary, IsComparedWithHowFastTheOthersWereWhenNobodyAsksThemNow) {
  EXPECT_EQ(decide(rule(), {1, 0, 2'000}, 9'999, seen(200, 0, 9'000), Observed()).what, What::roll_back);
  EXPECT_EQ(decide(rule(), {1, 0, 8'000}, 9'999, seen(200, 0, 9'000), seen(9, 0, 100)).what, What::promote);
  EXPECT_EQ(decide(rule(), {1, 0, 0}, 9'999, seen(200, 0, 9'000), Observed()).what, What::promote) << "not known";
}

TEST(Canary, RollsBackNothingWhereTheOthersFailAsOften) {
  const CanaryState state{0, 1'000'000, 0};
  EXPECT_EQ(decide(rule(), state, 1, seen(300, 100, 900), seen(3'000, 1'000, 900)).what, What::wait);
  EXPECT_EQ(decide(rule(), state, 1, seen(300, 100, 900), seen(3'000, 300, 900)).what, What::roll_back);
  EXPECT_EQ(decide(rule(), state, 1, seen(300, 100, 900), seen(10, 10, 900)).what, What::roll_back) << "too few others";
}

TEST(Tallies, GrowFromWhatWasThereAndFromZeroWhenAServerBeganAnew) {
  const Tallies before({{"s1", "new", 4, 100, 7, {5, 60, 9, 40}}});
  const auto grown = [&](const Tally& now) {
    Grown out;
    before.add_growth(out, now);
    return out;
  };
  const auto more = grown({"s1", "new", 4, 110, 9, {5, 65, 9, 45}});
  EXPECT_EQ(more.requests, 10);
  EXPECT_EQ(more.failures, 2);
  EXPECT_EQ(more.latency[5] + more.latency[9], 10u);
  EXPECT_EQ(grown({"s1", "new", 4, 20, 0, {5, 20}}).requests, 20) << "it began anew";
  EXPECT_EQ(grown({"s1", "new", 4, 120, 9, {5, 120}}).latency[5], 120u) << "and by now answered more";
  EXPECT_EQ(grown({"s1", "new", 5, 20, 1, {}}).failures, 1) << "another version";
  EXPECT_EQ(grown({"s2", "new", 4, 20, 1, {-3, 1, 99'999, 1, 5}}).requests, 20) << "and what is no bucket is none";
  EXPECT_TRUE(before.knows_server("s1"));
  EXPECT_FALSE(before.knows_server("s2"));
}

TEST(Canary, SeldomRollsBackWhatFailsAsOftenAsItMay) {
  std::mt19937_64 random(5);
  int rolled_back = 0;
  constexpr int kCanaries = 2'000;
  for (int i = 0; i < kCanaries; ++i) {
    Observed all;
    for (int second = 0; second < 50; ++second) {
      for (int k = 0; k < 100; ++k)
        ++(std::bernoulli_distribution(0.01)(random) ? all.counted.failures : all.counted.requests);
      if (decide(rule(), {0, 1'000'000'000, 0}, second, all, kOthers).what != What::roll_back) continue;
      ++rolled_back;
      break;
    }
  }
  EXPECT_LT(rolled_back, kCanaries / 20);
}

Observed predicted(int count, double mean, const char* text, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise;
  auto out = seen(count, 0, 2'000);
  for (int i = 0; i < count; ++i) {
    out.outputs["out_y"].add(mean + noise(random));
    out.outputs["out_class"].add(i % 4 == 0 ? std::string_view(text) : std::string_view("no"));
  }
  return out;
}

TEST(Canary, RollsBackWhatPredictsOtherwise) {
  auto looks = rule();
  looks.shift_max = 0.1;
  const CanaryState state{0, 0, 0};
  const auto others = predicted(2'000, 0, "yes", 1);
  EXPECT_EQ(decide(looks, state, 2'000, predicted(2'000, 0, "yes", 2), others).what, What::advance);
  EXPECT_EQ(decide(looks, state, 2'000, predicted(2'000, 0.1, "yes", 3), others).what, What::advance) << "0.04";
  const auto off = decide(looks, state, 2'000, predicted(2'000, 1, "yes", 4), others);
  EXPECT_EQ(off.what, What::roll_back);
  EXPECT_NE(off.why.find("out_y by 0.4"), std::string::npos) << off.why;
  EXPECT_EQ(decide(looks, state, 2'000, predicted(2'000, 0, "maybe", 5), others).what, What::roll_back);
  EXPECT_EQ(decide(looks, state, 2'000, predicted(50, 3, "yes", 6), others).what, What::wait) << "too few to tell";
  EXPECT_EQ(decide(rule(), state, 2'000, predicted(2'000, 1, "yes", 4), others).what, What::advance) << "not asked";
}

TEST(Canary, SeldomRollsBackWhatPredictsTheSame) {
  auto looks = rule();
  looks.shift_max = 0.0;
  int rolled_back = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const auto others = predicted(300, 0, "yes", 1'000 + seed);
    for (const int count : {100, 200, 300})
      rolled_back += decide(looks, {0, 0, 0}, 2'000, predicted(count, 0, "yes", seed), others).what == What::roll_back;
  }
  EXPECT_EQ(rolled_back, 0);
}

TEST(Canary, RollsBackWhenItsLabelsAreSurelyWorse) {
  auto guarded = rule();
  guarded.metric_drop_max = 0.02;
  const CanaryState state{0, 5'000, 0};
  const auto labelled = [](int yes, int of) {
    auto out = seen(1'000, 0, 2'000);
    for (int i = 0; i < of; ++i) out.labels.add(i < yes ? 1 : 0);
    return out;
  };
  const auto others = labelled(500, 1'000);
  EXPECT_EQ(decide(guarded, state, 5'500, labelled(300, 1'000), others).what, What::roll_back);
  EXPECT_EQ(decide(guarded, state, 5'500, labelled(490, 1'000), others).what, What::wait);  // may be chance
  EXPECT_EQ(decide(guarded, state, 5'500, labelled(0, 50), others).what, What::wait);       // too few
  guarded.metric_drop_max = 0.5;
  EXPECT_EQ(decide(guarded, state, 5'500, labelled(300, 1'000), others).what, What::wait);  // less than may be
  EXPECT_EQ(decide(rule(), state, 5'500, labelled(300, 1'000), others).what, What::wait);   // nobody asked
}

}  // namespace
}  // namespace falaj::traffic
