// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/testing.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/traffic/prediction.h"

namespace falaj::api {
namespace {

using testing::HasSubstr;

struct PredictionRoutes : testing::Test {
  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};
  const std::string base = "/v1/serving/endpoints/delay";
  std::uint64_t made = 0;

  PredictionRoutes() {
    api.models->create_model(where, "delay", {}, "", act);
    for (const auto* bytes : {"one", "two"}) {
      const auto run = api.track->create_run(where, {}, act).info.run_id;
      api.vault->put(where, {}, track::run_artifact(run, "model/model.onnx"), blob::source_of(to_bytes(bytes)), act);
      api.models->create_version(where, {"delay", "runs:/" + run + "/model", run, "", "", "", {}}, act);
    }
    declare("log: {share: 1}, experiment: {baseline: old}");
  }
  void declare(const std::string& more) {
    api.apply(fmt::format(
        "apiVersion: falaj/v1\nkind: Endpoint\nmetadata: {{name: delay, tenant: acme, project: flights}}\nspec: "
        "{{variants: [{{name: old, model: delay, version: 1, weight: 50}}, {{name: new, model: delay, version: 2, "
        "weight: 50}}], {}}}\n",
        more));
  }
  std::string name(const std::string& variant) {
    const auto ms = static_cast<std::uint64_t>(api.clock.wall().count() / 1000);
    return traffic::format_prediction({{ms << 16, ++made}, variant, variant == "old" ? 1 : 2, 1, 0});
  }
  std::string row(const std::string& id, const std::string& x = "1.5") {
    return fmt::format(R"({{"prediction_id":"{}","time":"{}","variant":"old","in_x":{},"out_y":"late"}})", id,
                       format_time(api.clock.wall().count()), x);
  }
  Answer send(const std::vector<std::pair<std::string, std::string>>& segments, const std::string& type = "float64") {
    json::array pieces;
    for (const auto& [segment, line] : segments)
      pieces.push_back(json::object{{"segment", segment}, {"rows", 1}, {"lines", line + "\n"}});
    json::array columns;
    for (const auto& [column, of] : {std::pair<std::string, std::string>{"prediction_id", "text"},
                                     {"time", "timestamp"},
                                     {"variant", "text"},
                                     {"in_x", type},
                                     {"out_y", "text"}})
      columns.push_back(json::object{{"name", column}, {"type", of}});
    return api.post("/v1/serving/predictions", json::serialize(json::object{{"tenant", "acme"},
                                                                            {"project", "flights"},
                                                                            {"endpoint", "delay"},
                                                                            {"columns", std::move(columns)},
                                                                            {"segments", std::move(pieces)}}));
  }
  Answer label(const std::string& id, const std::string& value) {
    return api.post(base + "/labels?" + kProject,
                    fmt::format(R"({{"labels":[{{"prediction_id":"{}","value":{}}}]}})", id, value));
  }
  json::array predictions(const std::string& more = "") {
    const auto answer = api.get(base + "/predictions?" + kProject + more);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.status == 200 ? answer.json().at("items").as_array() : json::array();
  }
  void report(std::int64_t old_rows, std::int64_t new_rows) {
    json::array variants;
    for (const auto& [variant, rows] : {std::pair<std::string, std::int64_t>{"old", old_rows}, {"new", new_rows}})
      variants.push_back(json::object{{"tenant", "acme"},
                                      {"project", "flights"},
                                      {"endpoint", "delay"},
                                      {"variant", variant},
                                      {"version", variant == "old" ? 1 : 2},
                                      {"state", "ready"},
                                      {"rows", rows}});
    const auto answer = api.post("/v1/serving/reports",
                                 json::serialize(json::object{{"server", "s"}, {"variants", std::move(variants)}}));
    ASSERT_EQ(answer.status, 200) << answer.body;
    api.endpoints->watch();
  }
  json::value experiment() {
    const auto answer = api.get(base + "/experiment?" + kProject);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
};

TEST_F(PredictionRoutes, RowsAreTakenOnceAndJoinedWithTheirLabels) {
  EXPECT_TRUE(predictions().empty());
  const auto first = name("old"), second = name("old");
  ASSERT_EQ(send({{"s1", row(first)}}).status, 200);
  // As after a kill between taking and saying so: the same piece again, beside a new one.
  ASSERT_EQ(send({{"s1", row(first)}, {"s2", row(second, "null")}}).status, 200);
  ASSERT_EQ(send({{"s1", row(first)}}).status, 200);
  ASSERT_EQ(label(first, "1").status, 200);
  const auto rows = predictions();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(predictions("&labelled=true").size(), 1u);
  const auto labelled = predictions("&labelled=true");
  EXPECT_EQ(labelled[0].at("prediction_id"), json::value(first));
  EXPECT_EQ(labelled[0].at("label").to_number<double>(), 1);
  EXPECT_EQ(labelled[0].at("in_x").to_number<double>(), 1.5);
  EXPECT_EQ(labelled[0].at("out_y"), "late");
  EXPECT_EQ(api.datasets->version(where, "predictions-delay", {}).rows, 2);
  EXPECT_EQ(api.datasets->version(where, "labels-delay", {}).rows, 1);
  EXPECT_EQ(predictions("&since=2100-01-01T00:00:00Z").size(), 0u);
  EXPECT_EQ(api.get(base + "/predictions?since=x&" + kProject).status, 400);
  // More of the same is appended, and the same again is not.
  ASSERT_EQ(send({{"s2", row(second)}, {"s3", row(name("new"))}}).status, 200);
  ASSERT_EQ(label(second, "false").status, 200);
  EXPECT_EQ(predictions().size(), 3u);
  EXPECT_EQ(predictions("&labelled=true").size(), 2u);
}

TEST_F(PredictionRoutes, VersionsAreMadeNowAndThenNotForEveryPiece) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(send({{fmt::format("s{}", i), row(name("old"))}}).status, 200);
    api.clock.advance(std::chrono::seconds(5));
    api.predictions->upkeep();
  }
  EXPECT_FALSE(api.datasets->dataset(where, "predictions-delay").newest);
  api.clock.advance(std::chrono::minutes(10));
  api.predictions->upkeep();
  const auto version = api.datasets->version(where, "predictions-delay", {});
  EXPECT_EQ(version.number, 1);
  EXPECT_EQ(version.rows, 5);
}

