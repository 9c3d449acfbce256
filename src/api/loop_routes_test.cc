// SPDX-License-Identifier: Apache-2.0
// Policies on a whole platform, on both engines: what they begin, what stops them, and who is told.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/testing.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/flow/flow.h"
#include "lifecycle/loop/loop.h"
#include "lifecycle/serving/endpoints.h"
#include "storage/sql/testing.h"

namespace falaj::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kDeclared = R"(
{apiVersion: falaj/v1, kind: User, metadata: {name: test}, spec: {}}
---
{apiVersion: falaj/v1, kind: RoleBinding, metadata: {name: all}, spec: {role: admin, subjects: [user/test]}}
---
{apiVersion: falaj/v1, kind: AlertRule, metadata: {tenant: acme, project: flights, name: worse},
 spec: {on: latency, threshold: 0.1, window: 60s}}
---
{apiVersion: falaj/v1, kind: AlertRule, metadata: {tenant: acme, project: flights, name: broken},
 spec: {on: errors, threshold: 0.2, window: 60s}}
---
{apiVersion: falaj/v1, kind: AlertRule, metadata: {tenant: acme, project: flights, name: page}, spec: {on: loop, severity: critical}}
)";

class LoopRoutes : public testing::TestWithParam<std::string> {
 protected:
  LoopRoutes() : api({}, GetParam()) { api.apply(kDeclared); }

  void declare(const std::string& kind, const std::string& name, const std::string& spec) {
    api.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: {}, metadata: {{tenant: acme, project: flights, name: {}}}, "
                    "spec: {}}}",
                    kind, name, spec));
  }
  void policy(const std::string& more) {
    declare("RetrainPolicy", "keep", "{on: [worse], blockedBy: [broken], pipeline: retrain, settle: 1s, " + more + "}");
  }
  // What servers say within a minute, and what rules make of it.
  void tell(bool worse, bool broken = false) {
    serving::VariantReport variant;
    variant.tenant = "acme";
    variant.project = "flights";
    variant.endpoint = "late";
    variant.variant = "champion";
    variant.version = 1;
    variant.state = "ready";
    variant.requests = requests_ += 100;
    variant.failures = failures_ += broken ? 50 : 0;
    (worse ? slow_ : quick_) += 100;
    variant.latency = {alerts::TimeWindows::Times::bucket(1'000), quick_, alerts::TimeWindows::Times::bucket(500'000),
                       slow_};
    serving::ServerReport report;
    report.server = "here";
    report.variants = {variant};
    api.endpoints->report(report);
    api.alerts->look();
  }
  // A minute of the world: everybody looks.
  void live(bool worse, bool broken = false) {
    tell(worse, broken);
    api.loop->look();
    for (int i = 0; i < 10; ++i) api.flow->pass();
    api.loop->look();
    api.clock.advance(std::chrono::seconds(61));
  }
  std::vector<std::string> history() {
    std::vector<std::string> out;
    const auto answer = api.get("/v1/loop/history?" + kProject);
    EXPECT_EQ(answer.status, 200) << answer.body;
    const auto items = answer.json().at("items").as_array();
    for (auto it = items.rbegin(); it != items.rend(); ++it) out.emplace_back(it->at("what").as_string());
    return out;
  }
  json::value view() { return api.get("/v1/loop/policies/keep?" + kProject).json(); }
  bool fires(std::string_view rule) {
    for (const auto& alert : api.alerts->list({"acme", "flights"}, {}))
      if (alert.rule == rule && alert.phase == alerts::Phase::firing) return true;
    return false;
  }

  TestApi api;
  std::int64_t requests_ = 0, failures_ = 0, quick_ = 0, slow_ = 0;
};

