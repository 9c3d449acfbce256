// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/features.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "lifecycle/data/testing.h"

namespace falaj::features {
namespace {

using data::DataFixture;
using Rows = std::vector<std::string>;

std::optional<std::string> may_all(std::string_view, const iam::Scope&) { return std::nullopt; }

constexpr auto kDeclared = R"(
{apiVersion: falaj/v1, kind: Entity, metadata: {tenant: acme, project: flights, name: origin}, spec: {key: [{name: origin, type: text}]}}
---
apiVersion: falaj/v1
kind: FeatureView
metadata: {tenant: acme, project: flights, name: airport}
spec:
  entity: origin
  dataset: delays
  sql: SELECT *, "at" + INTERVAL 1 HOUR AS known FROM delays
  time: at
  available: known
  tile: 30m
  features: [{name: last_delay, column: delay}]
  aggregates:
  - {name: flights_3h, aggregate: count, window: 3h}
  - {name: mean_3h, aggregate: mean, of: delay, window: 3h}
  - {name: late_3h, aggregate: count, window: 3h, where: [{column: delay, is: ">", value: 15}]}
---
{apiVersion: falaj/v1, kind: FeatureService, metadata: {tenant: acme, project: flights, name: late}, spec: {features: ["airport:*"]}}
)";

class FeaturesTest : public ::testing::Test {
 protected:
  DataFixture f_{"sqlite", {}, feature_kinds()};
  Definitions definitions_{*f_.resources, *f_.datasets};
  Features features_{*f_.base.database, *f_.resources, *f_.datasets, definitions_};
  void SetUp() override {
    f_.declare(
        "delays",
        "{columns: [{name: at, type: timestamp}, {name: origin, type: text}, {name: delay, type: int64}], time: at}");
    f_.ingest("delays",
              "at,origin,delay\n2001-01-01 08:00,SEA,10\n2001-01-01 09:00,SEA,30\n2001-01-01 10:00,SEA,2\n"
              "2001-01-01 10:00,LAX,50\n2001-01-01 14:00,SEA,0\n");
  }
};

TEST_F(FeaturesTest, DescribeEachRowAsOfItsTime) {
  f_.apply(kDeclared);
  const auto set = features_.train_set(DataFixture::kFlights, {"late", {"delays", std::nullopt}, "", "train"}, may_all,
                                       DataFixture::act());
  EXPECT_EQ(set.rows, 5);
  EXPECT_THAT(set.source, ::testing::HasSubstr("delays@1"));
  // At 10:00 only what landed by then is known: 8:00 and 9:00 with an hour's flight.
  EXPECT_EQ(f_.rows(set, "SELECT strftime(\"at\", '%H'), origin, last_delay, flights_3h, mean_3h, late_3h FROM v"),
            (Rows{"08|SEA|null|0|null|0", "09|SEA|10|1|10|0", "10|LAX|null|0|null|0", "10|SEA|30|2|20|1",
                  "14|SEA|2|0|null|0"}));
  const auto again =
      features_.train_set(DataFixture::kFlights, {"late", {"delays", 1}, "at", "train"}, may_all, DataFixture::act());
  EXPECT_EQ(again.number, 2);
  EXPECT_EQ(again.id, set.id);
}

// A query that groups gives its rows in any order, another one whenever it is asked.
TEST_F(FeaturesTest, OfAQueryThatGroupsAreThoseOfTheRightRow) {
  f_.declare("trips",
             "{columns: [{name: moment, type: timestamp}, {name: origin, type: text}, {name: delay, type: int64}], "
             "time: moment}");
  const auto room = f_.datasets->room();
  f_.datasets->store(DataFixture::kFlights, "trips", *room,
                     "SELECT make_timestamp(i // 2 * 1000000) AS moment, 'k' || (i // 2 % 1000) AS origin,"
                     " i // 2 AS delay FROM range(300000) t(i)",
                     {data::Format::parquet, data::Mode::overwrite, "test", "", {}}, DataFixture::act());
  f_.declare("asked",
             "{columns: [{name: moment, type: timestamp}, {name: origin, type: text}, {name: delay, type: int64}], "
             "time: moment}");
  f_.datasets->store(DataFixture::kFlights, "asked", *room,
                     "SELECT make_timestamp(i * 1000000) AS moment, 'k' || (i % 1000) AS origin, i AS delay"
                     " FROM range(0, 150000, 7) t(i)",
                     {data::Format::parquet, data::Mode::overwrite, "test", "", {}}, DataFixture::act());
  f_.apply(R"(
apiVersion: falaj/v1
kind: Entity
metadata: {tenant: acme, project: flights, name: origin}
spec: {key: [{name: origin, type: text}]}
---
apiVersion: falaj/v1
kind: FeatureView
metadata: {tenant: acme, project: flights, name: grouped}
spec:
  {entity: origin, dataset: trips, sql: "SELECT origin, moment, avg(delay) AS d FROM trips GROUP BY 1, 2", time: moment, features: [{name: d}]}
---
# Rows of the same time: which of them is the last must not depend on who found it first.
apiVersion: falaj/v1
kind: FeatureView
metadata: {tenant: acme, project: flights, name: distinct}
spec:
  {entity: origin, dataset: trips, sql: "SELECT DISTINCT origin, date_trunc('hour', moment) AS moment, delay AS e FROM trips",
   time: moment, tile: 1h, features: [{name: e}], aggregates: [{name: last_e, aggregate: last, of: e, window: 2h}]}
---
apiVersion: falaj/v1
kind: FeatureView
metadata: {tenant: acme, project: flights, name: plain}
spec:
  {entity: origin, dataset: trips, sql: SELECT * FROM trips WHERE delay >= 0, time: moment, features: [{name: p, column: delay}]}
---
{apiVersion: falaj/v1, kind: FeatureService, metadata: {tenant: acme, project: flights, name: groups}, spec: {features: ["grouped:d", "distinct:*", "plain:p"]}}
)");
  std::optional<Digest> first;
  for (const unsigned threads : {4U, 1U, 2U}) {
    data::DataLimits limits;
    limits.room.threads = threads;
    data::Datasets datasets(*f_.base.database, *f_.resources, *f_.base.vault, *f_.scratch, f_.base.clock,
                            f_.base.random, *f_.base.metrics, limits);
    Definitions definitions(*f_.resources, datasets);
    Features features(*f_.base.database, *f_.resources, datasets, definitions);
    const auto set = features.train_set(DataFixture::kFlights, {"groups", {"asked", std::nullopt}, "", "train"},
                                        may_all, DataFixture::act());
    EXPECT_EQ(f_.rows(set, "SELECT count(*), count(d), count(e), count(*) FILTER (d <> delay OR p <> delay) FROM v"),
              (Rows{"21429|21429|21429|0"}))
        << threads << " threads";
    if (!first) first = set.id;
    EXPECT_EQ(set.id, *first) << threads << " threads";
  }
}

// Four times the memory: joined, put in order, written.
TEST_F(FeaturesTest, LongTextsNeedNoMoreMemoryThanThereIs) {
  constexpr std::int64_t kRows = 80'000, kTimes = 430;
  data::DataLimits limits;
  limits.room.memory_bytes = std::uint64_t{64} << 20;
  static_assert(kRows * kTimes * 8 > 4 * (std::int64_t{64} << 20));
  data::Datasets datasets(*f_.base.database, *f_.resources, *f_.base.vault, *f_.scratch, f_.base.clock, f_.base.random,
                          *f_.base.metrics, limits);
  f_.declare("trips",
             "{columns: [{name: moment, type: timestamp}, {name: origin, type: text}, {name: delay, type: int64}], "
             "time: moment}");
  datasets.store(
      DataFixture::kFlights, "trips", *datasets.room(),
      fmt::format("SELECT make_timestamp(i * 1000000) AS moment, 'k' || (i % 1000) AS origin, i AS delay FROM"
                  " range({}) t(i)",
                  kRows),
      {data::Format::parquet, data::Mode::overwrite, "test", "", {}}, DataFixture::act());
  f_.apply(fmt::format(R"(
apiVersion: falaj/v1
kind: Entity
metadata: {{tenant: acme, project: flights, name: origin}}
spec: {{key: [{{name: origin, type: text}}]}}
---
apiVersion: falaj/v1
kind: FeatureView
metadata: {{tenant: acme, project: flights, name: long}}
spec:
  entity: origin
  dataset: trips
  sql: "SELECT *, repeat(lpad(delay::VARCHAR, 8, '0'), {}) AS note FROM trips"
  time: moment
  features: [{{name: note}}]
---
{{apiVersion: falaj/v1, kind: FeatureService, metadata: {{tenant: acme, project: flights, name: notes}}, spec: {{features: ["long:note"]}}}}
)",
                       kTimes));
  Definitions definitions(*f_.resources, datasets);
  Features features(*f_.base.database, *f_.resources, datasets, definitions);
  const auto set = features.train_set(DataFixture::kFlights, {"notes", {"trips", std::nullopt}, "", "train"}, may_all,
                                      DataFixture::act());
  EXPECT_EQ(f_.rows(set, "SELECT count(*), bool_and(left(note, 8)::BIGINT = delay), min(length(note)) FROM v"),
            (Rows{fmt::format("{}|1|{}", kRows, kTimes * 8)}));
}

