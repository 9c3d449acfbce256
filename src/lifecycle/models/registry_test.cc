// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "lifecycle/models/testing.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::models {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Registries : public testing::TestWithParam<std::string>, public RegistryFixture {
 protected:
  Registries() : RegistryFixture(GetParam()) {}

  Version make(const std::string& model, const std::string& text = "weights") {
    return version_of(kFlights, model, run_with(kFlights, {{"model/a.onnx", text}}));
  }
  std::vector<std::string> names(const std::string& filter, std::vector<std::string> order_by = {}) {
    std::vector<std::string> out;
    for (const auto& m : registry->search_models(kFlights, {filter, std::move(order_by)}).items) out.push_back(m.name);
    return out;
  }
  std::vector<std::string> versions(const std::string& filter, std::vector<std::string> order_by = {}) {
    std::vector<std::string> out;
    for (const auto& v : registry->search_versions(kFlights, {filter, std::move(order_by)}).items)
      out.push_back(fmt::format("{}/{}", v.model, v.number));
    return out;
  }
};

TEST_P(Registries, KeepAModelUnderItsName) {
  const auto made = registry->create_model(kFlights, "delay", {{"team", "ops"}}, "how late", act());
  EXPECT_EQ(made.name, "delay");
  EXPECT_EQ(made.description, "how late");
  EXPECT_EQ(made.created_by, "user/ada");
  EXPECT_THAT(made.tags, ElementsAre(KeyValue{"team", "ops"}));
  EXPECT_ERROR(registry->create_model(kFlights, "delay", {}, "", act()), Code::exists);
  EXPECT_ERROR(registry->model(kCargo, "delay"), Code::not_found);
  EXPECT_ERROR(registry->model(kRockets, "delay"), Code::not_found);

  registry->rename_model(kFlights, "delay", "lateness", act());
  EXPECT_ERROR(registry->model(kFlights, "delay"), Code::not_found);
  registry->set_model_tag(kFlights, "lateness", {"team", "ml"}, act());
  registry->delete_model_tag(kFlights, "lateness", "absent", act());
  EXPECT_THAT(registry->model(kFlights, "lateness").tags, ElementsAre(KeyValue{"team", "ml"}));
  registry->create_model(kFlights, "other", {}, "", act());
  EXPECT_ERROR(registry->rename_model(kFlights, "other", "lateness", act()), Code::exists);

  registry->delete_model(kFlights, "lateness", act());
  EXPECT_ERROR(registry->model(kFlights, "lateness"), Code::not_found);
  EXPECT_THAT(registry->create_model(kFlights, "lateness", {}, "", act()).tags, IsEmpty());
}

TEST_P(Registries, RefuseNamesThatClientsCouldNotSpell) {
  for (const auto* name : {"", "  ", "a/b", "a:b", "a\nb"})
    EXPECT_ERROR(registry->create_model(kFlights, name, {}, "", act()), Code::invalid);
  registry->create_model(kFlights, std::string(kNameMax, 'a'), {}, "", act());
  EXPECT_ERROR(registry->create_model(kFlights, std::string(kNameMax + 1, 'a'), {}, "", act()), Code::invalid);
  EXPECT_ERROR(registry->create_model({{"acme"}, {"absent"}}, "a", {}, "", act()), Code::not_found);
}

TEST_P(Registries, NumberVersionsAndNeverUseANumberAgain) {
  EXPECT_EQ(make("delay").number, 1);
  EXPECT_EQ(make("delay").number, 2);
  registry->delete_version(kFlights, "delay", 2, act());
  EXPECT_EQ(make("delay").number, 3);
  EXPECT_ERROR(registry->version(kFlights, "delay", 2), Code::not_found);
  EXPECT_THAT(versions("name = 'delay'"), ElementsAre("delay/3", "delay/1"));
}

