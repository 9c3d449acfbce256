// SPDX-License-Identifier: Apache-2.0
// What is online goes with the rows that it was made of: real datasets, real stores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"
#include "lifecycle/data/erasure.h"
#include "lifecycle/data/testing.h"
#include "lifecycle/features/online.h"
#include "storage/online/testing.h"

namespace falaj::features {
namespace {

using data::DataFixture;
using ::testing::HasSubstr;
using ::testing::Not;

struct On {
  std::string sql, store;
};
std::vector<On> everywhere() {
  std::vector<On> out{{"postgresql", "lmdb"}};
  for (const auto& store : online::engines()) out.push_back({"sqlite", store});
  return out;
}

class OnlineErasureTest : public ::testing::TestWithParam<On> {
 protected:
  OnlineErasureTest() {
    f_.base.database->migrate(Online::migrations());
    online_ = std::make_unique<Online>(*f_.base.database, *f_.resources, *f_.datasets, store_->store(), key_,
                                       f_.base.clock, *f_.base.metrics);
    online_->start();
    erasures_ = std::make_unique<data::Erasures>(
        data::Erasures::Parts{*f_.base.database, *f_.resources, *f_.datasets, f_.base.clock, f_.base.random}, key_,
        nullptr);
    erasures_->add(*online_);
    declare_visits("{name: note, type: text}");
    f_.apply(
        "{apiVersion: falaj/v1, kind: Entity, metadata: {tenant: acme, project: flights, name: person}, spec: {key: "
        "[{name: person, type: text}]}}\n---\n"
        "{apiVersion: falaj/v1, kind: Entity, metadata: {tenant: acme, project: flights, name: city}, spec: {key: "
        "[{name: city, type: text}]}}");
    f_.ingest("visits", fmt::format("person,city,at,n,note\nada,riga,{0},1,canary-ada\nbob,oslo,{0},2,canary-bob\n"
                                    "bob,riga,{1},3,canary-bob\n",
                                    ago(10), ago(20)));
  }
  void declare_visits(const std::string& last) {
    f_.declare(
        "visits",
        "{" + std::string(last.find("note") == std::string::npos ? "major: 2, " : "") +
            "columns: [{name: person, type: text}, {name: city, type: text}, {name: at, type: timestamp}, {name: "
            "n, type: int64}, " +
            last + "], time: at, personal: {subjectKey: person, purpose: test, basis: consent}}");
  }
  void declare_view(const std::string& name, const std::string& more) {
    f_.apply(
        fmt::format("apiVersion: falaj/v1\nkind: FeatureView\nmetadata: {{tenant: acme, project: flights, name: {}}}\n"
                    "spec: {{dataset: visits, time: at, {}}}\n",
                    name, more));
  }
  void undeclare_view(const std::string& name) {
    const resource::Key keys[] = {{"FeatureView", "acme", "flights", name}};
    f_.resources->remove(DataFixture::act(), keys, [](auto&&...) { return std::nullopt; });
  }
  OnlineView materialise(const std::string& view, std::optional<std::int64_t> revision = std::nullopt) {
    return online_->materialiser().run(kWhere, view, {std::nullopt, false, revision}, DataFixture::act());
  }
  data::Erasure erase(const std::string& subject) {
    const auto begun = erasures_->begin(kWhere, subject, DataFixture::act());
    return erasures_->finish(kWhere, begun.id, DataFixture::act());
  }
  std::string ago(std::int64_t seconds) { return format_time(f_.base.clock.wall().count() - seconds * 1'000'000); }
  void push(const std::string& person, std::int64_t n) {
    const json::object row{{"person", person}, {"city", "riga"}, {"at", ago(0)}, {"n", n}, {"note", "pushed"}};
    online_->pushes().push(kWhere, "visits", {row}, {}, DataFixture::act());
  }
  // How many rows it has in the store, in all generations that it ever had.
  std::size_t stored(const OnlineView& view) {
    std::size_t rows = 0;
    const auto snapshot = store_->store().snapshot();
    for (std::int64_t g = 1; g <= view.generations + 1; ++g)
      snapshot->each(*online_->views().space(view.meaning, g), [&](const auto&, const auto&) { return ++rows > 0; });
    return rows;
  }
  // One value, or what it is instead.
  std::string one(const std::string& feature, const std::string& column, const std::string& key) {
    struct Only final : FeatureSink {
      void begin() override {}
      void add(std::size_t, std::size_t, const FeatureCell& cell) override {
        if (cell.status == online::Status::present)
          said = cell.text.empty() ? fmt::format("{} {}", cell.whole, cell.real) : std::string(cell.text);
      }
      std::string said = "nothing";
    } only;
    const auto wanted = online_->definitions().select(kWhere, {feature});
    online_->views().get(*wanted, {{{column, {lookup::Value(key)}}}}, std::nullopt, only);
    return only.said;
  }
  std::string checks() {
    return f_.base.database->read([](sql::Reader& r) {
      std::string out;
      for (const auto& text :
           r.all("SELECT result FROM feature_check", {}, [](const sql::Row& row) { return std::string(row.text(0)); }))
        out += text;
      return out;
    });
  }