TEST_F(PredictionRoutes, AColumnOfAnotherTypeGetsANameOfItsOwn) {
  ASSERT_EQ(send({{"s1", row(name("old"))}}).status, 200);
  ASSERT_EQ(send({{"s2", row(name("old"), "\"red\"")}}, "text").status, 200);
  ASSERT_EQ(send({{"s3", row(name("old"), "7")}}, "int64").status, 200) << "a whole number is a number";
  const auto rows = predictions();
  ASSERT_EQ(rows.size(), 3u);
  double sum = 0;
  std::string texts;
  for (const auto& one : rows) {
    if (one.at("in_x").is_number()) sum += one.at("in_x").to_number<double>();
    if (one.at("in_x_text").is_string()) texts += one.at("in_x_text").as_string();
  }
  EXPECT_EQ(sum, 8.5);
  EXPECT_EQ(texts, "red");
}

TEST_F(PredictionRoutes, RowsThatAreWrongAreRefusedWhole) {
  const auto good = row(name("old"));
  const auto id = name("old");
  for (const auto& bad :
       {std::string("{"), std::string("[]"), std::string("{}"), std::string(R"({"prediction_id":"x"})"),
        row(id, "\"text\""), row(id, "[1]"), row(id, "1") + "\n" + row(name("old")),
        fmt::format(R"({{"prediction_id":"{}","other":1}})", id),
        fmt::format(R"({{"prediction_id":"{}","time":3}})", id)})
    EXPECT_EQ(send({{"good", good}, {"bad", bad}}).status, 400) << bad;
  EXPECT_TRUE(predictions().empty()) << "nothing of them is there";
  ASSERT_EQ(send({{"good", good}}).status, 200);
  EXPECT_EQ(predictions().size(), 1u);
  declare("experiment: {baseline: old}");
  EXPECT_THAT(send({{"late", good}}).body, HasSubstr("keeps no log"));
}