TEST_P(Registries, ReadAVersionAsItWasWhateverHappensToItsRun) {
  const auto run_id = run_with(kFlights, {{"model/a.onnx", "first"}, {"model/data/b", "two"}, {"other", "x"}});
  const auto version = version_of(kFlights, "delay", run_id);
  EXPECT_EQ(artifact_uri(version), fmt::format("mlflow-artifacts:/@versions/{}/1", version.model_row));
  base.put(kFlights, track::run_artifact(run_id, "model/a.onnx"), "second");
  base.vault->remove(kFlights, track::run_artifact(run_id, "model/data/b"), act());
  base.clock.advance(std::chrono::hours(100));
  base.vault->collect(act());

  const auto files = registry->files(kFlights, version.model_row, 1, "");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].name, "a.onnx");
  EXPECT_EQ(files[1].name, "data/b");
  const auto read = [&](const std::string& path) {
    const auto entry = registry->file(kFlights, version.model_row, 1, path);
    return std::string(as_text(base.vault->open(kFlights, entry, 0, entry.bytes)->read_all()));
  };
  EXPECT_EQ(read("a.onnx"), "first");
  EXPECT_EQ(read("data/b"), "two");
  EXPECT_ERROR(read("data"), Code::not_found);
  EXPECT_ERROR(registry->files(kCargo, version.model_row, 1, ""), Code::not_found);

  registry->delete_version(kFlights, "delay", 1, act());
  EXPECT_EQ(base.vault->collect(act()).objects, 2U) << "nothing keeps them any more";
  EXPECT_ERROR(registry->file(kFlights, version.model_row, 1, "a.onnx"), Code::not_found);
}