  static inline const Where kWhere = DataFixture::kFlights;
  DataFixture f_{GetParam().sql, {}, feature_kinds()};
  const crypto::Key key_ = crypto::Key::random();
  std::unique_ptr<online::Scratch> store_ = online::make_scratch(GetParam().store);
  std::unique_ptr<Online> online_;
  std::unique_ptr<data::Erasures> erasures_;
};

constexpr auto kOfPerson = "entity: person, features: [{name: note}]";
constexpr auto kOfCity =
    "entity: city, features: [{name: note}], tile: 1m, aggregates: [{name: n, aggregate: count, window: 1h}]";

TEST_P(OnlineErasureTest, WhatIsServedGoesAndTheOthersStay) {
  declare_view("of_person", kOfPerson);
  declare_view("of_city", kOfCity);
  materialise("of_person");
  materialise("of_city");
  push("ada", 4);
  EXPECT_EQ(one("of_person:note", "person", "ada"), "pushed");
  EXPECT_EQ(erase("ada").state, "done");
  EXPECT_EQ(one("of_person:note", "person", "ada"), "nothing");
  EXPECT_EQ(one("of_person:note", "person", "bob"), "canary-bob");
  EXPECT_EQ(one("of_city:note", "city", "riga"), "canary-bob");
  EXPECT_EQ(one("of_city:n", "city", "riga"), "1 0");
}

TEST_P(OnlineErasureTest, EndsWhenAViewWasDeletedOrCannotBeComputed) {
  declare_view("of_person", kOfPerson);
  declare_view("of_city", kOfCity);
  const auto deleted = materialise("of_person"), broken = materialise("of_city");
  undeclare_view("of_person");
  declare_visits("{name: other, type: text}");
  EXPECT_ERROR(online_->definitions().view(kWhere, "of_city"), Code::invalid);
  EXPECT_GT(stored(deleted), 0U);
  EXPECT_GT(stored(broken), 0U);
  EXPECT_EQ(erase("ada").state, "done");
  EXPECT_EQ(stored(deleted), 0U);
  EXPECT_EQ(stored(broken), 0U);
  EXPECT_TRUE(online_->views().list(std::nullopt).empty());
}

TEST_P(OnlineErasureTest, ARevisionThatAServicePinsIsComputedAnew) {
  declare_view("of_city", kOfCity);
  materialise("of_city");
  f_.apply(
      "{apiVersion: falaj/v1, kind: FeatureService, metadata: {tenant: acme, project: flights, name: s}, spec: "
      "{features: [\"of_city@1:note\"]}}");
  declare_view("of_city", "entity: city, features: [{name: n}]");
  materialise("of_city");
  EXPECT_EQ(erase("bob").state, "done");
  EXPECT_EQ(one("of_city@1:note", "city", "riga"), "canary-ada");
  EXPECT_EQ(one("of_city@1:note", "city", "oslo"), "nothing");
  EXPECT_EQ(one("of_city:n", "city", "riga"), "1 0");
}

// The dataset's newest version has nothing of the subject any more, but what is online was made of one that had.
TEST_P(OnlineErasureTest, WhatIsOnlineOfAnEarlierVersionGoesToo) {
  declare_view("of_city", kOfCity);
  materialise("of_city");
  f_.ingest("visits", fmt::format("person,city,at,n,note\nbob,oslo,{},2,new\n", ago(5)), data::Format::csv,
            data::Mode::overwrite);
  EXPECT_EQ(one("of_city:note", "city", "riga"), "canary-ada");
  EXPECT_EQ(erase("ada").state, "done");
  EXPECT_EQ(one("of_city:note", "city", "riga"), "nothing");
  EXPECT_EQ(one("of_city:note", "city", "oslo"), "new");
}

TEST_P(OnlineErasureTest, WhatExpectationsShowedOfRowsGoes) {
  const std::string rule =
      ", expectations: [{rules: [{check: range, column: n, max: 10}, {check: set, column: person, values: [ada, bob, "
      "cyd]}]}]";
  declare_view("of_person", kOfPerson + rule);
  materialise("of_person");
  EXPECT_ERROR(push("canary-dan", 5), Code::invalid);
  EXPECT_THAT(checks(), HasSubstr("row 1: canary-dan"));
  undeclare_view("of_person");
  EXPECT_EQ(erase("canary-dan").state, "done");
  EXPECT_THAT(checks(), Not(HasSubstr("canary-dan")));
  EXPECT_THAT(checks(), HasSubstr("1 of 1 rows fail")) << "the rest of it stays";
}

// One row is too few for what the view expects of all its rows together. It was made of what is left before.
TEST_P(OnlineErasureTest, AViewStaysOnlineWhenFewRowsAreLeft) {
  declare_view("of_person", std::string(kOfPerson) + ", expectations: [{rules: [{check: rows, min: 3}]}]");
  materialise("of_person");
  EXPECT_EQ(erase("bob").state, "done");
  EXPECT_EQ(one("of_person:note", "person", "ada"), "canary-ada");
  EXPECT_EQ(one("of_person:note", "person", "bob"), "nothing");
}

INSTANTIATE_TEST_SUITE_P(, OnlineErasureTest, ::testing::ValuesIn(everywhere()),
                         [](const auto& on) { return on.param.sql + "_" + on.param.store; });

}  // namespace
}  // namespace falaj::features
