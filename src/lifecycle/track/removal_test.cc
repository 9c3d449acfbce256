// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "governance/vault/testing.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/track.h"

namespace falaj::track {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class RemovalOf : public testing::TestWithParam<std::string> {
 protected:
  RemovalOf() : base(GetParam()) {
    for (const auto& module : {Track::migrations(), LoggedModels::migrations()}) base.database->migrate(module);
    track = std::make_unique<Track>(*base.database, *base.directory, base.clock, base.random, *base.metrics);
  }
  // A run that logged something of everything.
  std::string full_run(const std::string& dataset) {
    const auto id = track->create_run(kFlights, {}, act).info.run_id;
    Batch batch{{}, {{"depth", "5"}}, {{"team", "ops"}}};
    for (int i = 0; i < 100; ++i) batch.metrics.push_back({"loss", {1000 + i, i, 1.0 / (1 + i)}, "", "", ""});
    track->log(kFlights, id, batch, act);
    track->log_inputs(kFlights, id, {{{dataset, "d1", "", "", "", ""}, {}}, {{"shared", "d2", "", "", "", ""}, {}}},
                      {"m-1"}, act);
    track->log_outputs(kFlights, id, {{"m-2", 1}}, act);
    return id;
  }
  RemovedRun remove(const std::string& id) {
    return track->remove_run(
        kFlights, id, [](sql::Reader&) {}, act);
  }
  std::vector<std::string> found() {
    SearchRuns search;
    search.experiments = {kDefaultExperiment};
    search.view = View::all;
    std::vector<std::string> out;
    for (const auto& run : track->search_runs(kFlights, search).items) out.push_back(run.info.run_id);
    return out;
  }

  static inline const Where kFlights = vault::VaultFixture::kFlights, kCargo = vault::VaultFixture::kCargo;
  const sql::Act act = vault::VaultFixture::act();
  vault::VaultFixture base;
  std::unique_ptr<Track> track;
};

TEST_P(RemovalOf, TakesEverythingOfTheRunAndNothingOfOthers) {
  const auto gone = full_run("alone"), kept = full_run("other");
  const auto before = track->run(kFlights, kept);
  track->set_run_stage(kFlights, gone, Stage::deleted, act);
  const auto removed = remove(gone);
  EXPECT_EQ(removed.points, 100);
  EXPECT_GT(removed.bytes, 0);
  // The run, its param, its two tags, its metric and block, two inputs, the dataset that was its own, two models.
  EXPECT_EQ(removed.rows, 1 + 1 + 2 + 2 + 3 + 2);
  EXPECT_ERROR(track->run(kFlights, gone), Code::not_found);

  const auto after = track->run(kFlights, kept);
  EXPECT_EQ(after.params, before.params);
  EXPECT_EQ(after.datasets.size(), 2U);
  EXPECT_THAT(track->history(kFlights, kept, "loss", std::nullopt, 1000).points, SizeIs(100));
  std::vector<std::string> datasets;
  for (const auto& d : track->datasets(kFlights, {0})) datasets.push_back(d.name);
  EXPECT_THAT(datasets, ElementsAre("other", "shared"));
}

TEST_P(RemovalOf, LeavesNoRowOfTheRunInAnyTable) {
  const auto id = full_run("alone");
  track->set_run_stage(kFlights, id, Stage::deleted, act);
  remove(id);
  const auto left = base.database->read([](sql::Reader& r) {
    return *r.first(
        "SELECT (SELECT COUNT(*) FROM track_run) + (SELECT COUNT(*) FROM track_param) + (SELECT COUNT(*) FROM"
        " track_tag) + (SELECT COUNT(*) FROM track_metric) + (SELECT COUNT(*) FROM track_block) + (SELECT COUNT(*)"
        " FROM track_input) + (SELECT COUNT(*) FROM track_dataset) + (SELECT COUNT(*) FROM track_model_link)",
        {}, [](const sql::Row& row) { return row.integer(0); });
  });
  EXPECT_EQ(left, 0);
}

TEST_P(RemovalOf, IsSeenBySearchesThatKnewTheRun) {
  const auto gone = full_run("a"), kept = full_run("b");
  EXPECT_THAT(found(), SizeIs(2));
  track->set_run_stage(kFlights, gone, Stage::deleted, act);
  remove(gone);
  EXPECT_THAT(found(), ElementsAre(kept));
  // Nor does a later run come to stand in its place.
  const auto later = full_run("c");
  EXPECT_THAT(found(), testing::UnorderedElementsAre(kept, later));
  EXPECT_EQ(track->run(kFlights, later).params.size(), 1U);
}

TEST_P(RemovalOf, IsOnlyForDeletedRunsOfTheProject) {
  const auto id = full_run("a");
  EXPECT_ERROR(remove(id), Code::conflict);
  track->set_run_stage(kFlights, id, Stage::deleted, act);
  EXPECT_ERROR(track->remove_run(
                   kCargo, id, [](sql::Reader&) {}, act),
               Code::not_found);
  remove(id);
  EXPECT_ERROR(remove(id), Code::not_found);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_P(RemovalOf, ChangesNothingWhenTheCheckRefuses) {
  const auto id = full_run("a");
  track->set_run_stage(kFlights, id, Stage::deleted, act);
  EXPECT_ERROR(track->remove_run(
                   kFlights, id, [](sql::Reader&) { throw Error(Code::conflict, "in use"); }, act),
               Code::conflict);
  EXPECT_EQ(track->run(kFlights, id).metrics.size(), 1U);
  EXPECT_THAT(found(), ElementsAre(id));
}

INSTANTIATE_TEST_SUITE_P(Engines, RemovalOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::track
