// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/loop/decide.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "foundation/base/testing.h"

namespace falaj::loop {
namespace {

PolicySpec policy() {
  PolicySpec out;
  out.on = {"drift"};
  out.blocked_by = {"quality"};
  out.pipeline = "retrain";
  out.endpoint = "late";
  out.settle_us = 10;
  out.cool_down_us = 100;
  out.budget = {3, 1000};
  out.tries_max = 5;
  return out;
}

// A policy and the world it acts in, by hand.
struct World {
  PolicySpec spec = policy();
  State state;
  Facts facts;
  std::vector<Record> records;  // of the last look
  std::string cancelled;

  void fire(std::int64_t number, const char* rule) { facts.firing.push_back({number, rule, "so it is", facts.now_us}); }
  void end(std::int64_t number) {
    std::erase_if(facts.firing, [&](const Firing& f) { return f.number == number; });
  }
  void look(std::int64_t at_us) {
    facts.now_us = at_us;
    auto decision = decide("keep-good", spec, state, facts);
    state = decision.state;
    records = decision.records;
    cancelled = decision.cancel;
    if (!state.key.empty() && state.run.empty()) {  // what Loop does
      state.run = "run" + std::to_string(state.tries);
      facts.run_phase = "running";
    }
    if (state.run.empty()) facts.run_phase.clear();
  }
  std::string said() const {
    std::string out;
    for (const auto& record : records) out += (out.empty() ? "" : " ") + record.what;
    return out;
  }
};

TEST(Loop, BeginsOneRunWhenAnAlertHasSettled) {
  World world;
  world.look(0);
  EXPECT_EQ(world.said(), "");
  world.fire(1, "drift");
  world.look(5);
  EXPECT_EQ(world.said(), "");
  world.look(10);
  EXPECT_EQ(world.said(), "begun");
  EXPECT_EQ(world.state.key, "policy/keep-good/1");
  world.look(11);
  EXPECT_EQ(world.said(), "");
  world.facts.run_phase = "succeeded";
  world.look(50);
  EXPECT_EQ(world.said(), "succeeded");
  world.look(500);  // the same alert fires still, and was seen to
  EXPECT_EQ(world.said(), "");
  world.fire(2, "drift");
  world.look(600);
  EXPECT_EQ(world.said(), "begun");
}

TEST(Loop, WhatAGateRefusedIsNoSuccess) {
  World world;
  world.spec.tries_max = 2;
  world.fire(1, "drift");
  world.look(10);
  world.facts.run_phase = "refused";
  world.facts.run_why = "good-enough: auc 0.6; not at least 0.7";
  world.look(50);
  EXPECT_EQ(world.said(), "refused waits");
  EXPECT_EQ(world.state.failures, 1);
  world.look(150);
  EXPECT_EQ(world.said(), "begun") << "the alert is not answered";
  world.facts.run_phase = "refused";
  world.look(200);
  EXPECT_EQ(world.said(), "refused stopped");
}

TEST(Loop, SaysWhatItWouldDoAndDoesNot) {
  World world;
  const auto explained = [&](std::int64_t at_us) {
    world.facts.now_us = at_us;
    return explain("keep-good", world.spec, world.state, world.facts);
  };
  EXPECT_TRUE(explained(0).starts_with("nothing: no alert"));
  world.fire(1, "drift");
  EXPECT_TRUE(explained(5).starts_with("looks again at"));
  EXPECT_EQ(explained(10), "would begin: pipeline retrain, as drift: so it is");
  EXPECT_TRUE(world.state.key.empty());
  world.look(10);
  EXPECT_EQ(explained(11), "its run is under way");
  world.fire(2, "quality");
  EXPECT_TRUE(explained(12).starts_with("blocked: data are broken"));
  world.look(12);
  EXPECT_EQ(explained(13), "nothing while alert 2 says that data are broken");
  world.state.stopped = "enough";
  EXPECT_EQ(explained(14), "nothing until falaj loop resume keep-good: enough");
}

TEST(Loop, LearnsNothingFromBrokenData) {
  World world;
  world.fire(1, "drift");
  world.fire(2, "quality");
  world.look(100);
  EXPECT_EQ(world.said(), "blocked waits");
  world.look(200);
  EXPECT_EQ(world.said(), "");  // put down once
  world.end(2);
  world.look(300);
  EXPECT_EQ(world.said(), "unblocked");  // and not begun: what fires now may come from what was broken
  world.look(305);
  EXPECT_EQ(world.said(), "");
  world.end(1);
  world.look(400);
  EXPECT_EQ(world.said(), "");
}

TEST(Loop, BrokenDataStopARunAndTakeACanaryBack) {
  World world;
  world.fire(1, "drift");
  world.look(100);
  EXPECT_EQ(world.said(), "begun");
  world.facts.before = 7;
  world.fire(2, "quality");
  world.look(110);
  EXPECT_EQ(world.said(), "blocked rolled_back");
  EXPECT_EQ(world.cancelled, "run1");
  EXPECT_EQ(world.state.go_back, 7);
  world.look(111);
  EXPECT_EQ(world.cancelled, "run1") << "asked again as long as it was not heard";
  world.facts.run_phase = "stopping";
  world.look(112);
  EXPECT_EQ(world.cancelled, "") << "it was heard";
  EXPECT_EQ(world.state.run, "run1");
  world.facts.run_phase = "cancelled";
  world.look(120);
  EXPECT_EQ(world.said(), "cancelled waits");
  EXPECT_EQ(world.state.failures, 0);
}

TEST(Loop, StopsAtItsBudgetAndCallsAPerson) {
  World world;
  world.fire(1, "drift");
  std::vector<std::int64_t> begun;
  for (std::int64_t at = 0; at < 5000; at += 5) {
    world.look(at);
    if (world.said().find("begun") != std::string::npos) begun.push_back(at);
    if (!world.state.run.empty()) {
      world.facts.run_phase = "failed";
      world.facts.run_why = "the gate said no";
    }
  }
  EXPECT_EQ(begun.size(), 3u);
  EXPECT_NE(world.state.stopped, "");
  let_go_on(world.state);
  world.look(5000);
  EXPECT_EQ(world.said(), "begun");
}

TEST(Loop, StopsAfterFailuresInARow) {
  World world;
  world.spec.tries_max = 2;
  world.spec.budget.runs = 100;
  world.fire(1, "drift");
  int begun = 0;
  for (std::int64_t at = 0; at < 5000; at += 5) {
    world.look(at);
    begun += world.said().find("begun") != std::string::npos ? 1 : 0;
    if (!world.state.run.empty()) world.facts.run_phase = "failed";
  }
  EXPECT_EQ(begun, 2);
  EXPECT_NE(world.state.stopped, "");
}

TEST(Loop, ADryRunOnlySays) {
  World world;
  world.spec.dry_run = true;
  world.fire(1, "drift");
  world.look(100);
  EXPECT_EQ(world.said(), "would_begin");
  EXPECT_EQ(world.state.key, "");
  world.facts.before = 3;
  world.fire(2, "quality");
  world.look(200);
  EXPECT_EQ(world.said(), "blocked would_roll_back");
  EXPECT_EQ(world.state.go_back, 0);
}

// Whatever happens in whatever order: one run at a time, none on broken data, none before its time, none beyond the
// budget, and a look that is repeated, as after a kill, does nothing twice.
TEST(Loop, KeepsItsRulesInRandomWorlds) {
  const int worlds = repeats(200);
  for (int seed = 0; seed < worlds; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed) + 1);
    World world;
    world.spec.settle_us = static_cast<std::int64_t>(random() % 30);
    world.spec.cool_down_us = static_cast<std::int64_t>(random() % 200);
    world.spec.budget = {1 + static_cast<std::int64_t>(random() % 4), 100 + static_cast<std::int64_t>(random() % 900)};
    std::int64_t number = 0, last_end = -1'000'000;
    std::vector<std::int64_t> begun;
    for (std::int64_t at = 0; at < 3000; at += 1 + static_cast<std::int64_t>(random() % 20)) {
      if (random() % 20 == 0) world.facts.now_us = at, world.fire(++number, random() % 3 == 0 ? "quality" : "drift");
      if (!world.facts.firing.empty() && random() % 15 == 0)
        world.facts.firing.erase(world.facts.firing.begin() +
                                 static_cast<std::ptrdiff_t>(random() % world.facts.firing.size()));
      const bool had_run = !world.state.run.empty();
      if (had_run && random() % 6 == 0) world.facts.run_phase = random() % 2 == 0 ? "failed" : "succeeded";
      if (had_run && world.facts.run_phase != "running") last_end = at;
      const auto before = world.state;
      const auto facts = [&] {
        auto out = world.facts;
        out.now_us = at;
        return out;
      }();
      world.look(at);
      const bool broken =
          std::any_of(facts.firing.begin(), facts.firing.end(), [](const Firing& f) { return f.rule == "quality"; });
      if (world.said().find("begun") != std::string::npos) {
        ASSERT_FALSE(broken) << seed;
        ASSERT_TRUE(before.run.empty() || facts.run_phase != "running") << seed;
        ASSERT_GE(at, last_end + world.spec.cool_down_us) << seed;
        begun.push_back(at);
        const auto within = std::count_if(begun.begin(), begun.end(),
                                          [&](std::int64_t b) { return b > at - world.spec.budget.per_us; });
        ASSERT_LE(within, world.spec.budget.runs) << seed;
      }
      const auto again = decide("keep-good", world.spec, world.state, world.facts);
      ASSERT_TRUE(again.records.empty()) << seed << ": " << again.records[0].what;
      ASSERT_EQ(again.state, world.state) << seed;
      if (!world.state.stopped.empty() && random() % 10 == 0) {
        let_go_on(world.state);
        begun.clear();
        last_end = -1'000'000;
      }
    }
  }
}

}  // namespace
}  // namespace falaj::loop
