// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/autoscale.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lifecycle/schedule/plan.h"

namespace falaj::schedule {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr Micros kStart = hours(1000);

Pool pool(std::string name, int cpus, int most, double cost, Micros warm_up = minutes(2)) {
  Pool pool;
  pool.name = std::move(name);
  pool.shape.capacity.cpu_millis = cpus * 1000;
  pool.nodes_max = most;
  pool.cost_per_hour = cost;
  pool.warm_up = warm_up;
  return pool;
}

Job waiting(std::uint64_t n, int tasks, int cpus, Micros submitted) {
  Job job;
  job.id = JobId{{0, n}};
  job.queue = "all";
  job.submitted = submitted;
  job.tasks_min = job.tasks_max = tasks;
  job.task.cpu_millis = cpus * 1000;
  job.limit = hours(2);
  job.run = {hours(1), hours(2), 1};
  return job;
}

class Scale : public testing::Test {
 protected:
  Scale() {
    state_.set_queues({{"all", "", 1, {}, {}, true}});
    Node node;
    node.name = "own";
    node.capacity.cpu_millis = 4000;
    state_.set_node(node);
    state_.add(waiting(1, 1, 4, kStart));
    for (const Start& start : plan(state_, {}, kStart).starts) state_.start(start, kStart);
  }
  std::vector<Scaling> scale_now(Micros now, ScaleRules rules = {}) {
    return scale(state_, pools_, IdleSince(state_.nodes().size(), kNever), rules, now);
  }

  State state_;
  std::vector<PoolNow> pools_{{pool("near", 8, 4, 1), {}, 0, {}, 0}, {pool("far", 8, 100, 5), {}, 0, {}, 0}};
};

TEST_F(Scale, AsksForTheCheapestPoolThatHelps) {
  state_.add(waiting(2, 4, 4, kStart));
  const auto asked = scale_now(kStart);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].pool, "near");
  EXPECT_EQ(asked[0].more, 2);
}

TEST_F(Scale, BurstsIntoADearPoolOnlyForWhatTheCheapOneCannotHold) {
  state_.add(waiting(2, 8, 4, kStart));
  state_.add(waiting(3, 2, 8, kStart));
  const auto asked = scale_now(kStart);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].pool, "near");
  EXPECT_EQ(asked[0].more, 4);
  EXPECT_EQ(asked[1].pool, "far");
  EXPECT_EQ(asked[1].more, 2);
}

TEST_F(Scale, CountsWhatIsComingAndIsSteady) {
  state_.add(waiting(2, 4, 4, kStart));
  pools_[0].coming = 2;
  EXPECT_TRUE(scale_now(kStart).empty());
}

TEST_F(Scale, StopsAtTheSpendCap) {
  state_.add(waiting(2, 8, 4, kStart));
  ScaleRules rules;
  rules.spend_max = 2 * 24;                       // two near nodes for a day
  EXPECT_TRUE(scale_now(kStart, rules).empty());  // half a gang is no use
  rules.spend_max = 4 * 24;
  EXPECT_EQ(scale_now(kStart, rules).at(0).more, 4);
}

TEST_F(Scale, DoesNotAskForWhatComesTooLate) {
  state_.add(waiting(2, 1, 4, kStart));
  pools_ = {{pool("slow", 8, 4, 1, hours(3)), {}, 0, {}, 0}};
  EXPECT_TRUE(scale_now(kStart).empty());  // job 1 is gone in two hours
}

TEST_F(Scale, WaitsWithinTheTargetAreNoReason) {
  state_.add(waiting(2, 1, 4, kStart));
  ScaleRules rules;
  rules.wait_target = hours(3);
  EXPECT_TRUE(scale_now(kStart, rules).empty());
  Job due = waiting(3, 1, 4, kStart);
  due.deadline = kStart + hours(3);
  state_.add(due);
  EXPECT_EQ(scale_now(kStart, rules).at(0).more, 1);  // but a deadline is
}

TEST_F(Scale, APoolMayHaveRulesOfItsOwn) {
  pools_.erase(pools_.begin());
  state_.add(waiting(2, 1, 4, kStart));  // job 1 is gone in two hours
  EXPECT_EQ(scale_now(kStart).size(), 1u);
  pools_[0].pool.wait_target = hours(6);
  EXPECT_TRUE(scale_now(kStart).empty());
  state_.add(waiting(3, 8, 4, kStart));  // for which nothing else has room, ever
  pools_[0].pool.spend_max = 3 * 5 * 24;
  EXPECT_TRUE(scale_now(kStart).empty());
  pools_[0].pool.spend_max = 4 * 5 * 24;
  EXPECT_EQ(scale_now(kStart).at(0).more, 4);
}

TEST_F(Scale, AJobThatNoNodeOfAPoolHoldsDoesNotKeepThem) {
  Node node = pools_[0].pool.shape;
  node.name = "p1";
  pools_[0].nodes.push_back(state_.set_node(node));
  state_.add(waiting(2, 1, 64, kStart));
  IdleSince idle(state_.nodes().size(), kNever);
  idle[static_cast<std::size_t>(pools_[0].nodes[0])] = kStart;
  const auto out = scale(state_, pools_, idle, {}, kStart + minutes(16));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].fewer.size(), 1u);
}

TEST_F(Scale, GivesBackIdleNodesButNotBelowTheLeastNorSoonAfterAChange) {
  pools_[0].pool.nodes_min = 1;
  for (const char* name : {"p1", "p2", "p3"}) {
    Node node = pools_[0].pool.shape;
    node.name = name;
    pools_[0].nodes.push_back(state_.set_node(node));
  }
  IdleSince idle(state_.nodes().size(), kNever);
  for (const int node : pools_[0].nodes) idle[static_cast<std::size_t>(node)] = kStart;
  const auto given_back = [&](Micros now) {
    const auto out = scale(state_, pools_, idle, {}, now);
    return out.empty() ? std::size_t{0} : out[0].fewer.size();
  };
  EXPECT_EQ(given_back(kStart + minutes(14)), 0u);
  EXPECT_EQ(given_back(kStart + minutes(16)), 2u);
  pools_[0].changed = kStart + minutes(14);
  EXPECT_EQ(given_back(kStart + minutes(16)), 0u);
}

}  // namespace
}  // namespace falaj::schedule
