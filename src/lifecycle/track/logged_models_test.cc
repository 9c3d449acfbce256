// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/logged_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "foundation/base/testing.h"
#include "governance/vault/testing.h"
#include "lifecycle/track/track.h"

namespace falaj::track {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LoggedModelsOf : public testing::TestWithParam<std::string> {
 protected:
  LoggedModelsOf() : base(GetParam()) {
    for (const auto& module : {Track::migrations(), LoggedModels::migrations()}) base.database->migrate(module);
    track = std::make_unique<Track>(*base.database, *base.directory, base.clock, base.random, *base.metrics);
    models = std::make_unique<LoggedModels>(*base.database, base.clock, base.random, *base.metrics);
    run_id = track->create_run(kFlights, {}, act).info.run_id;
  }
  LoggedModel make(const std::string& name, std::vector<KeyValue> params = {}, std::vector<KeyValue> tags = {}) {
    base.clock.advance(std::chrono::seconds(1));
    return models->create(kFlights, {0, name, "sklearn", run_id, std::move(params), std::move(tags)}, act);
  }
  void measure(const std::string& model_id, const std::string& key, double value, const std::string& dataset = "",
               std::int64_t step = 0) {
    track->log(kFlights, run_id,
               {{{key, {1000, step, value}, model_id, dataset, dataset.empty() ? "" : "d-" + dataset}}, {}, {}}, act);
  }
  std::vector<std::string> find(SearchLoggedModels search) {
    search.experiments = {0};
    std::vector<std::string> out;
    for (const auto& model : models->search(kFlights, search).items) out.push_back(model.name);
    return out;
  }
  std::vector<std::string> find(const std::string& filter) {
    SearchLoggedModels search;
    search.filter = filter;
    return find(search);
  }

  static inline const Where kFlights = vault::VaultFixture::kFlights, kCargo = vault::VaultFixture::kCargo;
  const sql::Act act = vault::VaultFixture::act();
  vault::VaultFixture base;
  std::unique_ptr<Track> track;
  std::unique_ptr<LoggedModels> models;
  std::string run_id;
};

TEST_P(LoggedModelsOf, BeginPendingAndBecomeReady) {
  const auto made = make("forest", {{"depth", "5"}}, {{"team", "ops"}});
  EXPECT_TRUE(made.model_id.starts_with("m-"));
  EXPECT_EQ(made.model_id.size(), 34U);
  EXPECT_EQ(made.status, ModelStatus::pending);
  EXPECT_EQ(made.source_run_id, run_id);
  EXPECT_EQ(made.type, "sklearn");
  EXPECT_THAT(made.params, ElementsAre(KeyValue{"depth", "5"}));
  EXPECT_THAT(made.tags, ElementsAre(KeyValue{"team", "ops"}));
  EXPECT_EQ(artifact_uri(made), "mlflow-artifacts:/0/models/" + made.model_id + "/artifacts");
  base.clock.advance(std::chrono::seconds(1));
  const auto ready = models->set_status(kFlights, made.model_id, ModelStatus::ready, act);
  EXPECT_EQ(ready.status, ModelStatus::ready);
  EXPECT_EQ(ready.updated_ms, made.created_ms + 1000);
  EXPECT_FALSE(make("").name.empty()) << "a random one";
}

TEST_P(LoggedModelsOf, AreNotFoundFromOtherProjects) {
  const auto id = make("forest").model_id;
  EXPECT_ERROR(models->get(kCargo, id), Code::not_found);
  EXPECT_ERROR(models->set_tags(kCargo, id, {{"a", "b"}}, act), Code::not_found);
  EXPECT_ERROR(models->remove(kCargo, id, act), Code::not_found);
  const auto foreign = track->create_run(kCargo, {}, act).info.run_id;
  EXPECT_ERROR(models->create(kFlights, {0, "x", "", foreign, {}, {}}, act), Code::not_found);
  // Whoever learnt the id cannot put numbers on it from elsewhere.
  track->log(kCargo, foreign, {{{"auc", {1, 0, 1.0}, id, "", ""}}, {}, {}}, act);
  EXPECT_THAT(models->get(kFlights, id).metrics, IsEmpty());
  EXPECT_THAT(find("metrics.auc > 0"), IsEmpty());
}

TEST_P(LoggedModelsOf, RefuseWhatClientsCannotSpell) {
  for (const std::string name : {"a/b", "a:b", "a.b", "a%b", "a\"b", "a'b"}) EXPECT_ERROR(make(name), Code::invalid);
  make(std::string(kModelNameMax, 'a'));
  EXPECT_ERROR(make(std::string(kModelNameMax + 1, 'a')), Code::invalid);
  EXPECT_ERROR(models->create(kFlights, {7, "x", "", "", {}, {}}, act), Code::not_found);
  track->set_experiment_stage(kFlights, track->create_experiment(kFlights, "old", {}, act), Stage::deleted, act);
  EXPECT_ERROR(models->create(kFlights, {1, "x", "", "", {}, {}}, act), Code::invalid);
}

TEST_P(LoggedModelsOf, KeepTagsAndParams) {
  const auto id = make("forest").model_id;
  models->set_tags(kFlights, id, {{"a", "1"}, {"b", "2"}}, act);
  models->set_tags(kFlights, id, {{"a", "3"}}, act);
  models->delete_tag(kFlights, id, "b", act);
  EXPECT_ERROR(models->delete_tag(kFlights, id, "b", act), Code::not_found);
  EXPECT_THAT(models->get(kFlights, id).tags, ElementsAre(KeyValue{"a", "3"}));
  models->log_params(kFlights, id, {{"depth", "5"}}, act);
  models->log_params(kFlights, id, {{"depth", "5"}, {"trees", "9"}}, act);
  EXPECT_ERROR(models->log_params(kFlights, id, {{"new", "1"}, {"depth", "6"}}, act), Code::invalid);
  EXPECT_THAT(models->get(kFlights, id).params, ElementsAre(KeyValue{"depth", "5"}, KeyValue{"trees", "9"}));
}

TEST_P(LoggedModelsOf, StayToBeAskedForWhenDeleted) {
  const auto id = make("forest").model_id;
  models->remove(kFlights, id, act);
  EXPECT_ERROR(models->get(kFlights, id), Code::not_found);
  EXPECT_EQ(models->get(kFlights, id, true).stage, Stage::deleted);
  EXPECT_ERROR(models->remove(kFlights, id, act), Code::not_found);
  EXPECT_THAT(find(""), IsEmpty());
}

TEST_P(LoggedModelsOf, HaveTheMetricsThatSpeakOfThem) {
  const auto id = make("forest").model_id;
  measure(id, "auc", 0.8, "", 1);
  measure(id, "auc", 0.9, "", 2);
  measure(id, "auc", 0.7, "test");
  measure("", "auc", 0.1);
  const auto metrics = models->get(kFlights, id).metrics;
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[0].metric.point.value, 0.9);
  EXPECT_EQ(metrics[0].run_id, run_id);
  EXPECT_EQ(metrics[1].metric.point.value, 0.7);
  EXPECT_EQ(metrics[1].metric.dataset_name, "test");
}