TEST_P(Registries, SignWhatAVersionIsMadeOf) {
  const auto run_id =
      run_with(kFlights, {{"model/MLmodel", "signature:\n  inputs: '[{\"type\": \"double\"}]'\n  outputs: null\n"},
                          {"model/a.onnx", "weights"}});
  const auto version = version_of(kFlights, "delay", run_id);
  const auto manifest = verify(registry->manifest(kFlights, version.model_row, 1), registry->public_key());
  EXPECT_EQ(manifest.tenant, "acme");
  EXPECT_EQ(manifest.project, "flights");
  EXPECT_EQ(manifest.name, "delay");
  EXPECT_EQ(manifest.version, 1);
  EXPECT_EQ(manifest.run_id, run_id);
  EXPECT_EQ(manifest.signature, R"({"inputs":"[{\"type\": \"double\"}]","outputs":null})");
  std::vector<ManifestFile> files;
  for (const auto& file : registry->files(kFlights, version.model_row, 1, ""))
    files.push_back({file.name, static_cast<std::int64_t>(file.bytes), file.content});
  check_files(manifest, files);
}

TEST_P(Registries, TakeEverySpellingOfASourceOfTheProject) {
  const auto run_id = run_with(kFlights, {{"model/a.onnx", "weights"}, {"single.onnx", "one"}});
  const auto model_id = model_with(kFlights, run_id, {{"a.onnx", "weights"}});
  registry->create_model(kFlights, "delay", {}, "", act());
  const auto make = [&](const std::string& source) {
    NewVersion wanted;
    wanted.model = "delay";
    wanted.source = source;
    return registry->create_version(kFlights, wanted, act());
  };
  const std::string sources[] = {"mlflow-artifacts:/0/" + run_id + "/artifacts/model",
                                 "mlflow-artifacts:/0/" + run_id + "/artifacts/model/",
                                 "mlflow-artifacts:/0/models/" + model_id + "/artifacts",
                                 "runs:/" + run_id + "/model",
                                 "models:/" + model_id,
                                 "models:/delay/1"};
  for (const auto& source : sources) {
    const auto version = make(source);
    EXPECT_EQ(version.source, source);
    EXPECT_EQ(version.origin_run, run_id) << source;
    const auto files = registry->files(kFlights, version.model_row, version.number, "");
    ASSERT_EQ(files.size(), 1U) << source;
    EXPECT_EQ(files[0].name, "a.onnx");
  }
  EXPECT_EQ(make("models:/" + model_id).model_id, model_id);
  EXPECT_THAT(registry->registrations(kFlights, {model_id}), testing::SizeIs(3));
  EXPECT_THAT(registry->registrations(kCargo, {model_id}), IsEmpty());
  const auto single = make("runs:/" + run_id + "/single.onnx");
  EXPECT_EQ(registry->files(kFlights, single.model_row, single.number, "").at(0).name, "single.onnx");
  EXPECT_EQ(registry->files(kFlights, single.model_row, make("runs:/" + run_id).number, "").size(), 2U);
}

TEST_P(Registries, TakeSoManyFilesAndNoMore) {
  if (GetParam() != "sqlite") GTEST_SKIP() << "the limit is not the engine's";
  const auto run_id = run_with(kFlights, {{"model/0", "x"}});
  base.scratch->tamper(
      fmt::format("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) "
                  "INSERT INTO blob_name SELECT b.tenant, b.project, '@run/{}/model/' || n.i, b.zone, b.address, "
                  "b.bytes, b.content, b.created_us, b.created_by FROM blob_name b, n",
                  kFilesMax - 1, run_id));
  const auto version = version_of(kFlights, "delay", run_id);
  EXPECT_EQ(registry->files(kFlights, version.model_row, 1, "").size(), kFilesMax);
  EXPECT_EQ(verify(registry->manifest(kFlights, version.model_row, 1), registry->public_key()).files.size(), kFilesMax);
  base.put(kFlights, track::run_artifact(run_id, "model/one past"), "x");
  EXPECT_ERROR(version_of(kFlights, "delay", run_id), Code::exhausted);
}

TEST_P(Registries, RefuseSourcesThatAreNotOfTheProject) {
  const auto foreign = run_with(kCargo, {{"model/a", "secret"}});
  const auto foreign_model = model_with(kCargo, foreign, {{"a", "secret"}});
  version_of(kCargo, "theirs", foreign);
  const auto run_id = run_with(kFlights, {{"model/a", "x"}});
  registry->create_model(kFlights, "delay", {}, "", act());
  const auto make = [&](const std::string& source, const std::string& run = "", const std::string& model = "") {
    NewVersion wanted;
    wanted.model = "delay";
    wanted.source = source;
    wanted.run_id = run;
    wanted.model_id = model;
    return registry->create_version(kFlights, wanted, act());
  };
  const auto own = "runs:/" + run_id + "/model";
  EXPECT_ERROR(make("runs:/" + foreign + "/model"), Code::invalid);
  EXPECT_ERROR(make("mlflow-artifacts:/0/" + foreign + "/artifacts/model"), Code::invalid);
  EXPECT_ERROR(make("mlflow-artifacts:/1/" + run_id + "/artifacts/model"), Code::invalid);
  EXPECT_ERROR(make("models:/" + foreign_model), Code::invalid);
  EXPECT_ERROR(make("models:/theirs/1"), Code::invalid);
  EXPECT_ERROR(make(own, foreign), Code::invalid);
  EXPECT_ERROR(make(own, "", foreign_model), Code::invalid);
  EXPECT_ERROR(make("file:///etc/passwd"), Code::invalid);
  EXPECT_EQ(make(own).number, 1) << "what was refused takes no number";
}

TEST_P(Registries, AnswerACreationAgainWhoseAnswerWasLost) {
  const auto run_id = run_with(kFlights, {{"model/a", "x"}});
  const auto first = version_of(kFlights, "delay", run_id);
  EXPECT_EQ(version_of(kFlights, "delay", run_id).number, 2) << "the same process answered the first";
  base.clock.advance(std::chrono::minutes(1));
  restart();
  EXPECT_EQ(version_of(kFlights, "delay", run_id).number, 2) << "asked again after a restart";
  EXPECT_EQ(version_of(kFlights, "delay", run_with(kFlights, {})).number, 3) << "another run";
  base.clock.advance(std::chrono::minutes(1));
  restart();
  registry->set_version_tag(kFlights, "delay", 3, {"k", "v"}, act());
  const auto third = registry->version(kFlights, "delay", 3);
  EXPECT_EQ(version_of(kFlights, "delay", third.run_id).number, 4) << "somebody has used it since";
  base.clock.advance(std::chrono::minutes(1));
  restart();
  base.put(kFlights, track::run_artifact(third.run_id, "model/a"), "new");
  EXPECT_EQ(version_of(kFlights, "delay", third.run_id).number, 5) << "other files by now";
  base.clock.advance(std::chrono::minutes(11));
  restart();
  EXPECT_EQ(version_of(kFlights, "delay", third.run_id).number, 6) << "too long ago";
}

TEST_P(Registries, PointAliasesAtVersions) {
  make("delay");
  make("delay");
  registry->set_alias(kFlights, "delay", "champion", 1, act());
  EXPECT_EQ(registry->by_alias(kFlights, "delay", "champion").number, 1);
  EXPECT_EQ(registry->by_alias(kFlights, "delay", "latest").number, 2);
  registry->set_alias(kFlights, "delay", "champion", 2, act());
  EXPECT_THAT(registry->version(kFlights, "delay", 2).aliases, ElementsAre("champion"));
  EXPECT_THAT(registry->model(kFlights, "delay").aliases, ElementsAre(Alias{"champion", 2}));
  EXPECT_ERROR(registry->by_alias(kFlights, "delay", "absent"), Code::invalid);
  EXPECT_ERROR(registry->set_alias(kFlights, "delay", "champion", 7, act()), Code::not_found);
  for (const auto* bad : {"latest", "LATEST", "v1", "V22", "a b", "", "a.b"})
    EXPECT_ERROR(registry->set_alias(kFlights, "delay", bad, 1, act()), Code::invalid);
  registry->set_alias(kFlights, "delay", "v1a", 1, act());
  registry->delete_alias(kFlights, "delay", "absent", act());
  registry->delete_version(kFlights, "delay", 2, act());
  EXPECT_THAT(registry->model(kFlights, "delay").aliases, ElementsAre(Alias{"v1a", 1}));
  registry->rename_model(kFlights, "delay", "late", act());
  EXPECT_EQ(registry->by_alias(kFlights, "late", "v1a").number, 1);
  registry->delete_alias(kFlights, "late", "v1a", act());
  EXPECT_THAT(registry->model(kFlights, "late").aliases, IsEmpty());
}

TEST_P(Registries, MoveVersionsThroughStages) {
  for (int i = 0; i < 3; ++i) make("delay");
  registry->set_stage(kFlights, "delay", 1, Stage::production, false, act());
  registry->set_stage(kFlights, "delay", 2, Stage::production, true, act());
  EXPECT_EQ(registry->version(kFlights, "delay", 1).stage, Stage::archived);
  EXPECT_ERROR(registry->set_stage(kFlights, "delay", 1, Stage::none, true, act()), Code::invalid);
  const auto numbers = [&](const std::vector<Stage>& stages) {
    std::vector<std::int64_t> out;
    for (const auto& v : registry->latest_versions(kFlights, "delay", stages)) out.push_back(v.number);
    return out;
  };
  EXPECT_THAT(numbers({}), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers({Stage::production}), ElementsAre(2));
  EXPECT_THAT(numbers({Stage::staging}), IsEmpty());
  EXPECT_EQ(parse_stage("PRODUCTION"), Stage::production);
  EXPECT_EQ(parse_stage("live"), std::nullopt);
}

TEST_P(Registries, FindModelsAndVersions) {
  make("delay");
  base.clock.advance(std::chrono::seconds(1));
  make("cargo-weight");
  base.clock.advance(std::chrono::seconds(1));
  make("delay");
  registry->set_model_tag(kFlights, "delay", {"team", "ops"}, act());
  registry->set_version_tag(kFlights, "delay", 2, {"quality", "good"}, act());
  EXPECT_THAT(names(""), ElementsAre("cargo-weight", "delay"));
  EXPECT_THAT(names("name LIKE 'del%'"), ElementsAre("delay"));
  EXPECT_THAT(names("tags.team = 'ops'"), ElementsAre("delay"));
  EXPECT_THAT(names("tags.team != 'ops'"), IsEmpty()) << "a tag that is not there matches nothing";
  EXPECT_THAT(names("", {"last_updated_timestamp DESC"}), ElementsAre("delay", "cargo-weight"));
  EXPECT_THAT(versions(""), ElementsAre("cargo-weight/1", "delay/2", "delay/1"));
  EXPECT_THAT(versions("name = 'delay' AND version_number > 1"), ElementsAre("delay/2"));
  EXPECT_THAT(versions("tags.quality = 'good'"), ElementsAre("delay/2"));
  EXPECT_THAT(versions("name = 'delay'", {"version_number ASC"}), ElementsAre("delay/1", "delay/2"));
  EXPECT_THAT(versions(fmt::format("run_id IN ('{}')", registry->version(kFlights, "delay", 1).run_id)),
              ElementsAre("delay/1"));
  EXPECT_THAT(versions("name = 'absent'"), IsEmpty());
  EXPECT_ERROR(names("stage = 'x'"), Code::invalid);
  const auto page = registry->search_versions(kFlights, {"", {}, 1, 1});
  ASSERT_EQ(page.items.size(), 1U);
  EXPECT_EQ(page.items[0].number, 2);
  EXPECT_TRUE(page.more);
  EXPECT_FALSE(registry->search_versions(kFlights, {"", {}, 2, 1}).more);
  EXPECT_THAT(registry->search_models(kCargo, {}).items, IsEmpty());
}

TEST_P(Registries, HidePromptsFromThoseWhoDoNotAskForThem) {
  const std::string is_prompt(kPromptTag);
  make("delay");
  registry->create_model(kFlights, "greeting", {{is_prompt, "true"}}, "", act());
  NewVersion prompt;
  prompt.model = "greeting";
  prompt.source = "prompt-template";
  prompt.tags = {{is_prompt, "true"}, {"mlflow.prompt.text", "Hello {{name}}"}};
  EXPECT_EQ(registry->create_version(kFlights, prompt, act()).number, 1);
  base.clock.advance(std::chrono::minutes(1));
  restart();
  prompt.tags[1].value = "Good morning {{name}}";
  EXPECT_EQ(registry->create_version(kFlights, prompt, act()).number, 2) << "another text is another version";
  registry->delete_version(kFlights, "greeting", 2, act());
  EXPECT_THAT(names(""), ElementsAre("delay"));
  EXPECT_THAT(names("tags.`mlflow.prompt.is_prompt` = 'true'"), ElementsAre("greeting"));
  EXPECT_THAT(names("tags.`mlflow.prompt.is_prompt` != 'true'"), ElementsAre("delay"));
  EXPECT_THAT(versions(""), ElementsAre("delay/1"));
  EXPECT_THAT(versions("tags.`mlflow.prompt.is_prompt` = 'true'"), ElementsAre("greeting/1"));
}

TEST_P(Registries, NumberVersionsMadeAtOnceWithoutGaps) {
  const auto run_id = run_with(kFlights, {{"model/a", "x"}});
  version_of(kFlights, "delay", run_id);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) version_of(kFlights, "delay", run_id);
    });
  for (auto& thread : threads) thread.join();
  const auto found = registry->search_versions(kFlights, {"name = 'delay'", {"version_number ASC"}}).items;
  ASSERT_EQ(found.size(), 21U);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].number, static_cast<std::int64_t>(i + 1));
}

TEST_P(Registries, FindManyVersionsWithTheirTagsAndAliases) {
  const auto run_id = run_with(kFlights, {});
  for (int i = 0; i < 25; ++i) version_of(kFlights, i % 2 == 0 ? "even" : "odd", run_id);
  registry->set_version_tag(kFlights, "odd", 2, {"b", "2"}, act());
  registry->set_version_tag(kFlights, "odd", 2, {"a", "1"}, act());
  registry->set_alias(kFlights, "odd", "champion", 2, act());
  for (int i = 0; i < 12; ++i) version_of(kFlights, "odd", run_id);
  for (const auto* filter : {"", "name = 'odd'"}) {
    const auto found = registry->search_versions(kFlights, {filter, {}}).items;
    EXPECT_GT(found.size(), 20U) << "enough to be loaded together";
    for (const auto& version : found) {
      const auto alone = registry->version(kFlights, version.model, version.number);
      EXPECT_EQ(version.tags, alone.tags);
      EXPECT_EQ(version.aliases, alone.aliases);
      EXPECT_EQ(version.tags.size(), version.model == "odd" && version.number == 2 ? 2U : 0U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Registries, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::models
