// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "foundation/sys/random.h"
#include "lifecycle/flow/gate.h"

namespace falaj::flow {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

VersionSeen seen(std::int64_t version, double auc, double half) {
  VersionSeen out;
  out.version = version;
  out.metrics = {{"auc", auc}, {"auc_low", auc - half}, {"auc_high", auc + half}, {"loss", 1 - auc}};
  out.bytes = 1000 * version;
  return out;
}
ConditionBody metric(std::string name) {
  ConditionBody out;
  out.metric = std::move(name);
  return out;
}

TEST(Gate, TheEndOfTheIntervalThatSpeaksAgainstItCounts) {
  auto condition = metric("auc");
  condition.at_least = 0.7;
  EXPECT_FALSE(judge(condition, seen(1, 0.71, 0.02), nullptr).held) << "0.69 is possible";
  EXPECT_TRUE(judge(condition, seen(1, 0.73, 0.02), nullptr).held);
  auto low = metric("loss");
  low.at_most = 0.31;
  EXPECT_TRUE(judge(low, seen(1, 0.7, 0), nullptr).held) << "without an interval the value itself";
}

TEST(Gate, ASmallGainWithinTheNoiseIsNotBetter) {
  auto condition = metric("auc");
  condition.better_by = 0;
  const auto champion = seen(1, 0.75, 0.01);
  EXPECT_FALSE(judge(condition, seen(2, 0.755, 0.01), &champion).held);
  EXPECT_TRUE(judge(condition, seen(2, 0.78, 0.01), &champion).held);
  condition.better_by = -0.02;
  EXPECT_TRUE(judge(condition, seen(2, 0.745, 0.01), &champion).held) << "surely not worse by more than 0.02";
  EXPECT_TRUE(judge(condition, seen(2, 0.1, 0.01), nullptr).held) << "there is nothing to compare with";
}

// With no difference at all, at most one in twenty candidates passes.
TEST(Gate, ChanceLetsNoMorePassThanTheConfidenceAllows) {
  sys::SimRandom random(5);
  const auto uniform = [&] { return (static_cast<double>(random.below(1u << 30)) + 0.5) / (1u << 30); };
  const auto normal = [&] { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * M_PI * uniform()); };
  auto condition = metric("auc");
  condition.better_by = 0;
  constexpr int kTries = 4000;
  constexpr double kError = 0.01;
  int passed = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto champion = seen(1, 0.8 + kError * normal(), 1.96 * kError);
    passed += judge(condition, seen(2, 0.8 + kError * normal(), 1.96 * kError), &champion).held;
  }
  EXPECT_NEAR(static_cast<double>(passed) / kTries, 0.05, 0.012);
}

TEST(Gate, LowerIsBetterForLossesAndErrors) {
  auto condition = metric("loss");
  condition.better_by = 0.01;
  const auto champion = seen(1, 0.75, 0);
  EXPECT_TRUE(judge(condition, seen(2, 0.8, 0), &champion).held);
  EXPECT_FALSE(judge(condition, seen(2, 0.7, 0), &champion).held);
  condition.better = "higher";
  EXPECT_FALSE(judge(condition, seen(2, 0.8, 0), &champion).held);
}

TEST(Gate, WhatIsNotKnownDoesNotHold) {
  auto condition = metric("f1");
  condition.at_least = 0;
  EXPECT_THAT(judge(condition, seen(1, 0.7, 0), nullptr).said, HasSubstr("has no such metric"));
  ConditionBody latency;
  latency.endpoint = "late";
  latency.p99_at_most_us = 1000;
  EXPECT_FALSE(judge(latency, seen(1, 0.7, 0), nullptr).held);
  auto served = seen(1, 0.7, 0);
  served.p99_us["late"] = 900;
  EXPECT_TRUE(judge(latency, served, nullptr).held);
}

TEST(Gate, OfSeveralTheBestThatPassesIsChosen) {
  GateBody gate;
  gate.conditions = {metric("auc"), {}};
  gate.conditions[0].at_least = 0.6;
  gate.conditions[1].bytes_at_most = 2500;
  const auto verdict = judge(gate, {seen(1, 0.7, 0), seen(2, 0.75, 0), seen(3, 0.9, 0)}, nullptr);
  EXPECT_TRUE(verdict.passed);
  EXPECT_EQ(verdict.version, 2) << "3 is better, but too large";
  EXPECT_THAT(verdict.evidence, ElementsAre(HasSubstr("auc 0.75; at least 0.6"), HasSubstr("at most")));
  EXPECT_FALSE(judge(gate, {seen(3, 0.9, 0), seen(4, 0.9, 0)}, nullptr).passed);
}

}  // namespace
}  // namespace falaj::flow