TEST_F(FeaturesTest, MayBeOfADatasetOfAnyName) {
  f_.apply(kDeclared);
  f_.declare("spine", "{columns: [{name: at, type: timestamp}, {name: origin, type: text}, {name: x, type: int64}]}");
  f_.ingest("spine", "at,origin,x\n2001-01-01 07:00,SEA,7\n");
  f_.apply(R"(
apiVersion: falaj/v1
kind: FeatureView
metadata: {tenant: acme, project: flights, name: other}
spec: {entity: origin, dataset: spine, time: at, features: [{name: x}]}
---
{apiVersion: falaj/v1, kind: FeatureService, metadata: {tenant: acme, project: flights, name: both}, spec: {features: ["other:x", "airport:flights_3h", "airport@1:mean_3h"]}}
)");
  const auto set = features_.train_set(DataFixture::kFlights, {"both", {"delays", std::nullopt}, "", "train"}, may_all,
                                       DataFixture::act());
  EXPECT_EQ(f_.rows(set, "SELECT strftime(\"at\", '%H'), origin, x, flights_3h, mean_3h FROM v WHERE origin = 'SEA'"),
            (Rows{"08|SEA|7|0|null", "09|SEA|7|1|10", "10|SEA|7|2|20", "14|SEA|7|0|null"}));
}

