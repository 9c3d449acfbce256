// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/experiment.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace falaj::traffic {
namespace {

using testing::HasSubstr;

ExperimentRule compared_by(std::string metric = "conversion") {
  ExperimentRule out;
  out.metric = std::move(metric);
  out.baseline = "old";
  return out;
}

Arm converted(std::string variant, std::int64_t exposures, std::int64_t yes) {
  Arm out{std::move(variant), exposures, {}};
  for (std::int64_t i = 0; i < yes; ++i) out.labels.add(1);
  return out;
}

TEST(Experiment, ComparesWithTheBaselineAndSaysSoInWords) {
  const std::vector<Arm> arms = {converted("new", 10'000, 1'500), converted("old", 10'000, 1'000),
                                 converted("same", 10'000, 1'010), converted("rare", 50, 40)};
  const auto seen = look(compared_by(), arms);
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].variant, "old");
  EXPECT_EQ(seen[0].says, "baseline");
  EXPECT_DOUBLE_EQ(seen[0].mean, 0.1);
  EXPECT_EQ(seen[1].says, "better than old");
  EXPECT_GT(seen[1].against.low, 0);
  EXPECT_LT(seen[1].against.p, 0.001);
  EXPECT_EQ(seen[2].says, "no difference shown so far");
  EXPECT_GT(seen[2].against.p, 0.2);
  EXPECT_THAT(seen[3].says, HasSubstr("too early: 50 of 100"));
  auto less = compared_by();
  less.better = "lower";
  EXPECT_EQ(look(less, arms)[1].says, "worse than old");
}

TEST(Experiment, MeansAreOfLabelledOnesOnly) {
  Arm old{"old", 100'000, {}}, fresh{"new", 100'000, {}};
  for (int i = 0; i < 500; ++i) old.labels.add(i % 2), fresh.labels.add(1 + i % 2);
  const auto seen = look(compared_by("mean"), {old, fresh});
  EXPECT_DOUBLE_EQ(seen[0].mean, 0.5);
  EXPECT_DOUBLE_EQ(seen[1].mean, 1.5);
  EXPECT_EQ(seen[1].says, "better than old");
}

// With several arms that are all the same, looked at after every hundred, one may be called different in at most one of
// twenty experiments.
TEST(Experiment, ManyArmsAndLooksErrNoMoreOftenThanIsSaid) {
  std::mt19937_64 random(5);
  std::bernoulli_distribution yes(0.2);
  int wrong = 0;
  constexpr int kTrials = 200;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<Arm> arms = {{"old", 0, {}}, {"a", 0, {}}, {"b", 0, {}}, {"c", 0, {}}};
    bool called = false;
    for (int round = 0; round < 20 && !called; ++round) {
      for (auto& arm : arms)
        for (int i = 0; i < 100; ++i) {
          ++arm.exposures;
          if (yes(random)) arm.labels.add(1);
        }
      for (const auto& seen : look(compared_by(), arms))
        called |= seen.against.bounded && seen.against.low * seen.against.high > 0;
    }
    wrong += called;
  }
  EXPECT_LE(wrong, kTrials / 20);
}

// The best of three, which are not far from each other, gets nearly everything, and no arm is ever given up.
TEST(Bandit, ConvergesToTheBestAndKeepsExploring) {
  for (const auto* better : {"higher", "lower"}) {
    auto known = compared_by();
    known.better = better;
    const double rates[] = {0.10, 0.13, 0.16};
    const std::size_t best = known.better == "higher" ? 2 : 0;
    std::mt19937_64 random(17);
    std::vector<Arm> arms = {{"a", 0, {}}, {"b", 0, {}}, {"c", 0, {}}};
    std::map<std::string, double> shares = {{"a", 1}, {"b", 1}, {"c", 1}};
    for (std::uint64_t minute = 0; minute < 200; ++minute) {
      double total = 0;
      for (const auto& [name, share] : shares) total += share;
      for (std::size_t i = 0; i < arms.size(); ++i) {
        std::bernoulli_distribution yes(rates[i]);
        const auto asked = static_cast<int>(300 * shares[arms[i].variant] / total);
        for (int n = 0; n < asked; ++n) {
          ++arms[i].exposures;
          if (yes(random)) arms[i].labels.add(1);
        }
      }
      shares = bandit_shares(known, arms, minute);
      for (const auto& [name, share] : shares) EXPECT_GE(share, kExploredPercent);
    }
    EXPECT_GE(shares[arms[best].variant], 90) << better;
  }
}

TEST(Bandit, SharesEquallyWhileAnArmIsUnknown) {
  const auto shares = bandit_shares(compared_by(), {converted("a", 10'000, 5'000), converted("b", 3, 0)}, 1);
  EXPECT_DOUBLE_EQ(shares.at("a"), shares.at("b"));
}

TEST(Bandit, MeansOfAnySize) {
  Arm a{"a", 0, {}}, b{"b", 0, {}};
  for (int i = 0; i < 200; ++i) a.labels.add(100 + i % 7), b.labels.add(110 + i % 7);
  EXPECT_GE(bandit_shares(compared_by("mean"), {a, b}, 1).at("b"), 98);
}

}  // namespace
}  // namespace falaj::traffic
