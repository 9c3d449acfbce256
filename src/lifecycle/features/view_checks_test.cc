// SPDX-License-Identifier: Apache-2.0
// What a view expects of its rows, and what is found out about it before it is accepted.
#include "lifecycle/features/view_checks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"
#include "lifecycle/data/testing.h"
#include "lifecycle/features/online.h"
#include "storage/online/testing.h"

namespace falaj::features {
namespace {

using data::DataFixture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ViewChecksTest : public ::testing::Test {
 protected:
  ViewChecksTest() {
    f_.base.database->migrate(Online::migrations());
    online_ = std::make_unique<Online>(*f_.base.database, *f_.resources, *f_.datasets, store_->store(), key_,
                                       f_.base.clock, *f_.base.metrics);
    online_->start();
    f_.declare("events",
               "{columns: [{name: t, type: timestamp}, {name: k, type: text}, {name: v, type: float64}], time: t}");
    f_.apply(
        "{apiVersion: falaj/v1, kind: Entity, metadata: {tenant: acme, project: flights, name: thing}, spec: "
        "{key: [{name: k, type: text}]}}");
  }
  void declare(const std::string& more) {
    f_.apply(
        "apiVersion: falaj/v1\nkind: FeatureView\nmetadata: {tenant: acme, project: flights, name: view}\n"
        "spec: {entity: thing, dataset: events, time: t, features: [{name: v}], " +
        more + "}\n");
  }
  // Of the dataset.
  void expect(const std::string& rules, const std::string& action = "refuse") {
    f_.apply(
        "apiVersion: falaj/v1\nkind: Expectation\nmetadata: {tenant: acme, project: flights, name: rules}\n"
        "spec: {dataset: events, action: " +
        action + ", rules: " + rules + "}\n");
  }
  // What is wrong with a view, "" when it is accepted.
  std::string fault_of(const std::string& more) {
    try {
      declare(more);
      return "";
    } catch (const Error& e) {
      return e.faults().empty() ? e.what() : e.faults()[0].where + ": " + e.faults()[0].what;
    }
  }
  void ingest(const std::string& rows) { f_.ingest("events", "t,k,v\n" + rows); }
  OnlineView materialise(bool full = false) {
    return online_->materialiser().run(DataFixture::kFlights, "view", {std::nullopt, full}, DataFixture::act());
  }
  void push(const std::string& key, double v) {
    const json::object row{{"t", format_time(f_.base.clock.wall().count())}, {"k", key}, {"v", v}};
    online_->pushes().push(DataFixture::kFlights, "events", {row}, {}, DataFixture::act());
  }
  // "check version held", last first.
  std::vector<std::string> checks() {
    std::vector<std::string> out;
    for (const auto& c : online_->views().checks(DataFixture::kFlights, "view", 100))
      out.push_back(fmt::format("{} {} {}", c.check, c.version ? std::to_string(*c.version) : "-", c.held));
    return out;
  }
  std::int64_t waiting() { return online_->pushes().waiting(DataFixture::kFlights, "events"); }

  sys::TempDir dir_;
  std::unique_ptr<sys::Files> files_ = sys::open_files(dir_.path());
  DataFixture f_{
      "sqlite", {}, feature_kinds([this] { return std::make_unique<table::Workspace>(kCheckRoom, *files_); })};
  const crypto::Key key_ = crypto::Key::random();
  std::unique_ptr<online::Scratch> store_ = online::make_scratch("lmdb");
  std::unique_ptr<Online> online_;
};

constexpr auto kRefuse = "expectations: [{rules: [{check: range, column: v, min: 0, max: 10}]}]";
constexpr auto kWarn = "expectations: [{action: warn, rules: [{check: range, column: v, min: 0, max: 10}]}]";

TEST_F(ViewChecksTest, RowsThatAreRefusedDoNotComeOnline) {
  declare(kRefuse);
  ingest("2001-01-01,a,5\n");
  EXPECT_EQ(materialise().done->version, 1);
  ingest("2001-01-02,a,11\n");
  EXPECT_ERROR(materialise(), Code::invalid);
  EXPECT_ERROR(materialise(true), Code::invalid);
  EXPECT_EQ(online_->views().list(DataFixture::kFlights)[0].done->version, 1) << "what was online stays";
  EXPECT_FALSE(online_->views().list(DataFixture::kFlights)[0].running) << "nothing is gone on with";
  EXPECT_THAT(checks(), ElementsAre("range - false", "range - false", "range 1 true"));
  const auto last = online_->views().checks(DataFixture::kFlights, "view", 1);
  EXPECT_THAT(last[0].said, HasSubstr("1 of 2 rows"));
  // Declared otherwise, the same rows come.
  declare(kWarn);
  EXPECT_EQ(materialise().done->version, 2);
  EXPECT_EQ(checks()[0], "range 2 false");
}

TEST_F(ViewChecksTest, OnlyNewRowsAreLookedAtAgain) {
  declare(kWarn);
  ingest("2001-01-01,a,11\n");
  materialise();
  ingest("2001-01-02,a,5\n");
  materialise();
  EXPECT_THAT(checks(), ElementsAre("range 2 true", "range 1 false"));
  materialise();
  EXPECT_EQ(checks().size(), 2U) << "nothing was new";
}

TEST_F(ViewChecksTest, PushedRowsAreRefusedOrNoted) {
  declare(kRefuse);
  ingest("2001-01-01,a,5\n");
  materialise();
  push("a", 7);
  EXPECT_EQ(waiting(), 1);
  EXPECT_ERROR(push("a", 70), Code::invalid);
  EXPECT_EQ(waiting(), 1) << "nothing of it was taken";
  EXPECT_THAT(checks(), ElementsAre("range - false", "range 1 true")) << "what held is not noted of each push";
  declare(kWarn);
  push("a", 70);
  EXPECT_EQ(waiting(), 2);
  EXPECT_THAT(checks(), ElementsAre("range - false", "range - false", "range 1 true"));
  EXPECT_EQ(online_->views().checks(DataFixture::kFlights, "view", 1)[0].action, "warn");
}

TEST_F(ViewChecksTest, RulesOverManyRowsAreNotForOnePush) {
  declare("expectations: [{rules: [{check: rows, min: 2}]}]");
  ingest("2001-01-01,a,5\n2001-01-01,b,5\n");
  materialise();
  push("a", 7);
  EXPECT_EQ(waiting(), 1);
  EXPECT_THAT(checks(), ElementsAre("rows 1 true"));
}

TEST_F(ViewChecksTest, WhatTheDatasetExpectsOfARowRefusesAPush) {
  expect(
      "[{check: range, column: v, max: 10}, {check: rows, min: 100}, {check: set, column: k, values: [a], share: "
      "0.5}]");
  const auto row = [&](const char* k, double v) {
    return json::object{{"t", format_time(f_.base.clock.wall().count())}, {"k", k}, {"v", v}};
  };
  try {
    online_->pushes().push(DataFixture::kFlights, "events", {row("a", 1), row("a", 70)}, {}, DataFixture::act());
    ADD_FAILURE() << "it was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::invalid);
    ASSERT_EQ(e.faults().size(), 2U);
    EXPECT_EQ(e.faults()[0].where, "expectation rules");
    EXPECT_EQ(e.faults()[1].what, "row 2: 70.0");
  }
  EXPECT_EQ(waiting(), 0);
  const auto noted = f_.datasets->checks(DataFixture::kFlights, "events", std::nullopt, 10);
  ASSERT_EQ(noted.size(), 1U);
  EXPECT_FALSE(noted[0].held || noted[0].version);
  push("b", 1);  // half of a version's rows may be so
  EXPECT_EQ(waiting(), 1);
  expect("[{check: rows, min: 100}]", "warn");
  push("b", 70);
  EXPECT_EQ(waiting(), 2);
}

// Rows that were taken are never given back, whatever is expected of a version, or is expected later.
TEST_F(ViewChecksTest, RowsThatWereTakenBecomeAVersionAndWhatTheyBreakIsNoted) {
  f_.ingest("events", "t,k,v\n2001-01-01,a,1\n2001-01-01,b,2\n");
  push("a", 70);
  expect(
      "[{check: range, column: v, max: 10}, {check: rows, min: 100}, {check: unique, columns: [k]},"
      " {check: distribution, column: v, distance: 0}]");
  const auto version = online_->pushes().flush(DataFixture::kFlights, "events", DataFixture::act());
  ASSERT_TRUE(version);
  EXPECT_EQ(version->rows, 3);
  EXPECT_EQ(version->warnings.size(), 4U);
  const auto found = f_.datasets->checks(DataFixture::kFlights, "events", version->number, 10);
  ASSERT_EQ(found.size(), 4U);
  for (const auto& check : found) {
    EXPECT_FALSE(check.held) << check.check;
    EXPECT_EQ(check.action, "warn");
  }
  EXPECT_EQ(waiting(), 0);
  EXPECT_ERROR(ingest("2001-01-02,c,11\n"), Code::invalid);  // files are refused as before
}

TEST_F(ViewChecksTest, OfRefusedRowsOnlyTheLastResultsAreKept) {
  const data::CheckResult one{"rules", "range", "v", "refuse", false, 1, 1, "", {}, std::nullopt, 0};
  for (int i = 0; i < 3; ++i)
    f_.datasets->note_refused(DataFixture::kFlights, "events", std::vector(400, one), DataFixture::act());
  EXPECT_EQ(f_.datasets->checks(DataFixture::kFlights, "events", std::nullopt, 10'000).size(), 1000U);
}

TEST_F(ViewChecksTest, OnlyTheLastResultsAreKept) {
  const data::CheckResult one{"view[0]", "rows", "", "warn", true, 1, 0, "", {}, std::nullopt, 0};
  f_.base.database->write(DataFixture::act(), [&](sql::Writer& w) {
    keep_view_checks(w, DataFixture::kFlights, "view", 1, 1, std::vector(kViewChecksMax, one));
    keep_view_checks(w, DataFixture::kFlights, "view", 2, 2, {one});
  });
  const auto kept = online_->views().checks(DataFixture::kFlights, "view", 10'000);
  EXPECT_EQ(static_cast<std::int64_t>(kept.size()), kViewChecksMax);
  EXPECT_EQ(kept[0].version, 2);
}

TEST_F(ViewChecksTest, AViewThatCannotBeComputedIsNotAccepted) {
  EXPECT_EQ(fault_of("sql: \"SELECT *, v * 2 AS w FROM events\""), "");
  EXPECT_THAT(fault_of("sql: SELECT nothing FROM events"), HasSubstr("spec.sql: "));
  EXPECT_THAT(fault_of("sql: SELECT * FROM others"), HasSubstr("spec.sql: "));
  EXPECT_THAT(fault_of("sql: \"DROP TABLE events\""), HasSubstr("spec.sql: "));
  EXPECT_THAT(fault_of("sql: \"SELECT t, k FROM events\""), HasSubstr("'v' is none of the columns"));
  EXPECT_THAT(fault_of("expressions: [{name: e, is: nothing + 1}]"), HasSubstr("spec.expressions: "));
  EXPECT_THAT(fault_of("sql: \"SELECT *, 'x' AS w FROM events\", expressions: [{name: e, is: v + }]"),
              HasSubstr("spec.expressions: "));
  EXPECT_EQ(fault_of("expressions: [{name: e, is: v + 1}]"), "");
  EXPECT_THAT(fault_of("expectations: [{rules: [{check: nulls, column: x}]}]"),
              HasSubstr("spec.expectations[0].rules[0].column: 'x' is none of the dataset's columns"));
  EXPECT_EQ(fault_of("sql: \"SELECT *, v * 2 AS w FROM events\", expectations: [{rules: [{check: nulls, column: w}]}]"),
            "");
  EXPECT_THAT(fault_of("expectations: [{rules: [{check: distribution, column: v}]}]"), HasSubstr("compares versions"));
}

}  // namespace
}  // namespace falaj::features
