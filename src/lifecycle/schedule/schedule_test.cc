// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <random>

#include "foundation/base/error.h"
#include "foundation/base/testing.h"
#include "lifecycle/schedule/fit.h"
#include "lifecycle/schedule/pending_list.h"
#include "lifecycle/schedule/plan.h"
#include "lifecycle/schedule/predict.h"
#include "lifecycle/schedule/simulate.h"

namespace falaj::schedule {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr Micros kNow = hours(1000);

const StateRules kPatient{Order::submitted, hours(1000), hours(24)};

JobId id(std::uint64_t n) { return JobId{{0, n}}; }

Node node(std::string name, int cpus, int gpus = 0, std::string type = "a100", std::string zone = "eu") {
  Node node;
  node.name = std::move(name);
  node.zone = std::move(zone);
  node.capacity = {cpus * 1000, 64 * kGiB, 0, 0};
  for (int i = 0; i < gpus; ++i) node.devices.push_back({std::to_string(i), type});
  return node;
}

Job job(std::uint64_t n, int tasks, int cpus, Micros limit = hours(1), std::string queue = "all") {
  Job job;
  job.id = id(n);
  job.queue = std::move(queue);
  job.submitted = kNow - seconds(100) + seconds(n);
  job.tasks_min = job.tasks_max = tasks;
  job.task.cpu_millis = cpus * 1000;
  job.limit = limit;
  job.run = {limit, limit, 0};
  return job;
}

State cluster(std::vector<Node> nodes, std::vector<Queue> queues = {{"all", "", 1, {}, {}, true}},
              StateRules rules = {Order::submitted, Micros{0}, hours(24)}) {
  State state(rules);
  for (Node& n : nodes) state.set_node(std::move(n));
  state.set_queues(std::move(queues));
  return state;
}

std::vector<std::uint64_t> started(const Plan& plan) {
  std::vector<std::uint64_t> ids;
  for (const Start& start : plan.starts) ids.push_back(start.job.bits.low);
  return ids;
}

void carry_out(State& state, const Plan& plan, Micros now) {
  for (const JobId kept : plan.keeps) state.keep(kept);
  for (const Start& start : plan.starts) state.start(start, now);
  state.note_promises(plan);
}

const Wait& wait_of(const Plan& plan, std::uint64_t n) {
  const auto found = std::ranges::find(plan.waits, id(n), &Wait::job);
  EXPECT_NE(found, plan.waits.end()) << "job " << n << " does not wait";
  return *found;
}

// So many preemptible jobs that run in a queue, from 1 on.
void borrow(State& state, std::uint64_t jobs, int cpus, const std::string& queue = "guest") {
  for (std::uint64_t n = 1; n <= jobs; ++n) {
    Job guest = job(n, 1, cpus, hours(50), queue);
    guest.preemptible = true;
    state.add(guest);
  }
  carry_out(state, plan(state, {}, kNow), kNow);
  ASSERT_EQ(state.running_count(), jobs);
}

using Ids = std::vector<std::uint64_t>;

// Bounds on processors, and on GPUs; of the rest as much as there is.
Amounts bound(int cpus, std::int64_t gpus = kUnbounded) {
  return {cpus * 1000, kUnbounded, kUnbounded, gpus == kUnbounded ? gpus : gpus * 1000};
}

TEST(FreeTree, FindsTheNodeThatALookAtEachWouldFind) {
  std::mt19937_64 random(7);
  FreeTree tree;
  std::vector<Free> plain;
  for (int round = 0; round < repeats(20'000); ++round) {
    if (plain.empty() || random() % 50 == 0) {
      plain.emplace_back();
      tree.resize(plain.size());
      tree.set(plain.size() - 1, plain.back());
    }
    Free free{static_cast<std::int64_t>(random() % 8), static_cast<std::int64_t>(random() % 8), 8, {}};
    for (auto& millis : free.device) millis = static_cast<std::int16_t>(random() % 3 == 0 ? 1000 : random() % 2 * 500);
    const std::size_t at = random() % plain.size();
    plain[at] = free;
    tree.set(at, free);
    const std::int64_t cpu = static_cast<std::int64_t>(random() % 8), memory = static_cast<std::int64_t>(random() % 8);
    const int gpu = static_cast<int>(random() % 3 * 500);
    const std::size_t from = random() % (plain.size() + 1);
    const auto holds = [&](const Free& f) {
      const int most = std::ranges::count(f.device, 1000) > 0
                           ? 1000 * static_cast<int>(std::ranges::count(f.device, 1000))
                           : *std::ranges::max_element(f.device);
      return f.cpu >= cpu && f.memory >= memory && most >= gpu;
    };
    std::size_t expected = from;
    while (expected < plain.size() && !holds(plain[expected])) ++expected;
    ASSERT_EQ(tree.next(from, cpu, memory, 0, gpu), expected);
  }
}

TEST(PendingList, KeepsTheOrderOfASortedMap) {
  std::mt19937_64 random(9);
  PendingList list;
  std::map<OrderKey, int> plain;
  for (int round = 0; round < repeats(20'000); ++round) {
    const bool grows = round / 2000 % 2 == 0;  // by turns, so that runs split and join
    if (plain.empty() || random() % 10 < (grows ? 8U : 2U)) {
      const OrderKey key{static_cast<std::int64_t>(random() % 3), static_cast<double>(random() % 50),
                         Micros(random() % 9), id(static_cast<std::uint64_t>(round))};
      plain.emplace(key, round);
      list.insert({key, nullptr, Micros{0}, round, 1});
    } else {
      const auto gone = std::next(plain.begin(), static_cast<std::ptrdiff_t>(random() % plain.size()));
      list.erase(gone->first);
      plain.erase(gone);
    }
    ASSERT_EQ(list.size(), plain.size());
    if (round % 100 != 0) continue;
    ASSERT_TRUE(std::ranges::equal(list, plain, {}, &Waiting::ask, [](const auto& entry) { return entry.second; }));
  }
}

TEST(Plan, StartsAGangWholeOrNotAtAll) {
  State state = cluster({node("a", 4), node("b", 4)});
  state.add(job(1, 9, 1));
  EXPECT_TRUE(plan(state, {}, kNow).starts.empty());
  state.add(job(2, 8, 1));
  EXPECT_EQ(started(plan(state, {}, kNow)), Ids{2});
}

TEST(Plan, BackfillsOnlyWhatDelaysNoPromise) {
  State state = cluster({node("a", 10)});
  state.add(job(1, 6, 1, hours(2)));
  carry_out(state, plan(state, {}, kNow), kNow);
  state.add(job(2, 8, 1, hours(1)));  // the head: promised the end of job 1
  state.add(job(3, 4, 1, hours(3)));  // would delay it
  state.add(job(4, 2, 1, hours(3)));  // leaves it room
  state.add(job(5, 2, 1, hours(1)));  // is gone by then
  Policy policy;
  policy.promises = 1;
  const Plan made = plan(state, policy, kNow);
  EXPECT_EQ(started(made), (Ids{4, 5}));
  EXPECT_EQ(wait_of(made, 2).reserved, kNow + hours(2));
  EXPECT_EQ(wait_of(made, 3).reason, Reason::resources);
  ASSERT_EQ(made.promised.size(), 1u);
  EXPECT_TRUE(made.promised[0].firm);
}

TEST(Plan, FifoLooksNoFurtherThanTheHead) {
  State state = cluster({node("a", 4)});
  state.add(job(1, 5, 1));
  state.add(job(2, 1, 1));
  Policy policy;
  policy.backfill = false;
  policy.promises = 0;
  EXPECT_TRUE(plan(state, policy, kNow).starts.empty());
}

TEST(Plan, QueuesShareByWeight) {
  State state = cluster({node("a", 40)}, {{"one", "", 1, {}, {}, true}, {"three", "", 3, {}, {}, true}}, kPatient);
  for (std::uint64_t i = 1; i <= 60; ++i) state.add(job(i, 1, 1, hours(1), i % 2 == 0 ? "one" : "three"));
  int three = 0;
  const Plan made = plan(state, {}, kNow);
  for (const std::uint64_t n : started(made)) three += n % 2 == 1 ? 1 : 0;
  EXPECT_EQ(made.starts.size(), 40u);
  EXPECT_EQ(three, 30);
}

TEST(Plan, WhatAQueueUsedLatelyCountsAgainstIt) {
  State state = cluster({node("a", 10)}, {{"busy", "", 1, {}, {}, true}, {"idle", "", 1, {}, {}, true}}, kPatient);
  state.add(job(1, 10, 1, hours(10), "busy"));
  carry_out(state, plan(state, {}, kNow), kNow);
  state.remove(id(1), kNow + hours(10));
  for (std::uint64_t i = 2; i <= 21; ++i) state.add(job(i, 1, 1, hours(1), i % 2 == 0 ? "busy" : "idle"));
  const Plan made = plan(state, {}, kNow + hours(10));
  const auto ids = started(made);
  EXPECT_GT(std::ranges::count_if(ids, [](std::uint64_t n) { return n % 2 == 1; }), 5);
}

TEST(Plan, NeverExceedsALimitOfAQueueOrOneAboveIt) {
  State state = cluster({node("a", 40)}, {{"team", "", 1, {}, bound(6), true}, {"team.x", "team", 1, {}, {}, true}});
  for (std::uint64_t i = 1; i <= 4; ++i) state.add(job(i, 1, 2, hours(1), "team.x"));
  const Plan made = plan(state, {}, kNow);
  EXPECT_EQ(started(made), (Ids{1, 2, 3}));
  EXPECT_EQ(wait_of(made, 4).reason, Reason::limit);
  EXPECT_EQ(wait_of(made, 4).detail, "team");
}

TEST(Plan, TakesBackWhatAQueueIsGuaranteed) {
  State state = cluster({node("a", 10)}, {{"owner", "", 1, bound(6, 0), {}, true}, {"guest", "", 1, {}, {}, true}});
  for (std::uint64_t i = 1; i <= 5; ++i) {
    Job guest = job(i, 1, 2, hours(5), "guest");
    guest.preemptible = true;
    state.add(guest);
  }
  carry_out(state, plan(state, {}, kNow), kNow);
  for (std::uint64_t i = 1; i <= 5; ++i) state.checkpointed(id(i), kNow + minutes(i));
  state.add(job(9, 1, 4, hours(1), "owner"));
  const Plan made = plan(state, {}, kNow + hours(1));
  ASSERT_EQ(made.preempts.size(), 2u);  // the two that lose least: those that saved their work last
  EXPECT_EQ(made.preempts[0].job, id(5));
  EXPECT_EQ(made.preempts[1].job, id(4));
  EXPECT_EQ(made.preempts[0].lost, hours(1) - minutes(5));
  EXPECT_EQ(wait_of(made, 9).reason, Reason::displacing);
}

// As a tenant's queue is a part of one that the platform guarantees something to.
TEST(Plan, TakesBackForQueuesBelowTheOneThatIsGuaranteed) {
  State state = cluster({node("a", 10)}, {{"research", "", 1, bound(6, 0), {}, true},
                                          {"vision", "research", 1, {}, {}, true},
                                          {"guest", "", 1, {}, {}, true}});
  borrow(state, 5, 2);
  state.add(job(11, 1, 8, hours(1), "vision"));  // more than is guaranteed
  Job held = job(12, 1, 2, hours(1), "vision");
  held.held = "waits for job 7";
  Job later = job(13, 1, 2, hours(1), "vision");
  later.not_before = kNow + hours(9);
  Job elsewhere = job(14, 1, 2, hours(1), "vision");
  elsewhere.where.zones = {"us"};  // no victim helps it
  for (const Job& j : {held, later, elsewhere}) state.add(j);
  for (std::uint64_t n = 15; n <= 18; ++n) state.add(job(n, 1, 2, hours(1), "vision"));
  const Plan made = plan(state, {}, kNow + hours(1));
  EXPECT_EQ(made.preempts.size(), 3u);  // six processors, and not more
  for (const std::uint64_t n : {15, 16, 17}) EXPECT_EQ(wait_of(made, n).reason, Reason::displacing) << n;
  EXPECT_EQ(wait_of(made, 18).reason, Reason::resources);
}

TEST(Plan, TakesBackFromNeighboursInTheSameQueueEvenAtItsLimit) {
  State state = cluster({node("a", 20)}, {{"research", "", 1, {}, bound(8), true},
                                          {"vision", "research", 1, bound(4, 0), {}, true},
                                          {"speech", "research", 1, bound(4, 0), {}, true},
                                          {"guest", "", 1, {}, {}, true}});
  borrow(state, 4, 2, "speech");
  state.add(job(9, 1, 4, hours(1), "vision"));
  state.add(job(10, 1, 4, hours(1), "vision"));
  const Plan made = plan(state, {}, kNow + hours(1));
  EXPECT_EQ(made.preempts.size(), 2u);  // speech keeps its four
  EXPECT_EQ(wait_of(made, 9).reason, Reason::displacing);
  EXPECT_EQ(wait_of(made, 10).reason, Reason::limit);
}

TEST(Plan, TakesNoMoreThanWasBorrowed) {
  State state =
      cluster({node("a", 10)}, {{"owner", "", 1, bound(10, 0), {}, true}, {"guest", "", 1, bound(6, 0), {}, true}});
  borrow(state, 5, 2);
  state.add(job(9, 1, 8, hours(1), "owner"));
  EXPECT_TRUE(plan(state, {}, kNow + hours(1)).preempts.empty());
  state.remove(id(9), kNow + hours(1));
  state.add(job(10, 1, 4, hours(1), "owner"));
  EXPECT_EQ(plan(state, {}, kNow + hours(1)).preempts.size(), 2u);
}

TEST(Plan, ALimitOfNoGpusKeepsAQueueOffThem) {
  State state = cluster({node("a", 10, 2)}, {{"all", "", 1, {}, bound(10, 0), true}});
  Job gpu = job(1, 1, 1);
  gpu.task.gpu_millis = 1000;
  state.add(gpu);
  state.add(job(2, 1, 1));
  const Plan made = plan(state, {}, kNow);
  EXPECT_EQ(started(made), Ids{2});
  EXPECT_EQ(wait_of(made, 1).reason, Reason::limit);
  EXPECT_THROW(state.start({id(1), {{0, 1, {0}}}, false}, kNow), Error);
}

TEST(Plan, AGuaranteeOfProcessorsIsNoneOfGpus) {
  State state = cluster({node("a", 16, 2)}, {{"owner", "", 1, bound(16, 0), {}, true},
                                             {"other", "", 1, bound(8, 2), {}, true},
                                             {"guest", "", 1, {}, {}, true}});
  const auto gpu = [](std::uint64_t n, const std::string& queue) {
    Job made = job(n, 1, 1, hours(5), queue);
    made.task.gpu_millis = 1000;
    made.preemptible = true;
    return made;
  };
  for (const std::uint64_t n : {1, 2}) state.add(gpu(n, "guest"));
  carry_out(state, plan(state, {}, kNow), kNow);
  state.add(gpu(3, "owner"));
  EXPECT_TRUE(plan(state, {}, kNow + hours(1)).preempts.empty());  // they were never guaranteed to it
  for (const std::uint64_t n : {1, 2}) state.remove(id(n), kNow + hours(1));
  state.add(gpu(4, "owner"));
  carry_out(state, plan(state, {}, kNow + hours(1)), kNow + hours(1));
  ASSERT_NE(state.running(id(4)), nullptr);  // now it borrows them
  state.add(gpu(5, "other"));
  EXPECT_EQ(plan(state, {}, kNow + hours(2)).preempts.size(), 1u);
}

TEST(Plan, AGuaranteeOfGpusBringsTheProcessorsBesideThem) {
  State state = cluster(
      {node("a", 8, 2)},
      {{"owner", "", 1, Amounts{kUnbounded, kUnbounded, kUnbounded, 2000}, {}, true}, {"guest", "", 1, {}, {}, true}});
  borrow(state, 4, 2);
  state.add(job(8, 1, 2, hours(1), "owner"));  // asks for nothing that is guaranteed
  EXPECT_TRUE(plan(state, {}, kNow + hours(1)).preempts.empty());
  Job gpu = job(9, 1, 2, hours(1), "owner");
  gpu.task.gpu_millis = 1000;
  state.add(gpu);
  EXPECT_EQ(plan(state, {}, kNow + hours(1)).preempts.size(), 1u);
}

// Urgent jobs stop a job so often at most. What is guaranteed is taken back all the same, but ever more rarely.
TEST(Plan, WhatWasDisplacedOftenIsLeftAloneForEverLonger) {
  for (const int times : {2, 3, 4, 5}) {
    State state = cluster({node("a", 4)}, {{"owner", "", 1, bound(4, 0), {}, true}, {"guest", "", 1, {}, {}, true}});
    Job low = job(1, 1, 4, hours(100), "guest");
    low.preemptible = true;
    low.preemptions = times;
    low.preempted = kNow;
    state.add(low);
    carry_out(state, plan(state, {}, kNow), kNow);
    state.add(job(2, 1, 4, hours(1), "owner"));
    const Micros alone = minutes(10) * (times < 3 ? 1 : 1 << (times - 2));
    const Plan early = plan(state, {}, kNow + alone - seconds(1));
    EXPECT_TRUE(early.preempts.empty()) << times;
    EXPECT_EQ(early.look_again, kNow + alone) << times;
    EXPECT_EQ(plan(state, {}, kNow + alone).preempts.size(), 1u) << times;
  }
}

TEST(Plan, UrgentJobsDisplaceTheFewestThatLoseLeast) {
  State state = cluster({node("a", 4), node("b", 4)});
  for (std::uint64_t i = 1; i <= 4; ++i) {
    Job low = job(i, 1, 2, hours(5));
    low.preemptible = i != 1;
    low.grace = seconds(30);
    state.add(low);
  }
  carry_out(state, plan(state, {}, kNow), kNow);
  Job urgent = job(9, 1, 4, hours(1));
  urgent.preempts = true;
  urgent.priority = 10;
  state.add(urgent);
  const Plan made = plan(state, {}, kNow + hours(1));
  ASSERT_EQ(made.preempts.size(), 2u);  // both on node b: job 1 on node a may not be displaced
  EXPECT_EQ(made.preempts[0].job, id(3));
  EXPECT_EQ(made.preempts[1].job, id(4));
  EXPECT_EQ(made.preempts[0].in_favour_of, id(9));
  for (const Preempt& preempt : made.preempts) state.stopping(preempt.job, kNow + hours(1) + seconds(30));
  const Plan next = plan(state, {}, kNow + hours(1) + seconds(1));
  EXPECT_TRUE(next.preempts.empty());  // what is stopping is enough
  for (const std::uint64_t n : {3, 4}) {
    Job again = *&state.running(id(n))->job;
    again.preemptions = 1;
    again.preempted = kNow + hours(1) + seconds(20);
    state.requeue(again, kNow + hours(1) + seconds(20));
  }
  const Plan last = plan(state, {}, kNow + hours(1) + seconds(21));
  EXPECT_EQ(started(last), Ids{9});
}

TEST(Plan, LeavesOneThatWasDisplacedAloneForAWhile) {
  State state = cluster({node("a", 4)});
  Job low = job(1, 1, 4, hours(5));
  low.preemptible = true;
  low.preemptions = 1;
  low.preempted = kNow - minutes(5);
  state.add(low);
  carry_out(state, plan(state, {}, kNow), kNow);
  Job urgent = job(2, 1, 4, hours(1));
  urgent.preempts = true;
  urgent.priority = 10;
  state.add(urgent);
  EXPECT_TRUE(plan(state, {}, kNow + minutes(4)).preempts.empty());
  EXPECT_EQ(plan(state, {}, kNow + minutes(11)).preempts.size(), 1u);
}

TEST(Plan, SharesOfADeviceFillOneDeviceBeforeTheNext) {
  State state = cluster({node("a", 16, 2)});
  for (std::uint64_t i = 1; i <= 3; ++i) {
    Job share = job(i, 1, 1);
    share.task.gpu_millis = 500;
    state.add(share);
  }
  Job whole = job(4, 1, 1);
  whole.task.gpu_millis = 1000;
  state.add(whole);
  const Plan made = plan(state, {}, kNow);
  EXPECT_EQ(started(made), (Ids{1, 2, 3}));  // two on one device, one on the other: none is left whole
  EXPECT_EQ(made.starts[0].placement[0].devices, made.starts[1].placement[0].devices);
  EXPECT_NE(made.starts[0].placement[0].devices, made.starts[2].placement[0].devices);
}

TEST(Plan, PacksSmallJobsSoThatLargeHolesStayWhole) {
  State state = cluster({node("a", 8, 8), node("b", 8, 4), node("c", 8, 8)});
  Job small = job(1, 1, 1);
  small.task.gpu_millis = 2000;
  state.add(small);
  const Plan made = plan(state, {}, kNow);
  ASSERT_EQ(made.starts.size(), 1u);
  EXPECT_EQ(made.starts[0].placement[0].node, 1);  // the one it leaves fullest
}

TEST(Plan, SpreadsWhenAskedTo) {
  State state = cluster({node("a", 8), node("b", 8), node("c", 8)});
  Job wide = job(1, 3, 1);
  wide.layout = Layout::spread;
  state.add(wide);
  EXPECT_EQ(plan(state, {}, kNow).starts[0].placement.size(), 3u);
}

TEST(Plan, ElasticJobsStartSmallAndGrowIntoWhatNobodyWaitsFor) {
  State state = cluster({node("a", 8)});
  state.add(job(1, 1, 4, minutes(10)));
  Job elastic = job(2, 2, 1, hours(5));
  elastic.tasks_max = 8;
  state.add(elastic);
  carry_out(state, plan(state, {}, kNow), kNow);
  EXPECT_EQ(tasks_of(state.running(id(2))->placement), 4);
  state.remove(id(1), kNow + minutes(10));
  const Plan made = plan(state, {}, kNow + minutes(10));
  ASSERT_EQ(made.resizes.size(), 1u);
  EXPECT_EQ(tasks_of(made.resizes[0].placement), 8);
}

TEST(Plan, SaysWhyAJobWaits) {
  State state = cluster({node("a", 4), node("b", 4, 1, "a100", "ae")});
  Job zone = job(1, 1, 1);
  zone.where.zones = {"us"};
  Job shape = job(2, 1, 64);
  Job type = job(3, 1, 1);
  type.task.gpu_millis = 1000;
  type.where.gpu_type = "h100";
  Job held = job(4, 1, 1);
  held.held = "waits for job 7";
  Job later = job(5, 1, 1);
  later.not_before = kNow + minutes(1);
  for (const Job& j : {zone, shape, type, held, later}) state.add(j);
  const Plan made = plan(state, {}, kNow);
  EXPECT_EQ(wait_of(made, 1).reason, Reason::zone);
  EXPECT_EQ(wait_of(made, 2).reason, Reason::no_node);
  EXPECT_EQ(wait_of(made, 3).reason, Reason::no_node);
  EXPECT_EQ(wait_of(made, 4).detail, "waits for job 7");
  EXPECT_EQ(wait_of(made, 5).reason, Reason::not_before);
  EXPECT_EQ(made.look_again, kNow + minutes(1));
}

TEST(Plan, KeepsRoomForADeadline) {
  State state = cluster({node("a", 4)}, {{"all", "", 1, {}, {}, true}}, {Order::hastiest, std::nullopt, hours(24)});
  state.add(job(1, 1, 2, hours(3)));
  carry_out(state, plan(state, {}, kNow), kNow);
  Job due = job(2, 1, 4, hours(1));
  due.deadline = kNow + hours(4);  // must start when job 1 is gone at the latest
  state.add(due);
  Job longer = job(3, 1, 2, hours(5));
  longer.run.haste = 100;
  Job shorter = job(4, 1, 2, hours(2));
  state.add(longer);
  state.add(shorter);
  EXPECT_EQ(started(plan(state, {}, kNow)), Ids{4});
}

TEST(Plan, SaysWhenAJobCouldStartAtTheEarliest) {
  State state = cluster({node("a", 4)});
  state.add(job(1, 1, 3, hours(2)));
  carry_out(state, plan(state, {}, kNow), kNow);
  const auto earliest = [&](const Job& asked) {
    state.know(asked);
    return earliest_start(state, asked, kNow);
  };
  EXPECT_EQ(earliest(job(2, 1, 1)), kNow);
  EXPECT_EQ(earliest(job(3, 1, 2)), kNow + hours(2));
  EXPECT_EQ(earliest(job(4, 1, 5)), kNever);
}

TEST(State, RefusesWhatDoesNotFitAndChangesNothing) {
  State state = cluster({node("a", 4), node("b", 4)});
  state.add(job(1, 2, 3));
  EXPECT_ERROR(state.start({id(1), {{0, 2, {}}}, false}, kNow), Code::conflict);
  EXPECT_ERROR(state.start({id(1), {{0, 1, {}}, {7, 1, {}}}, false}, kNow), Code::conflict);
  EXPECT_ERROR(state.start({id(1), {{0, 1, {}}}, false}, kNow), Code::conflict);
  EXPECT_EQ(state.free_of(0).cpu_millis, 4000);
  state.set_up(1, false);
  EXPECT_ERROR(state.start({id(1), {{0, 1, {}}, {1, 1, {}}}, false}, kNow), Code::conflict);
  state.set_up(1, true);
  state.start({id(1), {{0, 1, {}}, {1, 1, {}}}, false}, kNow);
  EXPECT_EQ(state.free_of(1).cpu_millis, 1000);
  EXPECT_ERROR(state.add(job(1, 1, 1)), Code::exists);
  EXPECT_ERROR(state.add(job(2, 1, 1, hours(1), "none")), Code::invalid);
  EXPECT_ERROR(state.set_queues({{"x", "y", 1, {}, {}, true}}), Code::invalid);
  EXPECT_ERROR(state.set_queues({{"x", "y", 1, {}, {}, true}, {"y", "x", 1, {}, {}, true}}), Code::invalid);
  EXPECT_ERROR(state.set_queues({{"other", "", 1, {}, {}, true}}), Code::invalid);  // "all" has a job
}

TEST(Predictor, TrustsJobsThatAreAlikeAndNeverExceedsTheLimit) {
  Predictor predictor;
  const JobFacts small{"ann", "lint", 1, hours(1)}, large{"ann", "train", 8, hours(10)};
  EXPECT_EQ(predictor.guess(small).p50, hours(1));
  for (int i = 0; i < 10; ++i) {
    predictor.learn(small, seconds(20));
    predictor.learn(large, hours(9));
  }
  EXPECT_EQ(predictor.guess(small).p50, seconds(20));
  EXPECT_EQ(predictor.guess(large).p50, hours(9));
  EXPECT_GT(predictor.guess(small).haste, predictor.guess(large).haste);
  EXPECT_LE(predictor.guess({"ann", "train", 8, hours(2)}).p90, hours(2));
}

TEST(Traces, AreReadCompressedToo) {
  const std::string text = "; MaxProcs: 4\n1 0 -1 60 8 -1 -1 1 10 -1 1 7 1 1 1 1 -1 -1\n";
  z_stream stream{};
  ASSERT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string in = text, packed(1000, ' ');
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  EXPECT_EQ(read_trace("a.swf", text, 0).jobs.size(), 1u);
  EXPECT_EQ(read_trace("a.swf.gz", packed, 0).jobs.size(), 1u);
  EXPECT_EQ(read_trace("a.swf.gz", packed + packed, 0).jobs.size(), 2u);
  EXPECT_ERROR(read_trace("a.csv.gz", packed, 0), Code::invalid);
  EXPECT_ERROR(read_trace("a.swf.gz", packed.substr(0, packed.size() - 9), 0), Code::invalid);
  EXPECT_ERROR(read_trace("a.swf.gz", text, 0), Code::invalid);
}

TEST(Traces, NameTheLineThatIsWrong) {
  EXPECT_ERROR(read_swf("; MaxProcs: 4\n1 0 -1 60 1 -1 -1 1 100 -1 1 1 1 1 1 1 -1 -1\n1 2 x\n"), Code::invalid);
  const Trace trace = read_swf(
      "; MaxProcs: 4\n1 0 -1 60 8 -1 -1 1 10 -1 1 7 1 1 1 1 -1 -1\n2 1 -1 -1 1 -1 -1 1 10 -1 1 7 1 1 1 1 -1 -1\n");
  ASSERT_EQ(trace.jobs.size(), 1u);
  EXPECT_EQ(trace.skipped, 1u);
  EXPECT_EQ(trace.jobs[0].tasks, 4);
  EXPECT_EQ(trace.jobs[0].limit, seconds(60));
  EXPECT_ERROR(read_gpu_csv("when,duration\n", 1), Code::invalid);
  const Trace gpus = read_gpu_csv("timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,66.0,2,x\n,1,1,\n", 0);
  ASSERT_EQ(gpus.jobs.size(), 1u);
  EXPECT_EQ(gpus.jobs[0].submitted, seconds(1507532515));
  EXPECT_EQ(gpus.jobs[0].user, "x");
}

TEST(Simulation, OursWaitsLessThanEasyWhichWaitsLessThanFifo) {
  const Trace trace = make_trace(3, 3000, 8, 8);
  const Outcome slow = simulate(trace, fifo()), easier = simulate(trace, easy()), mine = simulate(trace, ours());
  EXPECT_EQ(slow.unfinished + easier.unfinished + mine.unfinished, 0u);
  EXPECT_LT(easier.slowdown_mean, slow.slowdown_mean);
  EXPECT_LT(mine.slowdown_mean, easier.slowdown_mean);
  EXPECT_EQ(easier.promise_late_max, 0);
  EXPECT_EQ(mine.promise_late_max, 0);
  const Outcome again = simulate(trace, ours());
  EXPECT_EQ(mine.wait_mean, again.wait_mean);
}

TEST(Simulation, FinishesEverythingAndKeepsItsPromisesThoughNodesAreLost) {
  std::size_t losses = 0, trials = 0;
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(repeats(24)); ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = make_trace(seed, 300, 4 + static_cast<int>(seed % 16), 8);
    Simulated how = seed % 4 == 0 ? easy() : ours();
    how.faults = {hours(500), hours(1), seed};
    const Outcome outcome = simulate(trace, how);
    EXPECT_EQ(outcome.unfinished, 0u);
    EXPECT_EQ(outcome.promise_late_max, 0);  // since the last loss: backfill has delayed none
    EXPECT_EQ(simulate(trace, how).wait_mean, outcome.wait_mean);
    losses += outcome.node_losses;
    trials += outcome.trials;
  }
  EXPECT_GT(losses, 0u);
  EXPECT_GT(trials, 0u);
}

// A job without a limit may run for longer than it probably does. Promises that count on it are guesses; the others it
// must not delay.
TEST(Simulation, PromisesThatRestOnLimitsAreKeptBesideJobsWithoutOne) {
  double guesses_late = 0;
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(repeats(24)); ++seed) {
    SCOPED_TRACE(seed);
    Trace trace = make_trace(seed, 400, 4 + static_cast<int>(seed % 16), 8);
    for (std::size_t i = 0; i < trace.jobs.size(); i += 1 + seed % 4) trace.jobs[i].limit = kNever;
    const Outcome outcome = simulate(trace, ours());
    EXPECT_EQ(outcome.unfinished, 0u);
    EXPECT_EQ(outcome.promise_late_max, 0);
    guesses_late = std::max(guesses_late, outcome.guess_late_max);
  }
  EXPECT_GT(guesses_late, 0);
}

TEST(Simulation, LeastAttainedServiceFinishesEverything) {
  const Trace trace = make_trace(3, 500, 8, 8);
  const Outcome outcome = simulate_least_attained(trace, hours(1));
  EXPECT_GT(outcome.completion_mean, 0);
  EXPECT_GE(outcome.slowdown_mean, 1);
}

}  // namespace
}  // namespace falaj::schedule
