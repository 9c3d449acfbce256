// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "foundation/base/testing.h"
#include "storage/sql/testing.h"

namespace falaj::jobs {
namespace {

const Where kFlights{{"acme"}, {"flights"}}, kMaps{{"globex"}, {"maps"}};

class StoreTest : public testing::TestWithParam<std::string> {
 protected:
  StoreTest() : scratch(sql::make_scratch(GetParam())), database(scratch->open(metrics)), store(*database) {
    database->migrate(Store::migrations());
  }
  ~StoreTest() override { database->stop(); }

  static Record record(std::uint64_t number, const Where& where = kFlights) {
    Record out;
    out.id = {IdBits{1, number}};
    out.where = where;
    out.name = "train";
    out.owner = "user/ada";
    out.labels = {{"team", "ml"}};
    JobSpec spec;
    spec.command = {"python", "train.py"};
    spec.cpus = 2;
    out.spec = std::make_shared<const JobSpec>(spec);
    out.submitted_us = 1000;
    out.life.why = "submitted";
    return out;
  }
  void insert(const std::vector<Record>& records) {
    database->write(sql::kAct, [&](sql::Writer& writer) { store.insert(writer, records); });
  }
  void change(JobId id, Phase phase, std::string granted = "") {
    auto found = *store.find(id);
    found.life.phase = phase;
    found.life.why = "test";
    Change made;
    made.record = &found;
    made.transitions = {{0, 2000, found.life.epoch, phase, "test"}};
    made.granted = std::move(granted);
    store.write({&made, 1});
  }

