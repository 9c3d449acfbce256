// SPDX-License-Identifier: Apache-2.0
// Steps of pipelines on a whole platform: what they make, what is kept, and what gates find.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/testing.h"
#include "compute/graph/graph.h"
#include "foundation/base/text.h"
#include "lifecycle/flow/flow.h"
#include "lifecycle/flow/model_files.h"
#include "lifecycle/serving/endpoints.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

struct FlowSteps : testing::Test {
  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};

  FlowSteps() {
    api.apply(
        "{apiVersion: falaj/v1, kind: User, metadata: {name: test}, spec: {}}\n---\n"
        "{apiVersion: falaj/v1, kind: RoleBinding, metadata: {name: all}, spec: {role: admin, subjects: [user/test]}}");
  }
  void declare(const std::string& kind, const std::string& name, const std::string& spec) {
    api.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: {}, metadata: {{tenant: acme, project: flights, name: {}}}, "
                    "spec: {}}}",
                    kind, name, spec));
  }
  void put(const std::string& blob, const std::string& text) {
    api.vault->put(where, {}, blob, blob::source_of(to_bytes(text)), act);
  }
  void ingest(const std::string& dataset, const std::string& csv) {
    const auto upload = api.datasets->begin(where, dataset, act, "");
    api.datasets->put_part(where, dataset, upload, 0, blob::source_of(as_bytes(csv)), act);
    api.datasets->finish(where, dataset, upload, {data::Format::csv, data::Mode::append, "", "", {}, {}}, act, {});
  }
  flow::Run run(const std::string& steps) {
    declare("Pipeline", "p", "{steps: [" + steps + "]}");
    const auto id =
        api.flow->start(where, flow::Begin{"p", {}, {{"by", "user/test"}}, "", "user/test", true, ""}).facts.id;
    for (int i = 0; i < 50 && !flow::has_ended(api.flow->runs().find(id).life.phase); ++i) {
      api.flow->pass();
      api.clock.advance(std::chrono::seconds(1));
    }
    return api.flow->runs().find(id);
  }
  void look(int times) {
    for (int i = 0; i < times; ++i) {
      api.flow->pass();
      api.clock.advance(std::chrono::seconds(1));
    }
  }
  static flow::StepLife step(const flow::Run& run, const std::string& name = "a") { return run.life.steps.at(name); }
  static std::string output(const flow::StepLife& step, const char* name) {
    return flow::words_of(step.outputs.at(name));
  }
  // A version of a model with these files.
  std::int64_t version(const std::map<std::string, std::string>& files,
                       const std::map<std::string, double>& metrics = {}, const std::string& model = "m") {
    try {
      api.models->create_model(where, model, {}, "", act);
    } catch (const Error&) {
    }
    const auto run = api.track->create_run(where, {}, act).info.run_id;
    for (const auto& [name, text] : files) put(track::run_artifact(run, "model/" + name), text);
    track::Batch batch;
    for (const auto& [name, value] : metrics) batch.metrics.push_back({name, {0, 0, value}, "", "", ""});
    if (!metrics.empty()) api.track->log(where, run, batch, act);
    return api.models->create_version(where, {model, "runs:/" + run + "/model", run, "", "", "", {}}, act).number;
  }
  static std::string onnx() {
    graph::Graph graph;
    const auto input = graph.add_input("x", graph::Element::float32, {std::string(graph::kRows), std::int64_t{1}});
    graph.add_output("prediction", graph.add_node("Identity", {input}), graph::Element::float32,
                     {std::string(graph::kRows), std::int64_t{1}});
    return std::string(as_text(graph::serialise(graph)));
  }
  flow::Run gate(std::int64_t number, const std::string& condition) {
    return run(fmt::format("{{name: a, gate: {{model: m, version: {}, conditions: [{}]}}}}", number, condition));
  }
};