TEST_P(LoggedModelsOf, AreFoundByWhatIsKnownOfThem) {
  const auto a = make("a", {{"depth", "5"}}, {{"team", "ops"}}).model_id;
  const auto b = make("b", {{"depth", "6"}}).model_id;
  make("c");
  models->set_status(kFlights, b, ModelStatus::ready, act);
  measure(a, "auc", 0.9, "train");
  measure(a, "auc", 0.6, "test");
  measure(b, "auc", 0.8, "test");

  EXPECT_THAT(find(""), ElementsAre("c", "b", "a")) << "newest first";
  EXPECT_THAT(find("name IN ('a', 'c')"), ElementsAre("c", "a"));
  EXPECT_THAT(find("model_id = '" + a + "'"), ElementsAre("a"));
  EXPECT_THAT(find("source_run_id = '" + run_id + "' AND model_type = 'sklearn'"), ElementsAre("c", "b", "a"));
  EXPECT_THAT(find("status = 'READY'"), ElementsAre("b"));
  EXPECT_THAT(find("status = 'LOGGED_MODEL_READY'"), ElementsAre("b"));
  EXPECT_THAT(find("params.depth = '5'"), ElementsAre("a"));
  EXPECT_THAT(find("params.depth != '5'"), ElementsAre("b"));
  EXPECT_THAT(find("tags.team LIKE 'o%'"), ElementsAre("a"));
  EXPECT_THAT(find("metrics.auc > 0.7"), ElementsAre("b", "a"));
  EXPECT_THAT(find("metrics.auc > 0.7 AND params.depth = '6'"), ElementsAre("b"));
  EXPECT_THAT(find("creation_time > 1"), ElementsAre("c", "b", "a"));
  EXPECT_ERROR(find("colour = 'red'"), Code::invalid);

  SearchLoggedModels on_test;
  on_test.filter = "metrics.auc > 0.7";
  on_test.datasets = {{"test", ""}};
  EXPECT_THAT(find(on_test), ElementsAre("b"));
  on_test.datasets = {{"test", "other digest"}};
  EXPECT_THAT(find(on_test), IsEmpty());
}

TEST_P(LoggedModelsOf, AreOrderedWithMissingMetricsLast) {
  const auto a = make("a").model_id, b = make("b").model_id, c = make("c").model_id;
  make("none");
  measure(a, "auc", 0.9, "train");
  measure(a, "auc", 0.1, "test");
  measure(b, "auc", 0.5, "test");
  measure(c, "auc", std::nan(""), "test");
  SearchLoggedModels search;
  search.order_by = {{"metrics.auc", true, {"test", "d-test"}}};
  EXPECT_THAT(find(search), ElementsAre("a", "b", "c", "none"));
  search.order_by = {{"metrics.auc", false, {"test", ""}}};
  EXPECT_THAT(find(search), ElementsAre("b", "a", "c", "none"));
  search.order_by = {{"metrics.auc", false, {"train", ""}}, {"name", true, {}}};
  EXPECT_THAT(find(search), ElementsAre("a", "b", "c", "none"));
  search.order_by = {{"name", false, {}}};
  search.offset = 1;
  search.limit = 2;
  EXPECT_THAT(find(search), ElementsAre("c", "b"));
  search.experiments = {0};
  EXPECT_TRUE(models->search(kFlights, search).more);
  search.offset = 2;
  EXPECT_FALSE(models->search(kFlights, search).more);
  search.offset = 9;
  EXPECT_THAT(find(search), IsEmpty());
  EXPECT_THAT(models->search(kCargo, search).items, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Engines, LoggedModelsOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::track