TEST_F(FeaturesTest, AreCheckedWhenDeclared) {
  const auto said = [&](std::string text) {
    try {
      f_.apply(text);
    } catch (const Error& e) {
      std::string out = e.what();
      for (const auto& fault : e.faults()) out += "; " + fault.where + ": " + fault.what;
      return out;
    }
    return std::string("no error");
  };
  const std::string entity =
      "{apiVersion: falaj/v1, kind: Entity, metadata: {tenant: acme, project: flights, name: origin}, spec: {key: "
      "[{name: origin, type: text}]}}\n---\n";
  const auto view = [&](const std::string& spec) {
    return said(
        entity +
        "{apiVersion: falaj/v1, kind: FeatureView, metadata: {tenant: acme, project: flights, name: v}, spec: " + spec +
        "}");
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(view("{entity: origin, dataset: delays, time: at}"),
              HasSubstr("must have features, aggregates or expressions"));
  EXPECT_THAT(view("{entity: nobody, dataset: nowhere, time: at, features: [{name: delay}]}"),
              ::testing::AllOf(HasSubstr("no Entity"), HasSubstr("no Dataset")));
  EXPECT_THAT(view("{entity: origin, dataset: delays, time: origin, features: [{name: nothing}]}"),
              ::testing::AllOf(HasSubstr("'origin' is not a column of timestamps"), HasSubstr("'nothing' is none")));
  EXPECT_THAT(view("{entity: origin, dataset: delays, time: at, aggregates: [{name: m, aggregate: mean, of: origin, "
                   "window: 1h}]}"),
              HasSubstr("spec.tile"));
  EXPECT_THAT(view("{entity: origin, dataset: delays, time: at, tile: 1h, aggregates: [{name: m, aggregate: mean, of: "
                   "origin, window: 1h}]}"),
              HasSubstr("'origin' is text, not numbers"));
  EXPECT_THAT(view("{entity: origin, dataset: delays, time: at, tile: 1h, aggregates: [{name: m, aggregate: count, "
                   "window: 90m}]}"),
              HasSubstr("whole number of tiles"));
  f_.apply(kDeclared);
  EXPECT_THAT(
      said("{apiVersion: falaj/v1, kind: FeatureService, metadata: {tenant: acme, project: flights, name: s}, spec: "
           "{features: "
           "[\"airport:nothing\", \"airport:*\", \"airport:mean_3h\", what]}}"),
      ::testing::AllOf(HasSubstr("no feature 'nothing'"), HasSubstr("'mean_3h' is there twice"), HasSubstr("'what'")));
}

}  // namespace
}  // namespace falaj::features