TEST_F(FlowSteps, AFileBecomesAVersionOnceWhateverHappens) {
  declare("Dataset", "rows", "{columns: [{name: n, type: int64}]}");
  put("in.csv", "n\n1\n2\n");
  const auto ingests = "{name: a, ingest: {blob: in.csv, into: rows, format: csv}}";
  const auto first = run(ingests);
  EXPECT_EQ(first.life.phase, flow::RunPhase::succeeded) << first.life.why;
  EXPECT_EQ(output(step(first), "dataset"), "rows@1");
  EXPECT_EQ(output(step(first), "rows"), "2");
  EXPECT_EQ(step(run(ingests)).phase, flow::StepPhase::kept) << "the same file";
  put("in.csv", "n\n3\n");
  const auto second = run(ingests);
  EXPECT_EQ(output(step(second), "dataset"), "rows@2");
  EXPECT_EQ(output(step(second), "rows"), "3") << "appended";
  put("in.csv", "n\nx\n");
  const auto wrong = run(ingests);
  EXPECT_EQ(wrong.life.phase, flow::RunPhase::failed);
  EXPECT_THAT(step(wrong).why, HasSubstr("n"));
  EXPECT_EQ(api.datasets->dataset(where, "rows").newest->number, 2);
  EXPECT_THAT(step(run("{name: a, ingest: {blob: none.csv, into: rows, format: csv}}")).why, HasSubstr("none.csv"));
}

TEST_F(FlowSteps, AFileThatAStepLeftIsIngestedAsItsArtifact) {
  declare("Dataset", "rows", "{columns: [{name: n, type: int64}]}");
  const auto left = api.track->create_run(where, {}, act).info.run_id;
  put(track::run_artifact(left, "out/rows.csv"), "n\n7\n");
  const auto done =
      run(fmt::format("{{name: a, ingest: {{artifact: {}/out/rows.csv, into: rows, format: csv}}}}", left));
  EXPECT_EQ(output(step(done), "rows"), "1") << done.life.why;
  const auto outside = run(fmt::format("{{name: a, ingest: {{artifact: {}/../x, into: rows, format: csv}}}}", left));
  EXPECT_EQ(outside.life.phase, flow::RunPhase::failed);
}

TEST_F(FlowSteps, ATrainSetIsMadeAgainWhenWhatItsFeaturesReadHasChanged) {
  declare("Dataset", "delays",
          "{columns: [{name: at, type: timestamp, nullable: false}, {name: origin, type: text}, {name: delay, type: "
          "int64}], time: at}");
  declare("Dataset", "spine",
          "{columns: [{name: at, type: timestamp, nullable: false}, {name: origin, type: text}], time: at}");
  declare("Entity", "origin", "{key: [{name: origin, type: text}]}");
  declare("FeatureView", "airport",
          "{entity: origin, dataset: delays, time: at, ttl: 1d, features: [{name: last_delay, column: delay}]}");
  declare("FeatureService", "late", "{features: [\"airport:last_delay\"]}");
  ingest("delays", "at,origin,delay\n2001-01-01T00:00:00Z,SEA,10\n2001-01-01T02:00:00Z,SEA,30\n");
  ingest("spine", "at,origin\n2001-01-01T01:00:00Z,SEA\n2001-01-01T03:00:00Z,SEA\n2001-01-01T03:00:00Z,LAX\n");
  const auto makes = "{name: a, trainSet: {service: late, spine: spine, time: at, into: made}}";
  const auto first = run(makes);
  ASSERT_EQ(first.life.phase, flow::RunPhase::succeeded) << first.life.why;
  EXPECT_EQ(output(step(first), "rows"), "3");
  const auto sums =
      api.post("/v1/datasets/sql?" + kProject, R"({"sql": "SELECT sum(last_delay), count(last_delay) FROM made"})");
  EXPECT_THAT(sums.body, HasSubstr("[[40,2]]")) << "each row as of its own time";
  EXPECT_EQ(step(run(makes)).phase, flow::StepPhase::kept);
  ingest("delays", "at,origin,delay\n2001-01-01T00:30:00Z,LAX,5\n");
  const auto second = run(makes);
  EXPECT_EQ(step(second).phase, flow::StepPhase::succeeded);
  EXPECT_EQ(output(step(second), "dataset"), "made@2");
  EXPECT_THAT(run("{name: a, trainSet: {service: none, spine: spine, into: made}}").life.why, HasSubstr("none"));
}

