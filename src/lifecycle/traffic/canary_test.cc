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
const Observed kOthers{10'000, 0, 2'000, false};

TEST(Canary, GoesOnOnlyWithEnoughTimeAndRequests) {
  const CanaryState state{0, 5'000, 0, 0};
  EXPECT_EQ(decide(rule(), state, 5'999, {1'000, 0, 2'000, false}, kOthers).what, What::wait);
  EXPECT_EQ(decide(rule(), state, 6'000, {99, 0, 2'000, false}, kOthers).what, What::wait);
  EXPECT_EQ(decide(rule(), state, 6'000, {100, 0, 2'000, false}, kOthers).what, What::advance);
  EXPECT_EQ(decide(rule(), {1, 5'000, 100, 0}, 6'000, {150, 0, 2'000, false}, kOthers).what, What::wait);
  EXPECT_EQ(decide(rule(), {1, 5'000, 100, 0}, 6'000, {200, 0, 2'000, false}, kOthers).what, What::promote);
}

TEST(Canary, RollsBackWhatFailsMoreThanItMay) {
  const CanaryState state{0, 0, 0, 0};
  const auto failing = decide(rule(), state, 1, {50, 10, 2'000, false}, kOthers);
  EXPECT_EQ(failing.what, What::roll_back);
  EXPECT_EQ(failing.why, "10 of 60 requests failed");
  EXPECT_EQ(decide(rule(), state, 1, {1, 2, 2'000, false}, kOthers).what, What::wait) << "two failures may be chance";
  EXPECT_EQ(decide(rule(), state, 1, {0, 3, 2'000, false}, kOthers).what, What::roll_back);
  EXPECT_EQ(decide(rule(), state, 1, {0, 0, 0, true}, kOthers).what, What::roll_back);
}

TEST(Canary, RollsBackWhatIsSlower) {
  const CanaryState state{0, 0, 0, 0};
  EXPECT_EQ(decide(rule(), state, 9'999, {200, 0, 9'000, false}, kOthers).what, What::roll_back);
  EXPECT_EQ(decide(rule(), state, 9'999, {200, 0, 2'900, false}, kOthers).what, What::advance);
  EXPECT_EQ(decide(rule(), state, 9'999, {200, 0, 900, false}, {10'000, 0, 100, false}).what, What::advance)
      << "less than a millisecond is noise";
}

TEST(Canary, CountsFromZeroWhenAServerDoes) {
  EXPECT_EQ(decide(rule(), {1, 0, 5'000, 40}, 9'999, {120, 0, 2'000, false}, kOthers).what, What::promote);
}

TEST(Canary, SeldomRollsBackWhatFailsAsOftenAsItMay) {
  std::mt19937_64 random(5);
  int rolled_back = 0;
  constexpr int kCanaries = 2'000;
  for (int i = 0; i < kCanaries; ++i) {
    Observed seen{0, 0, 2'000, false};
    for (int second = 0; second < 50 && seen.requests >= 0; ++second) {
      for (int k = 0; k < 100; ++k) ++(std::bernoulli_distribution(0.01)(random) ? seen.failures : seen.requests);
      if (decide(rule(), {0, 1'000'000'000, 0, 0}, second, seen, kOthers).what != What::roll_back) continue;
      ++rolled_back;
      break;
    }
  }
  EXPECT_LT(rolled_back, kCanaries / 20);
}

Observed predicted(int count, double mean, const char* text, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise;
  Observed out{count, 0, 2'000, false};
  for (int i = 0; i < count; ++i) {
    out.outputs["out_y"].add(mean + noise(random));
    out.outputs["out_class"].add(i % 4 == 0 ? std::string_view(text) : std::string_view("no"));
  }
  return out;
}

TEST(Canary, RollsBackWhatPredictsOtherwise) {
  auto looks = rule();
  looks.shift_max = 0.1;
  const CanaryState state{0, 0, 0, 0};
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
      rolled_back +=
          decide(looks, {0, 0, 0, 0}, 2'000, predicted(count, 0, "yes", seed), others).what == What::roll_back;
  }
  EXPECT_EQ(rolled_back, 0);
}

TEST(Canary, RollsBackWhenItsLabelsAreSurelyWorse) {
  auto guarded = rule();
  guarded.metric_drop_max = 0.02;
  const CanaryState state{0, 5'000, 0, 0};
  const auto labelled = [](int yes, int of) {
    Observed out{1'000, 0, 2'000, false, {}};
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
