// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/pools.h"

#include <gtest/gtest.h>

#include "lifecycle/schedule/plan.h"

namespace falaj::jobs {
namespace {

using schedule::Micros;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::int64_t kPoolGiB = std::int64_t{1} << 30;
constexpr Micros kPoolDay = hours(24), kPoolStart = 20'000 * kPoolDay;

class PoolsTest : public testing::Test {
 protected:
  PoolsTest() {
    rules.executors = {"local"};
    state.set_queues({{"default", "", 1, {}, {}, true}});
    NodePoolSpec spec;
    spec.nodes = {"c*"};
    spec.scaling = "hooks";
    spec.nodes_max = 2;
    spec.cost_per_hour = 10;
    spec.warm_up_us = 60 * kSecondUs;
    spec.shape = NodeShapeSpec{4, 16 * kPoolGiB, 0, 0, ""};
    spec.hooks = PoolHooksSpec{"up", "down", 60 * kSecondUs};
    rules.pools.emplace_back("cloud", spec);
  }
  NodePoolSpec& cloud() { return rules.pools[0].second; }
  void node(const std::string& name, int cpus, bool up = true) {
    execute::Node made;
    made.name = name;
    made.cpu_millis = cpus * 1000;
    made.memory_bytes = 16 * kPoolGiB;
    made.up = up;
    state.set_node(to_node(made, "local", rules));
  }
  void waits(std::uint64_t number, int cpus, Micros limit = hours(2)) {
    schedule::Job job;
    job.id = {{0, number}};
    job.queue = "default";
    job.submitted = kPoolStart;
    job.task = {cpus * 1000, kPoolGiB, 0, 0};
    job.where.labels[std::string(kExecutorLabel)] = "local";
    job.limit = limit;
    job.run = {minutes(10), limit, 1};
    if (cloud().burst) job.where.labels_refused[std::string(kBurstLabel)] = "yes";
    state.add(job);
  }
  std::vector<std::string> events() {
    std::vector<std::string> out;
    for (const auto& change : pools.take_changes())
      for (const auto& event : change.events) out.push_back(event.what);
    return out;
  }

