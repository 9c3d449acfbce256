// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "foundation/base/json.h"
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

TEST(Gate, TheNameTellsWhichEndIsTheGoodOne) {
  for (const auto* name : {"test_auc", "auc_night", "f1", "test_recall/origin", "test_gain_logloss", "gain_rmse", "R2"})
    EXPECT_EQ(told_better(metric(name)), true) << name;
  for (const auto* name : {"test_logloss", "loss", "brier_score", "test_mape", "ece", "rmse", "test_calibration_error",
                           "wasserstein", "pinball_loss"})
    EXPECT_EQ(told_better(metric(name)), false) << name;
  for (const auto* name : {"test_said", "closslink", "received", "margin"})
    EXPECT_EQ(told_better(metric(name)), std::nullopt) << name;
  auto held = metric("margin");
  held.at_most = 2;
  EXPECT_EQ(told_better(held), false) << "the end that it is held to";
  held.at_least = 1;
  EXPECT_EQ(told_better(held), std::nullopt);
  held.better = "higher";
  EXPECT_EQ(told_better(held), true);
}

TEST(Gate, WhereNothingTellsItMustBeSaid) {
  const auto faults = [](std::string_view gate) {
    Faults out;
    check_body("gate", parse_json(gate), "gate", {}, out);
    std::vector<std::string> where;
    for (const auto& fault : out) where.push_back(fault.where);
    return where;
  };
  EXPECT_THAT(faults(R"({"model": "m", "version": 1, "against": "a", "conditions": [{"metric": "x", "betterBy": 0}]})"),
              ElementsAre("gate.conditions[0].better"));
  EXPECT_THAT(faults(R"({"model": "m", "version": 1, "against": "a", "conditions": [{"metric": "x", "betterBy": 0,
                         "better": "lower"}]})"),
              ElementsAre());
  EXPECT_THAT(
      faults(R"({"model": "m", "version": [1, 2], "conditions": [{"bytesAtMost": 1}, {"metric": "x", "atMost": 2,
                         "atLeast": 1}]})"),
      ElementsAre("gate.conditions[1].better"));
  EXPECT_THAT(faults(R"({"model": "m", "version": [1, 2], "conditions": [{"metric": "x", "atMost": 2}]})"),
              ElementsAre());
}

TEST(Gate, OfSeveralTheLargestGainIsChosenAndTheFirstNeedsNone) {
  GateBody gate;
  gate.against = "champion";
  gate.conditions = {metric("test_gain_logloss")};
  gate.conditions[0].at_least = 0;
  auto small = seen(2, 0.7, 0), large = seen(3, 0.7, 0);
  small.metrics["test_gain_logloss"] = 0.01;
  large.metrics["test_gain_logloss"] = 0.05;
  const auto champion = seen(1, 0.7, 0);
  EXPECT_EQ(judge(gate, {small, large}, &champion).version, 3);
  const auto first = seen(1, 0.7, 0);
  EXPECT_TRUE(judge(gate, {first}, nullptr).passed) << "no version holds the alias";
  EXPECT_FALSE(judge(gate, {seen(2, 0.7, 0)}, &champion).passed) << "it should have been compared";
  gate.against.clear();
  EXPECT_FALSE(judge(gate, {first}, nullptr).passed) << "nobody says that it is the first";
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
  served.latency["late"] = {900, 99};
  EXPECT_THAT(judge(latency, served, nullptr).said, HasSubstr("99 requests")) << "too few to tell";
  served.latency["late"] = {900, 100};
  EXPECT_TRUE(judge(latency, served, nullptr).held);
}

TEST(Gate, EverySliceMustHoldAndNoneBeFarFromTheBest) {
  auto version = seen(2, 0.8, 0);
  const auto slice = [](VersionSeen& of, const std::string& value, double auc, double half) {
    of.metrics["auc/origin/" + value] = auc;
    of.metrics["auc/origin/" + value + "_low"] = auc - half;
    of.metrics["auc/origin/" + value + "_high"] = auc + half;
  };
  slice(version, "SEA", 0.8, 0.02);
  slice(version, "LAX", 0.7, 0.02);
  version.metrics["auc/origins/JFK"] = 0.1;  // of another column
  auto condition = metric("auc");
  condition.slices = "origin";
  condition.at_least = 0.67;
  EXPECT_TRUE(judge(condition, version, nullptr).held);
  EXPECT_THAT(judge(condition, version, nullptr).said, HasSubstr("2 slices by origin, worst LAX 0.7"));
  condition.at_least = 0.69;
  EXPECT_THAT(judge(condition, version, nullptr).said, HasSubstr("1 fail, such as auc/origin/LAX 0.7"));
  condition.at_least.reset();
  condition.spread_at_most = 0.1;
  EXPECT_FALSE(judge(condition, version, nullptr).held) << "0.1 is what was seen, more is possible";
  condition.spread_at_most = 0.13;
  EXPECT_TRUE(judge(condition, version, nullptr).held);
  condition.spread_at_most.reset();
  condition.better_by = -0.05;
  auto champion = seen(1, 0.8, 0);
  slice(champion, "LAX", 0.79, 0.02);
  EXPECT_FALSE(judge(condition, version, &champion).held) << "the whole is as good, LAX is not";
  slice(champion, "LAX", 0.7, 0.02);
  EXPECT_TRUE(judge(condition, version, &champion).held) << "SEA had no slice before: nothing to compare with";
  condition.slices = "carrier";
  EXPECT_THAT(judge(condition, version, nullptr).said, HasSubstr("no slice by carrier"));
}

TEST(Gate, DriftBeyondChanceAndFilesThatWereNotLookedAtDoNotPass) {
  ConditionBody drift;
  drift.monitor = "m";
  drift.psi_at_most = 0.1;
  auto version = seen(1, 0.7, 0);
  EXPECT_FALSE(judge(drift, version, nullptr).held) << "not looked at";
  version.drift["m"] = {"", 0, 0, 0, "no window yet"};
  EXPECT_THAT(judge(drift, version, nullptr).said, HasSubstr("no window yet"));
  version.drift["m"] = {"distance", 0.12, 0.03, 500, ""};
  EXPECT_TRUE(judge(drift, version, nullptr).held);
  version.drift["m"].psi = 0.14;
  EXPECT_THAT(judge(drift, version, nullptr).said, HasSubstr("distance is farthest"));
  EXPECT_FALSE(judge(drift, version, nullptr).held);
  ConditionBody files;
  files.safe = true;
  EXPECT_FALSE(judge(files, version, nullptr).held);
  version.files = Finding{true, "as signed"};
  EXPECT_TRUE(judge(files, version, nullptr).held);
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