TEST_F(FlowSteps, ACanaryIsDeclaredOnceAndTheNextTakesItsPlace) {
  for (int i = 0; i < 3; ++i) version({{"model.onnx", onnx()}});
  const auto deploy = [&](int number, const char* canary) {
    return run(
        fmt::format("{{name: a, deploy: {{endpoint: e, variant: new, model: m, version: {}{}}}}}", number, canary));
  };
  const auto spec = [&] {
    return decode<serving::EndpointSpec>(api.resources->get({"Endpoint", "acme", "flights", "e"}).resource.spec, "e");
  };
  const auto names = [&] {
    std::vector<std::pair<std::string, std::int64_t>> out;
    const auto now = spec();
    for (const auto& variant : now.variants) out.emplace_back(variant.name, *variant.version);
    return out;
  };
  const auto* canary = ", canary: {steps: [10, 100], every: 1s, requestsMin: 1}";
  EXPECT_EQ(deploy(1, "").life.phase, flow::RunPhase::succeeded);
  EXPECT_THAT(names(), ElementsAre(Pair("new", 1)));
  EXPECT_FALSE(spec().canary);
  const auto second = deploy(2, canary);
  EXPECT_THAT(step(second).why, HasSubstr("as a canary"));
  EXPECT_THAT(names(), ElementsAre(Pair("new", 1), Pair("new-2", 2)));
  ASSERT_TRUE(spec().canary);
  EXPECT_EQ(spec().canary->variant, "new-2");
  EXPECT_EQ(spec().variants[1].weight, 0) << "its share is given by who watches it";
  EXPECT_THAT(step(deploy(2, canary)).why, HasSubstr("already"));
  deploy(3, canary);
  EXPECT_THAT(names(), ElementsAre(Pair("new", 1), Pair("new-3", 3))) << "one that is under way gives way";
  EXPECT_EQ(spec().canary->variant, "new-3");
}

TEST_F(FlowSteps, AStepWaitsForItsCanaryAndFailsWithIt) {
  for (int i = 0; i < 3; ++i) version({{"model.onnx", onnx()}});
  run("{name: a, deploy: {endpoint: e, variant: new, model: m, version: 1}}");
  const auto begin = [&](int number) {
    declare("Pipeline", "w",
            fmt::format("{{steps: [{{name: a, deploy: {{endpoint: e, variant: new, model: m, version: "
                        "{}, wait: true, canary: {{steps: [50, 100], every: 1s, requestsMin: 1}}}}}}]}}",
                        number));
    const auto id =
        api.flow->start(where, flow::Begin{"w", {}, {{"by", "user/test"}}, "", "user/test", true, ""}).facts.id;
    look(5);
    EXPECT_EQ(step(api.flow->runs().find(id)).phase, flow::StepPhase::running) << "the canary is under way";
    return id;
  };
  const auto second = begin(2);
  declare("Endpoint", "e",
          "{variants: [{name: new, model: m, version: 1, weight: 0}, {name: new-2, model: m, version: 2, weight: 1}]}");
  look(5);
  EXPECT_EQ(api.flow->runs().find(second).life.phase, flow::RunPhase::succeeded);
  EXPECT_THAT(step(api.flow->runs().find(second)).why, HasSubstr("new-2 has taken over e"));
  const auto third = begin(3);
  declare(
      "Endpoint", "e",
      "{variants: [{name: new-2, model: m, version: 2, weight: 1}, {name: new-3, model: m, version: 3, weight: 0}]}");
  look(5);
  EXPECT_EQ(api.flow->runs().find(third).life.phase, flow::RunPhase::failed);
  const auto again = begin(3);
  api.flow->cancel(where, again, "enough", act);
  look(5);
  EXPECT_EQ(api.flow->runs().find(again).life.phase, flow::RunPhase::cancelled);
  const auto left =
      decode<serving::EndpointSpec>(api.resources->get({"Endpoint", "acme", "flights", "e"}).resource.spec, "e");
  EXPECT_FALSE(left.canary) << "what it had begun is taken back";
}

TEST_F(FlowSteps, AGateLooksIntoTheFilesOfAModel) {
  const auto good = gate(version({{"model.onnx", onnx()}, {"MLmodel", "flavors: {}"}}), "{safe: true}");
  EXPECT_EQ(good.life.phase, flow::RunPhase::succeeded) << step(good).why;
  EXPECT_THAT(step(good).why, HasSubstr("2 files"));
  const auto pickle = gate(version({{"model.onnx", onnx()}, {"extra.pkl", "x"}}), "{safe: true}");
  EXPECT_THAT(step(pickle).why, HasSubstr("extra.pkl is a .pkl file"));
  EXPECT_EQ(pickle.life.phase, flow::RunPhase::failed);
  const auto broken = gate(version({{"model.onnx", "no model at all"}}), "{safe: true}");
  EXPECT_THAT(step(broken).why, HasSubstr("not safe: model.onnx"));
  EXPECT_THAT(step(gate(version({{"weights", "1"}}), "{safe: true}")).why, HasSubstr("no ONNX model"));
}