TEST_F(PredictionRoutes, LabelsAreTakenOnceAndNamed) {
  const auto id = name("new");
  const auto taken = [&](const Answer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    const auto out = answer.json();
    return std::vector<std::int64_t>{out.at("added").as_int64(), out.at("known").as_int64(),
                                     out.at("conflicting").as_int64()};
  };
  EXPECT_EQ(taken(label(id, "1")), (std::vector<std::int64_t>{1, 0, 0}));
  EXPECT_EQ(taken(label(id, "true")), (std::vector<std::int64_t>{0, 1, 0}));
  EXPECT_EQ(taken(label(id, "0")), (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_GE(api.audited("endpoint.label"), 1u);
  for (const auto& [bad, what] :
       {std::pair<std::string, std::string>{R"({"labels":[]})", "labels"},
        {R"({"labels":[{"prediction_id":"x","value":1}]})", "labels[0].prediction_id"},
        {R"({"labels":[{"prediction_id":")" + id + R"("}]})", "labels[0].value"},
        {R"({"labels":[{"prediction_id":")" + id + R"(","value":"x"}]})", "labels[0].value"},
        {R"({"labels":[{"prediction_id":")" + id + R"(","value":1,"label":1}]})", "labels[0].value"},
        {R"({"labels":[{"prediction_id":")" + id + R"(","value":1,"at":"soon"}]})", "labels[0].at"}}) {
    const auto answer = api.post(base + "/labels?" + kProject, bad);
    EXPECT_EQ(answer.status, 400) << bad;
    EXPECT_THAT(answer.body, HasSubstr(what));
  }
  const auto future = traffic::format_prediction({{std::uint64_t{9'000'000'000'000} << 16, 1}, "old", 1, 1, 0});
  EXPECT_THAT(label(future, "1").body, HasSubstr("cannot be"));
  EXPECT_EQ(api.call(Question{Method::post, base + "/labels?" + kProject, "{}"}.by(api.ada)).status, 403);
}

TEST_F(PredictionRoutes, AnExperimentCountsWhatServersAnsweredAndWhatCameOfIt) {
  report(1'000, 1'000);  // before it began
  report(3'000, 3'000);
  json::array labels;
  for (int i = 0; i < 300; ++i) labels.push_back(json::object{{"prediction_id", name("old")}, {"label", 1}});
  for (int i = 0; i < 600; ++i) labels.push_back(json::object{{"prediction_id", name("new")}, {"value", true}});
  ASSERT_EQ(api.post(base + "/labels?" + kProject, json::serialize(json::object{{"labels", labels}})).status, 200);
  auto seen = experiment().at("variants").as_array();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].at("variant"), "old");
  EXPECT_EQ(seen[0].at("exposures"), 2'000);
  EXPECT_EQ(seen[0].at("mean").to_number<double>(), 0.15);
  EXPECT_EQ(seen[1].at("mean").to_number<double>(), 0.3);
  EXPECT_EQ(seen[1].at("says"), "better than old");
  EXPECT_GT(seen[1].at("low").to_number<double>(), 0);
  report(500, 3'000);  // one was started again: it counts from nothing
  EXPECT_EQ(experiment().at("variants").at(0).at("exposures"), 2'500);
  // Another question begins anew; labels of what was predicted before do not count for it.
  const auto early = name("old");
  api.clock.advance(std::chrono::seconds(1));
  declare("log: {share: 1}, experiment: {baseline: old, metric: mean}");
  report(500, 3'000);
  ASSERT_EQ(label(early, "1").status, 200);
  seen = experiment().at("variants").as_array();
  EXPECT_EQ(seen[0].at("labels"), 0);
  EXPECT_EQ(seen[0].at("exposures"), 0);
  EXPECT_THAT(std::string(seen[1].at("says").as_string()), HasSubstr("too early"));
  declare("log: {share: 1}");
  EXPECT_EQ(api.get(base + "/experiment?" + kProject).status, 409);
}

TEST_F(PredictionRoutes, ABanditMovesTheSharesAtMostOnceAMinute) {
  declare("experiment: {baseline: old, bandit: true}");
  report(0, 0);
  report(1'000, 1'000);
  json::array labels;
  for (int i = 0; i < 200; ++i) labels.push_back(json::object{{"prediction_id", name("new")}, {"value", true}});
  ASSERT_EQ(api.post(base + "/labels?" + kProject, json::serialize(json::object{{"labels", labels}})).status, 200);
  const auto shares = [&] {
    const auto view = api.get(base + "?" + kProject).json();
    return std::pair(view.at("variants").at(0).at("weight").to_number<double>(),
                     view.at("variants").at(1).at("weight").to_number<double>());
  };
  report(1'000, 1'000);
  EXPECT_EQ(shares().second, 50) << "a minute is not over";
  api.clock.advance(std::chrono::seconds(61));
  report(1'000, 1'000);
  EXPECT_EQ(shares().first, 1);
  EXPECT_EQ(shares().second, 99);
  EXPECT_EQ(api.audited("endpoint.bandit"), 1u);
  const auto history = api.get(base + "/history?" + kProject).json();
  EXPECT_EQ(history.at("items").at(0).at("by"), "system/bandit");
  api.clock.advance(std::chrono::seconds(61));
  report(1'000, 1'000);
  EXPECT_EQ(api.audited("endpoint.bandit"), 1u) << "nothing new";
}

TEST_F(PredictionRoutes, ACanaryWhoseLabelsAreWorseIsRolledBack) {
  declare("canary: {variant: new, steps: [50, 100], every: 1s, requestsMin: 1, metricDropMax: 0.01}");
  report(0, 0);
  json::array labels;
  for (int i = 0; i < 1'000; ++i) {
    labels.push_back(json::object{{"prediction_id", name("old")}, {"value", i % 2}});
    labels.push_back(json::object{{"prediction_id", name("new")}, {"value", i % 4 == 0 ? 1 : 0}});
  }
  ASSERT_EQ(api.post(base + "/labels?" + kProject, json::serialize(json::object{{"labels", labels}})).status, 200);
  report(0, 0);
  const auto history = api.get(base + "/history?" + kProject).json();
  EXPECT_THAT(std::string(history.at("items").at(0).at("why").as_string()),
              HasSubstr("rolled back, as the mean of its"));
}

TEST_F(PredictionRoutes, WhatIsOlderThanTheEndpointKeepsGoes) {
  declare("log: {share: 1, keep: 10d}");
  const auto old = name("old");
  ASSERT_EQ(send({{"s1", row(old)}}).status, 200);
  ASSERT_EQ(label(old, "1").status, 200);
  EXPECT_EQ(predictions("&labelled=true").size(), 1u);
  api.clock.advance(std::chrono::hours(24 * 8));
  const auto young = name("old");
  ASSERT_EQ(send({{"s2", row(young)}}).status, 200);
  ASSERT_EQ(label(young, "1").status, 200);
  EXPECT_EQ(predictions().size(), 2u);
  api.clock.advance(std::chrono::hours(24 * 4));
  api.predictions->upkeep();
  const auto rows = predictions();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("prediction_id"), json::value(young));
  EXPECT_TRUE(api.datasets->version(where, "predictions-delay", 1).erased);
  EXPECT_EQ(api.datasets->version(where, "labels-delay", {}).rows, 1);
}

TEST_F(PredictionRoutes, WhatIsDeclaredWronglyIsSaid) {
  const auto fault = [&](const std::string& more) {
    try {
      declare(more);
    } catch (const Error& e) {
      std::string out;
      for (const auto& one : e.faults()) out += one.where + ": " + one.what;
      return out;
    }
    return std::string("nothing");
  };
  EXPECT_THAT(fault("log: {columns: {x: blur}}"), HasSubstr("spec.log.columns"));
  EXPECT_THAT(fault("log: {share: 2}"), HasSubstr("spec.log.share"));
  EXPECT_THAT(fault("experiment: {baseline: nobody}"), HasSubstr("spec.experiment.baseline"));
  EXPECT_THAT(fault("experiment: {baseline: old, effect: 0}"), HasSubstr("spec.experiment.effect"));
  EXPECT_THAT(fault("experiment: {baseline: old, confidence: 1}"), HasSubstr("spec.experiment.confidence"));
  EXPECT_THAT(fault("experiment: {baseline: old, bandit: true}, canary: {variant: new}"),
              HasSubstr("spec.experiment.bandit"));
}

}  // namespace
}  // namespace falaj::api