  Metrics metrics;
  Rules rules;
  schedule::State state;
  Pools pools{metrics};
};

TEST_F(PoolsTest, NodesAreAskedForOnceAndSeenToCome) {
  EXPECT_TRUE(pools.look(state, rules, kPoolStart).empty());
  waits(1, 4);
  const auto orders = pools.look(state, rules, kPoolStart + seconds(10));
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_TRUE(orders[0].up);
  EXPECT_EQ(orders[0].nodes, 1);
  EXPECT_EQ(orders[0].program, "up");
  EXPECT_TRUE(pools.look(state, rules, kPoolStart + seconds(20)).empty()) << "it is under way";
  pools.answered({orders[0], ""}, kPoolStart + seconds(25));
  EXPECT_TRUE(pools.look(state, rules, kPoolStart + seconds(30)).empty()) << "it is coming";
  node("c1", 4);
  pools.look(state, rules, kPoolStart + seconds(40));
  EXPECT_EQ(events(), (std::vector<std::string>{"asked", "came"}));
  EXPECT_EQ(pools.views(state, rules)[0].up, 1);
  EXPECT_EQ(pools.views(state, rules)[0].coming, 0);
}

TEST_F(PoolsTest, WhatFailedIsTriedAgainLaterAndLater) {
  waits(1, 4);
  Micros at = kPoolStart;
  for (const auto wait : {seconds(30), seconds(60), seconds(120)}) {
    const auto orders = pools.look(state, rules, at);
    ASSERT_EQ(orders.size(), 1u);
    pools.answered({orders[0], "no money"}, at);
    EXPECT_EQ(pools.views(state, rules)[0].coming, 0);
    EXPECT_TRUE(pools.look(state, rules, at + wait - seconds(1)).empty());
    at += wait;
  }
}

TEST_F(PoolsTest, WhatDoesNotComeIsGivenUp) {
  waits(1, 4);
  pools.answered({pools.look(state, rules, kPoolStart).at(0), ""}, kPoolStart);
  EXPECT_TRUE(pools.look(state, rules, kPoolStart + minutes(4)).empty());
  pools.look(state, rules, kPoolStart + minutes(4) + seconds(1));
  EXPECT_EQ(events(), (std::vector<std::string>{"asked", "missing"}));
}

TEST_F(PoolsTest, IdleNodesGetNothingNewWhileTheyAreGivenBack) {
  node("c1", 4);
  EXPECT_TRUE(pools.look(state, rules, kPoolStart).empty());
  const auto later = kPoolStart + minutes(15);
  const auto orders = pools.look(state, rules, later);
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_FALSE(orders[0].up);
  EXPECT_EQ(orders[0].names, std::vector<std::string>{"c1"});
  EXPECT_TRUE(pools.is_leaving("c1"));
  pools.answered({orders[0], ""}, later);
  EXPECT_TRUE(pools.is_leaving("c1")) << "until it is gone";
  pools.left("c1");
  EXPECT_FALSE(pools.is_leaving("c1"));
}

TEST_F(PoolsTest, NodesOfAPoolThatIsNoMoreAreUsedAgain) {
  node("c1", 4);
  pools.look(state, rules, kPoolStart);
  ASSERT_EQ(pools.look(state, rules, kPoolStart + minutes(15)).size(), 1u);
  EXPECT_TRUE(pools.is_leaving("c1"));
  rules.pools.clear();
  pools.keep_only(rules);
  EXPECT_FALSE(pools.is_leaving("c1"));
}

TEST_F(PoolsTest, SpendIsCountedByTheDayAndSurvivesARestart) {
  node("c1", 4);
  cloud().idle_after_us = kYearUs;
  pools.look(state, rules, kPoolStart);
  pools.look(state, rules, kPoolStart + hours(3));
  EXPECT_NEAR(pools.views(state, rules)[0].spent, 30, 1e-9);
  std::map<std::string, PoolLife> stored;
  for (const auto& change : pools.take_changes())
    stored[change.pool] = decode<PoolLife>(parse_json(json::serialize(encode(change.life))), "a pool");
  Pools again(metrics);
  again.load(stored);
  again.look(state, rules, kPoolStart + hours(4));
  EXPECT_NEAR(again.views(state, rules)[0].spent, 40, 1e-9);
  again.look(state, rules, kPoolStart + kPoolDay + hours(1));
  EXPECT_LT(again.views(state, rules)[0].spent, 1e-9) << "a new day";
}

TEST_F(PoolsTest, NothingIsAskedForBeyondTheSpendOfADay) {
  waits(1, 4);
  cloud().spend_max = 200;  // a node costs 240 a day
  EXPECT_TRUE(pools.look(state, rules, kPoolStart).empty());
  cloud().spend_max = 300;
  EXPECT_EQ(pools.look(state, rules, kPoolStart + seconds(10)).size(), 1u);
}

TEST_F(PoolsTest, OnlyJobsInNeedMayUseABurstPool) {
  cloud().burst = true;
  cloud().wait_target_us = 3600 * kSecondUs;
  node("n1", 4);
  node("c1", 4);
  waits(1, 4, minutes(30));
  for (const auto& start : schedule::plan(state, {}, kPoolStart).starts) {
    EXPECT_EQ(state.nodes()[static_cast<std::size_t>(start.placement.at(0).node)].name, "n1");
    state.start(start, kPoolStart);
  }
  waits(2, 4, minutes(45));  // half an hour is not too long for it
  EXPECT_TRUE(schedule::plan(state, {}, kPoolStart).starts.empty());
  EXPECT_TRUE(pools.in_need(state, rules, kPoolStart).empty());
  cloud().wait_target_us = 600 * kSecondUs;
  EXPECT_EQ(pools.in_need(state, rules, kPoolStart), (std::vector<schedule::JobId>{{{0, 2}}}));
}

}  // namespace
}  // namespace falaj::jobs
