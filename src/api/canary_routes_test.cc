// SPDX-License-Identifier: Apache-2.0
// canaries, as the reports of servers lead them
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "api/testing.h"
#include "foundation/stats/time_buckets.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/traffic/prediction.h"

namespace falaj::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What a server says of a variant: so many answered within so long, so many failed.
struct Said {
  std::int64_t version = 0, failures = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> answered{};  // how many, microseconds
  std::string state = "ready";
};

struct Canaries : testing::Test {
  TestApi api;
  const track::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const sql::Act act{"user/test", "test", "/", ""};
  std::uint64_t made = 0;

  Canaries() {
    api.models->create_model(where, "delay", {}, "", act);
    for (const auto* bytes : {"one", "two", "three"}) {
      const auto run = api.track->create_run(where, {}, act).info.run_id;
      api.vault->put(where, {}, track::run_artifact(run, "model/model.onnx"), blob::source_of(to_bytes(bytes)), act);
      api.models->create_version(where, {"delay", "runs:/" + run + "/model", run, "", "", "", {}}, act);
    }
  }
  // The champion of one version and a canary of another.
  void declare(std::int64_t champion, std::int64_t canary, const std::string& more = "") {
    api.apply(fmt::format(
        "apiVersion: falaj/v1\nkind: Endpoint\nmetadata: {{name: delay, tenant: acme, project: flights}}\n"
        "spec:\n  variants: [{{name: old, model: delay, version: {}}}, {{name: new, model: delay, version: {}, weight: "
        "0}}]\n  canary: {{variant: new, steps: [10, 50, 100], every: 60s{}}}\n",
        champion, canary, more));
  }
  void hear(const Said& champion, const Said& canary, const std::string& server = "s1") {
    serving::ServerReport report;
    report.server = server;
    for (const auto* one : {&champion, &canary}) {
      serving::VariantReport variant{
          "acme", "flights", "delay", one == &champion ? "old" : "new", one->version, one->state, "", 0, one->failures};
      for (const auto& [requests, us] : one->answered) {
        variant.requests += requests;
        variant.latency.push_back(static_cast<std::int64_t>(stats::TimeBuckets<4>::bucket(us)));
        variant.latency.push_back(requests);
      }
      report.variants.push_back(std::move(variant));
    }
    api.endpoints->report(report);
    api.endpoints->watch();
  }
  std::vector<double> weights() {
    std::vector<double> out;
    for (const auto& variant : api.endpoints->current().plan->endpoints.at(0).variants) out.push_back(variant.weight);
    return out;
  }
  std::string why() { return api.endpoints->history(where, "delay", 1).at(0).why; }
  // Labels of what a version predicted, so many of ten of them 1.
  void label(std::int64_t version, std::int64_t many, std::int64_t ones) {
    std::vector<serving::Label> labels;
    api.clock.advance(std::chrono::milliseconds(1));  // names tell no finer times
    const auto ms = static_cast<std::uint64_t>(api.clock.wall().count() / 1000);
    for (std::int64_t i = 0; i < many; ++i)
      labels.push_back({traffic::format_prediction({{ms << 16, ++made}, version == 1 ? "old" : "new", version, 1, 0}),
                        i % 10 < ones ? 1.0 : 0.0});
    api.predictions->add_labels(where, "delay", labels, act);
  }
  void minute() { api.clock.advance(sys::Micros(61'000'000)); }
};