  Metrics metrics;
  std::unique_ptr<sql::Scratch> scratch;
  std::unique_ptr<sql::Database> database;
  Store store;
};
INSTANTIATE_TEST_SUITE_P(Engines, StoreTest, testing::ValuesIn(sql::engines()));

TEST_P(StoreTest, GivesBackWhatWasPutIn) {
  insert({record(1), record(2, kMaps)});
  const auto found = store.job(kFlights, record(1).id);
  EXPECT_EQ(found.name, "train");
  EXPECT_EQ(found.labels.at("team"), "ml");
  EXPECT_EQ(found.spec->command.at(1), "train.py");
  EXPECT_EQ(found.life.phase, Phase::pending);
  EXPECT_EQ(store.live().size(), 2u);
  EXPECT_ERROR(store.job(kFlights, record(2).id), Code::not_found);
  EXPECT_EQ(store.list(kFlights, {}).size(), 1u);
  EXPECT_TRUE(store.is_in(kFlights, record(1).id.str()));
  EXPECT_FALSE(store.is_in(kFlights, record(2).id.str()));
}

TEST_P(StoreTest, KeepsEveryTransitionAndWhatWasSpent) {
  insert({record(1)});
  auto one = *store.find(record(1).id);
  one.life.phase = Phase::starting;
  one.life.epoch = 1;
  one.life.places = {{"n1", 2, {"gpu0"}}};
  Change change;
  change.record = &one;
  change.transitions = {{0, 2000, 0, Phase::admitted, "room"}, {0, 2000, 1, Phase::starting, "attempt 1"}};
  Spent spent;
  spent.epoch = 1;
  spent.started_us = 0;
  spent.ended_us = 10'000'000;
  spent.places = one.life.places;
  spent.reason = "node_lost";
  spent.cpu_us = 3'000'000;
  spent.energy_joules = 45;
  change.spent = {spent};
  store.write({&change, 1});
  const auto history = store.history(one.id);
  ASSERT_EQ(history.size(), 3u);
  EXPECT_EQ(history[2].phase, Phase::starting);
  EXPECT_EQ(history[2].number, 2);
  EXPECT_EQ(store.find(one.id)->life.places, one.life.places);
  EXPECT_EQ(store.find(one.id)->digest, one.digest);
  const auto usage = store.usage(kFlights.scope(), UsageBy::owner, 0, 100'000'000);
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_EQ(usage[0].key, "user/ada");
  EXPECT_DOUBLE_EQ(usage[0].cpu_seconds, 3);
  EXPECT_DOUBLE_EQ(usage[0].cpu_allocated_seconds, 40);  // two tasks of two processors
  EXPECT_DOUBLE_EQ(usage[0].lost_seconds, 40);
  EXPECT_DOUBLE_EQ(usage[0].energy_joules, 45);
  const auto half = store.usage(kFlights.scope(), UsageBy::job, 5'000'000, 100'000'000).at(0);
  EXPECT_DOUBLE_EQ(half.cpu_allocated_seconds, 20);
  EXPECT_DOUBLE_EQ(half.cpu_seconds, 1.5);
  EXPECT_DOUBLE_EQ(half.energy_joules, 22.5);
  EXPECT_DOUBLE_EQ(half.lost_seconds, 20);
  change.transitions.clear();
  change.spent[0].epoch = 2;
  change.spent[0].saved_us = 8'000'000;
  store.write({&change, 1});
  EXPECT_DOUBLE_EQ(store.usage(kFlights.scope(), UsageBy::job, 0, 100'000'000).at(0).lost_seconds, 40 + 8);
  EXPECT_DOUBLE_EQ(store.usage(kFlights.scope(), UsageBy::job, 0, 9'000'000).at(0).lost_seconds, 36 + 4);
  EXPECT_TRUE(store.usage(kMaps.scope(), UsageBy::owner, 0, 100'000'000).empty());
}

TEST_P(StoreTest, KnowsHowLongJobsRan) {
  insert({record(1)});
  auto one = *store.find(record(1).id);
  Change change;
  change.record = &one;
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
    Spent spent;
    spent.epoch = epoch;
    spent.ended_us = epoch * 1'000'000;
    spent.places = {{"n1", 2, {}}};
    spent.reason = epoch == 2 ? "node_lost" : "finished";
    change.spent.push_back(spent);
  }
  store.write({&change, 1});
  const auto ran = store.ran(10);
  ASSERT_EQ(ran.size(), 2u) << "what was cut short says nothing";
  EXPECT_EQ(ran[0].ran_us, 1'000'000);
  EXPECT_EQ(ran[1].ran_us, 3'000'000);
  EXPECT_EQ(ran[1].owner, "user/ada");
  EXPECT_EQ(ran[1].name, "train");
  EXPECT_EQ(ran[1].tasks, 2);
}

TEST_P(StoreTest, WritesAllOrNothing) {
  insert({record(1)});
  auto known = *store.find(record(1).id);
  auto unknown = record(9);
  known.life.phase = Phase::cancelled;
  std::vector<Change> changes(2);
  changes[0].record = &known;
  changes[1].record = &unknown;
  EXPECT_ERROR(store.write(changes), Code::corrupt);
  EXPECT_EQ(store.find(known.id)->life.phase, Phase::pending);
}

TEST_P(StoreTest, RemembersWishesUntilTheyAreGranted) {
  insert({record(1)});
  const auto id = record(1).id;
  database->write(sql::kAct, [&](sql::Writer& w) { store.wish(w, kFlights, {id, "requeue", "user/ada"}); });
  database->write(sql::kAct, [&](sql::Writer& w) { store.wish(w, kFlights, {id, "cancel", "user/bob"}); });
  change(id, Phase::admitted, "requeue");
  ASSERT_EQ(store.wishes().size(), 1u) << "the second is still to be seen to";
  EXPECT_EQ(store.wishes()[0].by, "user/bob");
  change(id, Phase::cancelled, "cancel");
  EXPECT_TRUE(store.wishes().empty());
  EXPECT_TRUE(store.live().empty());
  EXPECT_ERROR(database->write(sql::kAct,
                               [&](sql::Writer& w) {
                                 store.wish(w, kMaps, {id, "cancel", "x"});
                               }),
               Code::not_found);
}

TEST_P(StoreTest, KnowsArraysAsOne) {
  std::vector<Record> members;
  for (std::uint64_t i = 0; i < 3; ++i) {
    members.push_back(record(10 + i));
    members.back().array = "00000000000000000000000007";
    members.back().array_index = static_cast<std::int64_t>(i);
  }
  insert(members);
  for (const auto& member : store.live()) EXPECT_EQ(member.spec->cpus, 2) << "the spec of the first is everybody's";
  change(members[0].id, Phase::succeeded);
  auto outcome = store.outcome("00000000000000000000000007");
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->members, 3);
  EXPECT_EQ(outcome->live, 2);
  EXPECT_EQ(outcome->succeeded, 1);
  EXPECT_EQ(store.outcome(members[0].id.str())->members, 1);
  EXPECT_FALSE(store.outcome("00000000000000000000000008"));
  ListJobs of_array;
  of_array.array = "00000000000000000000000007";
  of_array.live = true;
  EXPECT_EQ(store.list(kFlights, of_array).size(), 2u);
}

TEST_P(StoreTest, ListsPageByPageNewestFirst) {
  std::vector<Record> many;
  for (std::uint64_t i = 0; i < 5; ++i) many.push_back(record(i));
  insert(many);
  ListJobs page;
  page.limit = 2;
  std::vector<JobId> seen;
  for (auto found = store.list(kFlights, page); !found.empty(); found = store.list(kFlights, page)) {
    for (const auto& one : found) seen.push_back(one.id);
    page.after = found.back().id.str();
  }
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_TRUE(std::is_sorted(seen.rbegin(), seen.rend()));
}

}  // namespace
}  // namespace falaj::jobs
