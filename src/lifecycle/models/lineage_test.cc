// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/lineage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "lifecycle/models/testing.h"

namespace falaj::models {
namespace {

using Kind = Thing::Kind;
using testing::Contains;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

// flights.csv -> pretraining -> base model -> tuning -> tuned model -> delay/1 -> copy/1
class LineageOf : public testing::TestWithParam<std::string>, public RegistryFixture {
 protected:
  LineageOf() : RegistryFixture(GetParam()) {
    pretraining = run_with(kFlights, {});
    track->log_inputs(kFlights, pretraining, {{{"flights.csv", "d1", "local", "x", "", ""}, {}}}, {}, act());
    base_model = model_with(kFlights, pretraining, {{"m", "base"}});
    tuning = run_with(kFlights, {});
    track->log_inputs(kFlights, tuning, {}, {base_model}, act());
    tuned_model = model_with(kFlights, tuning, {{"m", "tuned"}});
    track->log_outputs(kFlights, tuning, {{tuned_model, 0}}, act());
    register_as("delay", "models:/" + tuned_model);
    register_as("copy", "models:/delay/1");
  }
  void register_as(const std::string& model, const std::string& source) {
    registry->create_model(kFlights, model, {}, "", act());
    NewVersion wanted;
    wanted.model = model;
    wanted.source = source;
    registry->create_version(kFlights, wanted, act());
  }
  Lineage go(Lineage (*way)(sql::Reader&, const Where&, const Thing&, std::size_t), const Thing& thing,
             const Where& where = kFlights, std::size_t most = kLineageMax) {
    return base.database->read([&](sql::Reader& r) { return way(r, where, thing, most); });
  }
  std::string pretraining, base_model, tuning, tuned_model;
};

TEST_P(LineageOf, AVersionLeadsUpToItsData) {
  const auto lineage = go(up, {Kind::version, "copy/1"});
  EXPECT_TRUE(lineage.whole);
  EXPECT_EQ(lineage.things.front(), (Thing{Kind::version, "copy/1"}));
  EXPECT_THAT(lineage.things, UnorderedElementsAre(Thing{Kind::version, "copy/1"}, Thing{Kind::version, "delay/1"},
                                                   Thing{Kind::logged_model, tuned_model}, Thing{Kind::run, tuning},
                                                   Thing{Kind::logged_model, base_model}, Thing{Kind::run, pretraining},
                                                   Thing{Kind::dataset, "flights.csv@d1"}));
  EXPECT_THAT(lineage.edges, Contains(Edge{{Kind::dataset, "flights.csv@d1"}, {Kind::run, pretraining}, "input"}));
  EXPECT_THAT(lineage.edges, Contains(Edge{{Kind::version, "delay/1"}, {Kind::version, "copy/1"}, "copied"}));
}

TEST_P(LineageOf, GoesFromDatasetToDatasetWhereSomebodyKnowsThem) {
  // raw -> flights.csv, which the first run used
  // and delay/1 -> late, which holds its answers
  const Thing raw{Kind::dataset, "raw@r1"}, flights{Kind::dataset, "flights.csv@d1"}, late{Kind::dataset, "late@l1"};
  const Thing delay{Kind::version, "delay/1"};
  using Things = std::vector<Thing>;
  const Links links = [&](sql::Reader&, const Thing& of, bool upward) -> std::optional<Things> {
    if (of == raw) return upward ? Things{} : Things{flights};
    if (of == flights) return upward ? Things{raw} : Things{};
    if (of == late) return upward ? Things{delay} : Things{};
    if (of == delay && !upward) return Things{late};
    return std::nullopt;
  };
  base.database->read([&](sql::Reader& r) {
    const Edge rows{{Kind::dataset, "raw@r1"}, {Kind::dataset, "flights.csv@d1"}, "rows"};
    EXPECT_THAT(up(r, kFlights, {Kind::run, pretraining}, 100, links).edges, Contains(rows));
    const auto below = down(r, kFlights, {Kind::dataset, "raw@r1"}, 100, links);
    EXPECT_THAT(below.edges, Contains(rows));
    EXPECT_THAT(below.things, Contains(Thing{Kind::version, "copy/1"}));
    const Edge answers{delay, late, "answers"};
    EXPECT_THAT(below.edges, Contains(answers));
    const auto above = up(r, kFlights, late, 100, links);
    EXPECT_THAT(above.edges, Contains(answers));
    EXPECT_THAT(above.things, Contains(raw));
    EXPECT_ERROR(down(r, kFlights, {Kind::dataset, "none@x"}, 100, links), Code::not_found);
  });
}

TEST_P(LineageOf, DataLeadsDownToVersions) {
  const auto lineage = go(down, {Kind::dataset, "flights.csv@d1"});
  EXPECT_THAT(lineage.things, Contains(Thing{Kind::version, "delay/1"}));
  EXPECT_THAT(lineage.things, Contains(Thing{Kind::version, "copy/1"}));
  const auto text = to_json(lineage);
  EXPECT_EQ(text.at("things").as_array().size(), lineage.things.size());
  EXPECT_EQ(text.at("things").as_array()[0].at("kind").as_string(), "dataset");
}

TEST_P(LineageOf, StaysInItsProject) {
  EXPECT_ERROR(go(up, {Kind::version, "delay/1"}, kCargo), Code::not_found);
  EXPECT_ERROR(go(down, {Kind::run, pretraining}, kCargo), Code::not_found);
  EXPECT_ERROR(go(down, {Kind::dataset, "flights.csv@d1"}, kCargo), Code::not_found);
  EXPECT_ERROR(go(up, {Kind::logged_model, base_model}, kRockets), Code::not_found);
  EXPECT_ERROR(go(up, {Kind::version, "delay/9"}), Code::not_found);
}

TEST_P(LineageOf, SaysWhenThereIsMoreThanWasAskedFor) {
  const auto lineage = go(down, {Kind::dataset, "flights.csv@d1"}, kFlights, 3);
  EXPECT_EQ(lineage.things.size(), 3U);
  EXPECT_FALSE(lineage.whole);
}

TEST_P(LineageOf, ARunBehindAnAliasIsNotToBeRemoved) {
  EXPECT_EQ(registry->descends(kFlights, pretraining), std::nullopt);
  registry->set_alias(kFlights, "copy", "champion", 1, act());
  const auto why = registry->descends(kFlights, pretraining);
  ASSERT_TRUE(why);
  EXPECT_THAT(*why, testing::HasSubstr("'champion'"));
  EXPECT_TRUE(registry->descends(kFlights, tuning));
  EXPECT_FALSE(registry->descends(kFlights, run_with(kFlights, {})));
  registry->delete_version(kFlights, "copy", 1, act());
  EXPECT_FALSE(registry->descends(kFlights, pretraining));
  registry->set_stage(kFlights, "delay", 1, Stage::production, false, act());
  EXPECT_TRUE(registry->descends(kFlights, pretraining));
  EXPECT_ERROR(registry->descends(kCargo, pretraining), Code::not_found);
}

TEST_P(LineageOf, RunsAreToldAsOpenLineage) {
  track->log(kFlights, tuning, {{}, {{"lr", "0.1"}}, {}}, act());
  const auto tell = [&] {
    return base.database->read([&](sql::Reader& r) { return to_open_lineage(r, kFlights, tuning, "urn:falaj"); });
  };
  EXPECT_EQ(tell().size(), 1U) << "it still runs";
  track->update_run(kFlights, tuning, {track::RunStatus::failed, 1'000'000'123'000, {}}, act());
  const auto events = tell();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].at("eventType").as_string(), "START");
  const auto& end = events[1].as_object();
  EXPECT_EQ(end.at("eventType").as_string(), "FAIL");
  EXPECT_EQ(end.at("eventTime").as_string(), "2001-09-09T01:48:43.000Z");
  EXPECT_EQ(end.at("run").at("runId").as_string().size(), 36U);
  EXPECT_EQ(end.at("job").at("namespace").as_string(), "falaj://acme/flights");
  EXPECT_EQ(end.at("inputs").as_array().at(0).at("name").as_string(), "model/" + base_model);
  EXPECT_EQ(end.at("outputs").as_array().at(0).at("name").as_string(), "model/" + tuned_model);
  EXPECT_TRUE(end.at("run").at("facets").as_object().contains("executionParameters"));
}

INSTANTIATE_TEST_SUITE_P(Engines, LineageOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::models
