// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "api/testing.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct TrackRoutes : testing::Test {
  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};

  std::string run(const std::string& name, const std::string& depth = "5") {
    api.clock.advance(std::chrono::seconds(1));
    const auto id = api.track->create_run(where, {0, name, "ada", {}, {}}, act).info.run_id;
    api.track->log(where, id, {{}, {{"depth", depth}}, {}}, act);
    return id;
  }
  void log(const std::string& id, const std::string& key, const std::vector<double>& values) {
    track::Batch batch;
    for (std::size_t i = 0; i < values.size(); ++i)
      batch.metrics.push_back(
          {key, {1000 + static_cast<std::int64_t>(i), static_cast<std::int64_t>(i), values[i]}, "", "", ""});
    api.track->log(where, id, batch, act);
  }
  json::value get(const std::string& target) {
    const auto answer = api.get(target);
    EXPECT_EQ(answer.status, 200) << target << ": " << answer.body;
    return answer.json();
  }
  static std::vector<std::string> names(const json::value& page) {
    std::vector<std::string> out;
    for (const auto& item : page.at("items").as_array()) out.emplace_back(item.at("name").as_string());
    return out;
  }
};

TEST_F(TrackRoutes, FindRunsByFilterAndExperimentNewestFirst) {
  const auto other = api.track->create_experiment(where, "2", {}, act);  // a name that looks like a number
  run("a", "1"), run("b", "2"), run("c", "2");
  api.track->create_run(where, {other, "elsewhere", "", {}, {}}, act);
  EXPECT_THAT(names(get("/v1/runs?" + kProject + "&experiment=Default")), ElementsAre("c", "b", "a"));
  EXPECT_THAT(names(get("/v1/runs?" + kProject + "&experiment=2")), ElementsAre("elsewhere"));
  EXPECT_THAT(names(get("/v1/runs?" + kProject + "&filter=params.depth%3D'2'&order_by=attributes.run_name")),
              ElementsAre("b", "c"));
  EXPECT_EQ(get("/v1/runs?" + kProject).at("items").as_array().size(), 4U);
}

TEST_F(TrackRoutes, WalkAllRunsPageByPage) {
  for (int i = 0; i < 7; ++i) run(fmt::format("r{}", i));
  std::vector<std::string> all;
  std::string cursor;
  do {
    const auto page = get("/v1/runs?" + kProject + "&limit=3" + (cursor.empty() ? "" : "&cursor=" + cursor));
    for (auto& name : names(page)) all.push_back(std::move(name));
    const auto* next = page.as_object().if_contains("next");
    cursor = next ? std::string(next->as_string()) : "";
  } while (!cursor.empty());
  EXPECT_THAT(all, ElementsAre("r6", "r5", "r4", "r3", "r2", "r1", "r0"));
}

TEST_F(TrackRoutes, SayWhatIsWrongWithAQuestion) {
  const auto message = [&](const std::string& target, int status) {
    const auto answer = api.get(target);
    EXPECT_EQ(answer.status, status) << target << ": " << answer.body;
    return std::string(answer.json().at("error").at("message").as_string());
  };
  EXPECT_THAT(message("/v1/runs?scope=/t/acme", 400), HasSubstr("scope: must be a project"));
  EXPECT_THAT(message("/v1/runs?" + kProject + "&view=some", 400), HasSubstr("view"));
  EXPECT_THAT(message("/v1/runs?" + kProject + "&cursor=-1", 400), HasSubstr("cursor"));
  EXPECT_THAT(message("/v1/runs?" + kProject + "&limit=1001", 400), HasSubstr("limit"));
  EXPECT_THAT(message("/v1/runs?" + kProject + "&line=loss&limit=101", 400), HasSubstr("limit"));
  EXPECT_THAT(message("/v1/runs?" + kProject + "&experiment=none", 404), HasSubstr("'none'"));
  EXPECT_THAT(message("/v1/runs/compare?" + kProject + "&ids=1", 400), HasSubstr("ids"));
  const auto id = run("a");
  for (const auto* cursor : {"x", "1", "1.2", "1.2.", "1.2.3.4", "1.2.g", "1.2.12345678901234567"})
    EXPECT_THAT(message(fmt::format("/v1/runs/{}/metrics/loss?{}&cursor={}", id, kProject, cursor), 400),
                HasSubstr("cursor"));
  EXPECT_THAT(message("/v1/runs/" + id + "/metrics/loss?" + kProject + "&points=10&cursor=1.1.1", 400),
              HasSubstr("points"));
}

TEST_F(TrackRoutes, ShowOnlyTheProjectThatIsAskedFor) {
  api.apply("{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: cargo}, spec: {zone: uae}}");
  const auto id = run("a");
  const std::string cargo = "?scope=/t/acme/p/cargo";
  EXPECT_EQ(api.get("/v1/runs/" + id + cargo).status, 404);
  EXPECT_EQ(api.get("/v1/runs/" + id + "/metrics/loss" + cargo).status, 404);
  EXPECT_EQ(api.get("/v1/runs/compare" + cargo + "&ids=" + id + "&ids=" + id).status, 404);
  EXPECT_EQ(api.post("/v1/runs/" + id + "/delete" + cargo, "").status, 404);
  EXPECT_EQ(api.del("/v1/runs/" + id + cargo).status, 404);
  EXPECT_THAT(names(get("/v1/runs" + cargo)), ElementsAre());
}