TEST_F(Canaries, AnotherVersionIsNotJudgedByWhatTheOneBeforeItDid) {
  declare(1, 2);
  hear({1}, {2});
  EXPECT_THAT(weights(), ElementsAre(90, 10));
  hear({1}, {2, 0, {}, "failed"});
  EXPECT_THAT(weights(), ElementsAre(100, 0));
  declare(1, 3);
  hear({1}, {2, 0, {}, "failed"});
  EXPECT_THAT(weights(), ElementsAre(90, 10)) << "version 3 is still fetched: the server speaks of version 2";
  hear({1}, {2, 500, {{1'000, 900}}, "quarantined"});
  EXPECT_THAT(weights(), ElementsAre(90, 10));
  hear({1}, {3});
  minute();
  hear({1}, {3, 0, {{100, 900}}});
  EXPECT_THAT(weights(), ElementsAre(50, 50));
  hear({1}, {3, 0, {}, "failed"});
  EXPECT_THAT(weights(), ElementsAre(100, 0)) << "that is about itself";
}

TEST_F(Canaries, LabelsOfAnotherVersionAreNotItsOwn) {
  const auto* guard = ", metricDropMax: 0.1";
  declare(1, 2, guard);
  hear({1}, {2});
  label(1, 500, 9);
  label(2, 500, 2);
  hear({1}, {2});
  EXPECT_THAT(weights(), ElementsAre(100, 0));
  EXPECT_THAT(why(), HasSubstr("labels"));
  declare(1, 3, guard);
  hear({1}, {3});
  label(1, 500, 9);
  hear({1}, {3});
  EXPECT_THAT(weights(), ElementsAre(90, 10));
  label(3, 500, 2);
  hear({1}, {3});
  EXPECT_THAT(weights(), ElementsAre(100, 0));
}

TEST_F(Canaries, TheSameRuleWithAnotherVersionBeginsAtTheFirstShare) {
  declare(1, 2);
  hear({1}, {2});
  minute();
  hear({1}, {2, 0, {{100, 900}}});
  EXPECT_THAT(weights(), ElementsAre(50, 50));
  declare(1, 3);
  hear({1}, {3});
  EXPECT_THAT(weights(), ElementsAre(90, 10));
}

TEST_F(Canaries, OneThatTurnsSlowIsSeenHoweverFastItWas) {
  declare(1, 2);
  hear({1}, {2});
  minute();
  hear({1, 0, {{100'000, 900}}}, {2, 0, {{20'000, 900}}});
  EXPECT_THAT(weights(), ElementsAre(50, 50));
  hear({1, 0, {{100'150, 900}}}, {2, 0, {{20'000, 900}, {150, 30'000}}});  // less than 1 of 100 in all
  EXPECT_THAT(weights(), ElementsAre(100, 0));
  EXPECT_THAT(why(), HasSubstr("its p99 is 3"));
}

TEST_F(Canaries, OneThatFailsNoMoreThanTheOthersStays) {
  declare(1, 2);
  hear({1}, {2});
  hear({1, 1'000, {{3'000, 900}}}, {2, 100, {{300, 900}}});  // too many ask: one of four is refused, whoever answers
  EXPECT_THAT(weights(), ElementsAre(90, 10));
  hear({1, 1'000, {{4'000, 900}}}, {2, 400, {{300, 900}}});
  EXPECT_THAT(weights(), ElementsAre(100, 0));
  EXPECT_THAT(why(), HasSubstr("400 of 700 requests failed"));
}

TEST_F(Canaries, WhatServersCountedBeforeTheyWereFirstHeardOfIsNotOfTheStep) {
  declare(1, 2);
  api.endpoints->watch();  // as after a start of ours: nobody has reported yet
  EXPECT_THAT(weights(), ElementsAre(90, 10));
  hear({1, 0, {{5'000, 900}}}, {2, 4'000, {{100, 900}}});
  EXPECT_THAT(weights(), ElementsAre(90, 10));
  hear({1, 0, {{6'000, 900}}}, {2, 4'060, {{100, 900}}});
  EXPECT_THAT(weights(), ElementsAre(100, 0));
  EXPECT_THAT(why(), HasSubstr("60 of 60 requests failed"));
}

TEST_F(Canaries, ServersAreCountedTogetherAndOneThatStartsAgainFromZero) {
  declare(1, 2);
  hear({1}, {2}, "s1");
  hear({1}, {2}, "s2");
  minute();
  hear({1}, {2, 0, {{60, 900}}}, "s1");
  EXPECT_THAT(weights(), ElementsAre(90, 10));
  hear({1}, {2, 0, {{60, 900}}}, "s2");
  EXPECT_THAT(weights(), ElementsAre(50, 50)) << "120 by both";
  hear({1}, {2, 0, {{70, 900}}}, "s1");
  minute();
  hear({1}, {2, 0, {{50, 900}}}, "s2");  // fewer than before: it was started again
  EXPECT_THAT(weights(), ElementsAre(50, 50)) << "10 and 50";
  hear({1}, {2, 0, {{120, 900}}}, "s1");
  EXPECT_THAT(weights(), ElementsAre(0, 100));
}

TEST_F(Canaries, AChampionThatCrashesMeanwhileIsTakenBack) {
  api.apply(
      "apiVersion: falaj/v1\nkind: Endpoint\nmetadata: {name: delay, tenant: acme, project: flights}\n"
      "spec: {variants: [{name: old, model: delay, version: 1}]}\n");
  api.endpoints->current();
  declare(2, 3);
  hear({2}, {3});
  EXPECT_THAT(weights(), ElementsAre(90, 10));
  hear({2, 0, {}, "quarantined"}, {3});
  const auto& now = api.endpoints->current().plan->endpoints.at(0).variants;
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(now[0].version, 1);
  EXPECT_THAT(why(), HasSubstr("old crashed its server"));
}

}  // namespace
}  // namespace falaj::api