TEST_P(LoopRoutes, AModelThatGotWorseIsAnsweredOnceAndWrittenDown) {
  declare("Pipeline", "retrain", "{steps: [{name: a, cache: false, sql: {query: SELECT 1 AS n, into: made}}]}");
  policy("coolDown: 1h");
  live(false);
  live(false);
  EXPECT_TRUE(history().empty()) << "nothing fires, nothing is done";
  EXPECT_THAT(std::string(view().at("next").as_string()), HasSubstr("no alert"));
  for (int i = 0; i < 4; ++i) live(true);
  EXPECT_THAT(history(), ElementsAre("begun", "succeeded"));
  EXPECT_EQ(view().at("state").as_string(), "cooling");
  EXPECT_EQ(api.flow->runs().list({TenantName::parse("acme"), ProjectName::parse("flights")}, {}).size(), 1u);
  EXPECT_EQ(api.loop->forget(api.clock.wall().count()), 2u);
  EXPECT_TRUE(history().empty());
}

TEST_P(LoopRoutes, ATargetThatCannotBeMetStopsAtItsBudgetAndPages) {
  declare("Pipeline", "retrain", "{steps: [{name: a, sql: {query: SELECT 1 FROM none, into: made}}]}");
  policy("coolDown: 1m, budget: {runs: 2, per: 7d}, triesMax: 10");
  live(false);
  for (int i = 0; i < 12; ++i) live(true);
  EXPECT_THAT(history(), ElementsAre("begun", "failed", "waits", "begun", "failed", "waits", "stopped"));
  EXPECT_EQ(view().at("state").as_string(), "stopped");
  EXPECT_THAT(std::string(view().at("why").as_string()), HasSubstr("2 runs within 7 d"));
  EXPECT_TRUE(fires("page"));
  EXPECT_EQ(api.flow->runs().list({TenantName::parse("acme"), ProjectName::parse("flights")}, {}).size(), 2u);
  EXPECT_EQ(api.post("/v1/loop/policies/keep/resume?" + kProject, "{}").status, 200);
  EXPECT_EQ(api.post("/v1/loop/policies/keep/resume?" + kProject, "{}").error(), "conflict");
  live(true);
  EXPECT_EQ(history().size(), 11u) << "resumed, begun, failed, waits: it tries again";
  live(true);
  EXPECT_FALSE(fires("page"));
}

TEST_P(LoopRoutes, BrokenDataAreNotLearnedFromAndAFailureMayPage) {
  declare("Pipeline", "retrain", "{steps: [{name: a, sql: {query: SELECT 1 FROM none, into: made}}]}");
  policy("coolDown: 1h, whenFailed: page");
  live(false);
  live(true, true);
  live(true, true);
  EXPECT_THAT(history(), ElementsAre("blocked", "waits"));
  EXPECT_EQ(view().at("state").as_string(), "blocked");
  EXPECT_FALSE(fires("page"));
  for (int i = 0; i < 4; ++i) live(true, false);
  EXPECT_THAT(history(), ElementsAre("blocked", "waits", "unblocked", "begun", "failed", "waits"));
  EXPECT_TRUE(fires("page")) << "whenFailed: page";
}

TEST_P(LoopRoutes, ACancelThatWasLostIsAskedAgain) {
  declare("Pipeline", "retrain", "{steps: [{name: ok, approve: {message: really}}]}");
  policy("coolDown: 1h");
  live(false);
  for (int i = 0; i < 3; ++i) live(true);
  EXPECT_THAT(history(), ElementsAre("begun"));
  const vault::Where where{TenantName::parse("acme"), ProjectName::parse("flights")};
  const auto phase = [&] { return api.flow->runs().numbered(where, "retrain", 0).life.phase; };
  tell(true, true);
  api.loop->look();
  EXPECT_THAT(history(), ElementsAre("begun", "blocked"));
  // As if it had been killed before it could ask.
  const auto run = api.flow->runs().numbered(where, "retrain", 0).facts.id;
  api.database->write({"user/test", "x", "/", ""},
                      [&](sql::Writer& w) { api.flow->runs().forget_wishes(w, run, INT64_MAX); });
  api.flow->pass();
  EXPECT_EQ(phase(), flow::RunPhase::running);
  api.loop->look();
  api.flow->pass();
  EXPECT_EQ(phase(), flow::RunPhase::cancelled);
  api.loop->look();
  EXPECT_THAT(history(), ElementsAre("begun", "blocked", "cancelled", "waits"));
}

INSTANTIATE_TEST_SUITE_P(Engines, LoopRoutes, testing::ValuesIn(sql::engines()),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace falaj::api