TEST_F(FlowSteps, WhatAGateSawIsInTheRecordOfThePromotion) {
  const auto number = version({{"model.onnx", onnx()}}, {{"auc", 0.8}, {"auc/origin/SEA", 0.75}});
  declare("Dataset", "rows", "{columns: [{name: n, type: int64}]}");
  ingest("rows", "n\n1\n");
  const auto done = run(fmt::format(
      "{{name: c, check: {{dataset: rows}}}}, {{name: a, after: [c], gate: {{model: m, version: {0}, conditions: "
      "[{{metric: auc, atLeast: 0.7}}, {{metric: auc, slices: origin, atLeast: 0.7}}, {{safe: true}}]}}}}, "
      "{{name: p, promote: {{model: m, version: \"${{{{steps.a.outputs.version}}}}\", alias: champion}}}}",
      number));
  ASSERT_EQ(done.life.phase, flow::RunPhase::succeeded) << done.life.why;
  const auto evidence = json::serialize(api.promotions->history(where, "m").at(0).evidence);
  EXPECT_THAT(evidence, HasSubstr("auc 0.8; at least 0.7"));
  EXPECT_THAT(evidence, HasSubstr("1 slices by origin, worst SEA 0.75"));
  EXPECT_THAT(evidence, HasSubstr("none runs anything when it is opened"));
  EXPECT_THAT(evidence, HasSubstr(R"("kind":"check")"));
  EXPECT_THAT(evidence, HasSubstr(R"("by":"user/test")"));
}

TEST_F(FlowSteps, AGateThatCannotSeeWhatItIsAskedSaysNo) {
  const auto number = version({{"model.onnx", onnx()}});
  declare("Endpoint", "e", fmt::format("{{variants: [{{name: a, model: m, version: {}}}]}}", number));
  declare("Monitor", "watch", "{endpoint: e}");
  EXPECT_THAT(step(gate(number, "{monitor: watch, psiAtMost: 0.1}")).why, HasSubstr("no window yet"));
  EXPECT_THAT(step(gate(number, "{monitor: other, psiAtMost: 0.1}")).why, HasSubstr("other"));
  EXPECT_THAT(step(gate(number, "{endpoint: e, p99AtMost: 1ms}")).why, HasSubstr("has answered 0 requests"));
}

TEST_F(FlowSteps, OfTwoModelsAtOneEndpointEachHasItsOwnLatency) {
  const auto quick = version({{"model.onnx", onnx()}}), slow = version({{"model.onnx", onnx()}}, {}, "other");
  ASSERT_EQ(quick, slow) << "the same number";
  declare("Endpoint", "e",
          fmt::format("{{variants: [{{name: a, model: m, version: {0}}}, {{name: b, model: other, version: {0}}}]}}",
                      quick));
  serving::ServerReport report;
  report.server = "here";
  for (const auto& [name, p99_us] : {std::pair("a", 500.0), {"b", 50'000.0}}) {
    serving::VariantReport variant;
    variant.tenant = "acme";
    variant.project = "flights";
    variant.endpoint = "e";
    variant.variant = name;
    variant.version = quick;
    variant.requests = 300;
    variant.p99_us = p99_us;
    report.variants.push_back(variant);
  }
  api.endpoints->report(report);
  EXPECT_THAT(step(gate(quick, "{endpoint: e, p99AtMost: 1ms}")).why,
              HasSubstr("99 % of 300 answers at e within 500 us"));
}

TEST(ModelFiles, WhatRunsSomethingIsKnownByItsNameOrItsFirstBytes) {
  using flow::runs_something;
  EXPECT_EQ(runs_something("model.onnx", "\x08\x09"), "");
  EXPECT_EQ(runs_something("MLmodel", "flavors:"), "");
  EXPECT_EQ(runs_something("data/Model.PKL", ""), "a .pkl file");
  EXPECT_EQ(runs_something("weights", std::string("\x80\x04\x95", 3)), "a pickle");
  EXPECT_EQ(runs_something("weights", std::string("\x7f"
                                                  "ELF\x02")),
            "a program");
  EXPECT_EQ(runs_something("weights", "#!/bin/sh\n"), "a script");
  EXPECT_THAT(runs_something("weights", std::string("PK\x03\x04", 4)), HasSubstr("archive"));
  EXPECT_EQ(runs_something("empty", ""), "");
}

}  // namespace
}  // namespace falaj::api