TEST_F(TrackRoutes, GiveEveryPointOnceAndKeepEveryValue) {
  const auto id = run("a");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  log(id, "loss/train", {1.5, std::nan(""), kInfinity, -kInfinity, 0.1, -0.0});
  const std::string target = "/v1/runs/" + id + "/metrics/loss/train?" + kProject;
  json::array values;
  std::string cursor;
  for (bool more = true; more;) {
    const auto page = get(target + "&limit=2" + (cursor.empty() ? "" : "&cursor=" + cursor));
    for (const auto& point : page.at("items").as_array()) values.push_back(point.at("value"));
    more = page.as_object().contains("next");
    cursor = page.at("resume").as_string();
  }
  EXPECT_EQ(values, (json::array{1.5, "NaN", "Infinity", "-Infinity", 0.1, -0.0}));
  // Later the same cursor gives what came since, and itself when nothing did.
  EXPECT_EQ(get(target + "&cursor=" + cursor).at("resume").as_string(), cursor);
  api.track->log(where, id, {{{"loss/train", {5000, 9, 7}, "", "", ""}}, {}, {}}, act);
  EXPECT_EQ(get(target + "&cursor=" + cursor).at("items").as_array().size(), 1U);
}

TEST_F(TrackRoutes, ThinALineWithoutLosingItsPeaks) {
  const auto id = run("a");
  std::vector<double> values(900, 1);
  values[417] = 99;
  log(id, "loss", values);
  const auto thinned = get("/v1/runs/" + id + "/metrics/loss?" + kProject + "&points=20");
  EXPECT_LE(thinned.at("items").as_array().size(), 20U);
  EXPECT_EQ(thinned.at("total").as_int64(), 900);
  const auto line = get("/v1/runs/" + id + "?" + kProject + "&line=loss&points=8").at("line");
  EXPECT_LE(line.as_array().size(), 8U);
  EXPECT_TRUE(std::any_of(line.as_array().begin(), line.as_array().end(), [](const auto& v) { return v == 99.0; }));
}

TEST_F(TrackRoutes, CompareRunsAndSayWhatDiffers) {
  const auto a = run("a", "1"), b = run("b", "2");
  log(a, "loss", {0.5});
  const auto answer = get("/v1/runs/compare?" + kProject + "&ids=" + a + "&ids=" + b);
  EXPECT_EQ(answer.at("params").at(0), (json::value{{"key", "depth"}, {"differs", true}, {"values", {"1", "2"}}}));
  EXPECT_EQ(answer.at("metrics").at(0), (json::value{{"key", "loss"}, {"differs", true}, {"values", {0.5, nullptr}}}));
}

struct Removing : TrackRoutes {
  void put(const std::string& id, const std::string& path, std::size_t bytes) {
    api.vault->put(where, {}, track::run_artifact(id, path), blob::source_of(to_bytes(std::string(bytes, 'x') + path)),
                   act);
  }
  void register_version(const std::string& id) {
    try {
      api.models->create_model(where, "delay", {}, "", act);
    } catch (const Error&) {
    }
    api.models->create_version(where, {"delay", "runs:/" + id + "/model", id, "", "", "", {}}, act);
  }
};

TEST_F(Removing, NeedsADeletedRunAndSaysWhatWent) {
  const auto id = run("a");
  log(id, "loss", {1, 2, 3});
  put(id, "f", 999);
  EXPECT_EQ(api.del("/v1/runs/" + id + "?" + kProject).error(), "conflict");
  EXPECT_EQ(api.post("/v1/runs/" + id + "/delete?" + kProject, "").status, 200);
  const auto answer = api.del("/v1/runs/" + id + "?" + kProject);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto removed = answer.json();
  EXPECT_EQ(removed.at("points").as_int64(), 3);
  EXPECT_EQ(removed.at("files").as_int64(), 1);
  EXPECT_GT(removed.at("bytes").as_int64(), 1000);
  EXPECT_EQ(api.get("/v1/runs/" + id + "?" + kProject).status, 404);
  EXPECT_TRUE(api.vault->list(where, "@run/", "", 10).empty());
  EXPECT_GE(api.audited("run.remove"), 1U);
}

TEST_F(Removing, IsRefusedWhileAPromotedModelCameFromTheRun) {
  const auto id = run("a");
  put(id, "model/m", 100);
  register_version(id);
  api.models->set_alias(where, "delay", "champion", 1, act);
  api.track->set_run_stage(where, id, track::Stage::deleted, act);
  const auto refused = api.del("/v1/runs/" + id + "?" + kProject);
  EXPECT_EQ(refused.error(), "conflict");
  EXPECT_THAT(refused.body, HasSubstr("the alias 'champion' points at"));
  EXPECT_EQ(api.vault->list(where, "@run/", "", 10).size(), 1U);

  // Without the alias it may go; the files of the version stay with the version.
  api.models->delete_alias(where, "delay", "champion", act);
  const auto removed = api.del("/v1/runs/" + id + "?" + kProject).json();
  EXPECT_EQ(removed.at("kept_bytes").as_int64(), 107);
  const auto verified = get("/v1/models/delay/versions/1/verify?" + kProject);
  EXPECT_TRUE(verified.at("intact").as_bool()) << verified;
}

}  // namespace
}  // namespace falaj::api
