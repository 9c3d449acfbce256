// SPDX-License-Identifier: Apache-2.0
// Pipelines with steps that do nothing but count, killed at every place where a kill can come between two writes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "foundation/crypto/hash.h"
#include "foundation/crypto/key.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/alerts/kinds.h"
#include "lifecycle/data/testing.h"
#include "lifecycle/flow/flow.h"
#include "lifecycle/flow/kind.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/track/logged_models.h"

namespace falaj::flow {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

struct Killed {};  // no std::exception: nobody on the way catches it

constexpr sql::Migration kCounted[] = {
    {1, "flow_test",
     "CREATE TABLE counted(number BIGINT NOT NULL, what TEXT NOT NULL, step TEXT NOT NULL, id TEXT NOT NULL)"}};

// What steps did is in the same database, so that what is written together is there together.
class CountingWork final : public Work {
 public:
  explicit CountingWork(std::uint64_t seed) : random(seed) {}

  Settled settle(const Task& task) override {
    maybe_killed();
    if (denied.contains(task.step)) throw Error(Code::denied, "may not");
    if (task.kind == "promote") return {task.body, nullptr, std::nullopt};
    return {task.body, json::object{{"inputs", changed}}, std::nullopt};
  }
  Job submit(const Task& task) override {
    maybe_killed();
    const auto id = fmt::format("job/{}", ++jobs);
    return {id, [this, task, id](sql::Writer& w) { count(w, "job", task, id); }};
  }
  Acted act(const Task& task) override {
    maybe_killed();
    if (task.kind == "promote")
      return {{}, [this, task](sql::Writer& w) {
                count(w, "effect", task, task.id());
                return done(task);
              }};
    effects.insert(task.id());  // again it has no second effect
    maybe_killed();
    return {done(task), {}};
  }
  std::optional<Done> look(const Task& task, const std::string& ticket) override {
    maybe_killed();
    if (waits) return std::nullopt;
    if (random.below(3) == 0) return std::nullopt;
    looked.insert(ticket);
    return done(task);
  }
  void stop(const Task&, const std::string& ticket, const std::string&) override {
    if (stops_fail > 0 && --stops_fail >= 0) throw Error(Code::conflict, "somebody else changed it");
    stopped.insert(ticket);
    waits = false;
  }
  bool is_there(const Where&, std::string_view, const json::value& outputs) override {
    return !gone.contains(std::string(outputs.at("run").as_string()));
  }
  Spent spent(const Where&, const std::vector<std::string>& tickets, std::int64_t) override {
    return {static_cast<double>(tickets.size()), 0};
  }

  // What a step makes is of what it was given.
  Done done(const Task& task) const {
    if (fails.contains(task.step)) return {Done::How::failed, "it fails", {}, "", false};
    if (refuses.contains(task.step)) return {Done::How::refused, "not good enough", {}, "", false};
    const auto made = crypto::sha256(canonical(task.body)).hex().substr(0, 12);
    return {Done::How::succeeded, "", json::object{{"run", made}, {"dataset", made}, {"failed", 0}}, "", false};
  }
  void count(sql::Writer& w, const std::string& what, const Task& task, const std::string& id) {
    w.execute("INSERT INTO counted(number, what, step, id) VALUES (?, ?, ?, ?)",
              {static_cast<std::int64_t>(random.below(1u << 30)), what, task.run + "/" + task.step, id});
  }
  void maybe_killed() {
    if (kills && random.below(4) == 0) throw Killed{};
  }

  sys::SimRandom random;
  std::int64_t jobs = 0;
  int stops_fail = 0;  // so many, before they do not
  bool kills = false, waits = false;
  std::string changed;
  std::set<std::string> fails, refuses, denied, effects, looked, stopped, gone;
};

// What rules see: one signal while it is bad.
class Bad final : public alerts::SignalSource {
 public:
  std::vector<alerts::Signal> read(const alerts::Question&) override {
    if (!bad) return {};
    return {{"endpoint/late", {{"endpoint", "late"}}, 1, "half of them are zero", 0}};
  }
  bool bad = false;
};

std::vector<resource::Kind> kinds_of_flow() {
  auto out = alerts::alert_kinds();
  out.push_back(pipeline_kind([](const json::value&, const std::string&, Faults&) {}));
  return out;
}

class FlowTest : public testing::TestWithParam<std::string> {
 public:
  FlowTest() : data(GetParam(), {}, kinds_of_flow()), work(1) {
    auto& base = data.base;
    for (const auto& module : {track::Track::migrations(), track::LoggedModels::migrations(),
                               models::Registry::migrations(), alerts::Alerts::migrations(), Flow::migrations()})
      base.database->migrate(module);
    base.database->migrate(kCounted);
    data.apply(R"(
{apiVersion: falaj/v1, kind: User, metadata: {name: test}, spec: {}}
---
{apiVersion: falaj/v1, kind: User, metadata: {name: ada}, spec: {}}
---
{apiVersion: falaj/v1, kind: RoleBinding, metadata: {name: all}, spec: {role: admin, subjects: [user/test, user/ada]}}
)");
    track = std::make_unique<track::Track>(*base.database, *base.directory, base.clock, base.random, *base.metrics);
    std::array<std::byte, crypto::Key::kBytes> key{};
    webhooks = std::make_unique<models::Webhooks>(*base.database, crypto::Key::from(key), base.clock, base.random);
    promotions = std::make_unique<models::Promotions>(*base.database, *webhooks, base.clock);
    alerts = std::make_unique<alerts::Alerts>(
        alerts::Alerts::Parts{*base.database, *data.resources, base.clock, base.random, *base.metrics},
        alerts::Sources{{"quality", &broken}});
    restart();
  }
  ~FlowTest() override { flow.reset(); }

  void restart() {
    flow.reset();
    FlowOptions options;
    options.workers = 0;
    flow = std::make_unique<Flow>(
        Flow::Parts{*data.base.database, *data.resources, *data.base.directory, *data.datasets, *promotions, *track,
                    work, *alerts, data.base.clock, data.base.random, *data.base.metrics},
        options);
  }
  void declare(const std::string& spec, const std::string& name = "p") {
    data.apply(
        fmt::format("{{apiVersion: falaj/v1, kind: Pipeline, metadata: {{tenant: acme, project: flights, name: "
                    "{}}}, spec: {}}}",
                    name, spec));
  }
  flow::Run start(json::object parameters = {}, const std::string& key = "", const std::string& owner = "user/test") {
    Begin begin;
    begin.pipeline = "p";
    begin.parameters = std::move(parameters);
    begin.cause = {{"by", owner}};
    begin.key = key;
    begin.owner = owner;
    return flow->start(kWhere, begin);
  }
  // A rule `broken`, and whether it fires.
  void rule() {
    data.apply(
        "{apiVersion: falaj/v1, kind: AlertRule, metadata: {tenant: acme, project: flights, name: broken}, spec: {on: "
        "quality, groupBy: [rule]}}");
  }
  void data_are(bool bad) {
    broken.bad = bad;
    alerts->look();
    data.base.clock.advance(std::chrono::seconds(1));
  }
  // A look, and what is left of it when it is killed.
  void look() {
    try {
      flow->pass();
    } catch (const Killed&) {
      restart();
    }
    data.base.clock.advance(std::chrono::seconds(1));
  }
  flow::Run finish(const std::string& id, int looks = 3000) {
    for (int i = 0; i < looks; ++i) {
      look();
      auto run = flow->runs().find(id);
      if (has_ended(run.life.phase)) return run;
    }
    ADD_FAILURE() << "it does not end";
    return flow->runs().find(id);
  }
  void look_often(int many = 20) {
    for (int i = 0; i < many; ++i) look();
  }
  std::map<std::string, std::string> phases(const flow::Run& run) {
    std::map<std::string, std::string> out;
    for (const auto& [id, step] : run.life.steps) out[id] = name_of(step.phase);
    return out;
  }
  // How often each step of a run was begun, by what is in the database.
  std::map<std::string, int> counted(const std::string& run, const std::string& what) {
    std::map<std::string, int> out;
    data.base.database->read([&](sql::Reader& r) {
      r.query("SELECT step FROM counted WHERE what = ?", {std::string_view(what)}, [&](const sql::Row& row) {
        const std::string step(row.text(0));
        if (step.starts_with(run + "/")) ++out[step.substr(run.size() + 1)];
      });
    });
    return out;
  }

  static inline const Where kWhere = data::DataFixture::kFlights;
  data::DataFixture data;
  CountingWork work;
  std::unique_ptr<track::Track> track;
  std::unique_ptr<models::Webhooks> webhooks;
  std::unique_ptr<models::Promotions> promotions;
  Bad broken;
  std::unique_ptr<alerts::Alerts> alerts;
  std::unique_ptr<Flow> flow;
};

// A graph in which each step refers to some before it.
struct RandomPipeline {
  std::vector<std::vector<std::size_t>> needs;
  std::vector<int> kinds;  // 0: run, 1: check, 2: promote
  std::string spec;

  explicit RandomPipeline(sys::Random& random, bool runs_only = false) {
    const auto many = 2 + random.below(8);
    std::string steps;
    for (std::size_t i = 0; i < many; ++i) {
      needs.emplace_back();
      for (std::size_t j = 0; j < i; ++j)
        if (random.below(3) == 0) needs[i].push_back(j);
      kinds.push_back(runs_only ? 0 : static_cast<int>(random.below(3)));
      std::string words = "x", after;
      for (const auto need : needs[i]) {
        if (kinds[i] == 0 && kinds[need] == 0)
          words += fmt::format(R"(, "${{{{steps.s{}.outputs.run}}}}")", need);
        else
          after += fmt::format("{}s{}", after.empty() ? "" : ", ", need);
      }
      if (runs_only && i == many / 2) words += R"(, "${{params.p}}")";
      const auto body = kinds[i] == 0   ? fmt::format("run: {{command: [s{}, {}]}}", i, words)
                        : kinds[i] == 1 ? fmt::format("check: {{dataset: d{}}}", i)
                                        : fmt::format("promote: {{model: m{}, version: 1, alias: a}}", i);
      steps += fmt::format("{}{{name: s{}, after: [{}], {}}}", i > 0 ? ", " : "", i, after, body);
    }
    spec = fmt::format("{{parameters: {{p: {{type: int, default: 1}}}}, steps: [{}], parallel: {}}}", steps,
                       1 + random.below(4));
  }
};

// What must come of it, written down as plainly as can be.
std::map<std::string, std::string> expected(const RandomPipeline& pipeline, const CountingWork& work) {
  std::map<std::string, std::string> out;
  for (std::size_t i = 0; i < pipeline.needs.size(); ++i) {
    const auto id = fmt::format("s{}", i);
    bool failed = false, skipped = false;
    for (const auto need : pipeline.needs[i]) {
      const auto& was = out.at(fmt::format("s{}", need));
      failed |= was == "failed" || was == "blocked";
      skipped |= was == "skipped";
    }
    out[id] = failed                      ? "blocked"
              : skipped                   ? "skipped"
              : work.fails.contains(id)   ? "failed"
              : work.refuses.contains(id) ? "skipped"
                                          : "succeeded";
  }
  return out;
}

TEST_P(FlowTest, KilledAnywhereItDoesEveryStepOnceAndAsAPlainReferenceSays) {
  const int seeds = GetParam() == "sqlite" ? 40 : 5;
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    sys::SimRandom random(static_cast<std::uint64_t>(seed));
    const RandomPipeline pipeline(random);
    work.fails.clear();
    work.refuses.clear();
    work.effects.clear();
    for (std::size_t i = 0; i < pipeline.needs.size(); ++i) {
      if (random.below(8) == 0) work.fails.insert(fmt::format("s{}", i));
      if (random.below(10) == 0) work.refuses.insert(fmt::format("s{}", i));
    }
    work.changed = fmt::format("seed {}", seed);
    declare(pipeline.spec);
    work.kills = true;
    const auto run = finish(start().facts.id);
    work.kills = false;
    const auto want = expected(pipeline, work);
    EXPECT_EQ(phases(run), want);
    const bool fails = std::any_of(want.begin(), want.end(), [](const auto& one) { return one.second == "failed"; });
    EXPECT_EQ(run.life.phase, fails ? RunPhase::failed : RunPhase::succeeded);
    const auto jobs = counted(run.facts.id, "job"), effects = counted(run.facts.id, "effect");
    std::map<std::string, int> want_jobs, want_effects;
    std::size_t want_acts = 0;
    for (std::size_t i = 0; i < pipeline.needs.size(); ++i) {
      const auto id = fmt::format("s{}", i);
      const bool ran = want.at(id) == "succeeded" || want.at(id) == "failed" ||
                       (work.refuses.contains(id) && run.life.steps.at(id).attempt > 0);
      if (!ran) continue;
      if (pipeline.kinds[i] == 0) want_jobs[id] = 1;
      if (pipeline.kinds[i] == 1) ++want_acts;
      if (pipeline.kinds[i] == 2) want_effects[id] = 1;
    }
    EXPECT_EQ(jobs, want_jobs);
    EXPECT_EQ(effects, want_effects);
    EXPECT_EQ(work.effects.size(), want_acts);
    if (HasFailure()) return;
  }
}

TEST_P(FlowTest, UnchangedNothingRunsAndOneParameterRunsWhatDependsOnIt) {
  for (int seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    sys::SimRandom random(static_cast<std::uint64_t>(seed) + 100);
    const RandomPipeline pipeline(random, true);
    work.changed = fmt::format("seed {}", seed);
    declare(pipeline.spec);
    const auto first = finish(start().facts.id);
    ASSERT_EQ(first.life.phase, RunPhase::succeeded) << first.life.why;
    const auto again = start();
    flow->pass();  // one look is enough
    const auto second = flow->runs().find(again.facts.id);
    EXPECT_EQ(second.life.phase, RunPhase::succeeded);
    for (const auto& [id, step] : second.life.steps) {
      EXPECT_EQ(step.phase, StepPhase::kept) << id;
      EXPECT_EQ(step.from, first.facts.id + "/" + id);
      EXPECT_EQ(step.outputs, first.life.steps.at(id).outputs);
    }
    EXPECT_TRUE(counted(again.facts.id, "job").empty());

    std::set<std::size_t> behind{pipeline.needs.size() / 2};
    for (std::size_t i = 0; i < pipeline.needs.size(); ++i)
      for (const auto need : pipeline.needs[i])
        if (behind.contains(need)) behind.insert(i);
    const auto third = finish(start({{"p", 2}}).facts.id);
    for (std::size_t i = 0; i < pipeline.needs.size(); ++i)
      EXPECT_EQ(third.life.steps.at(fmt::format("s{}", i)).phase,
                behind.contains(i) ? StepPhase::succeeded : StepPhase::kept)
          << i;
    EXPECT_EQ(counted(third.facts.id, "job").size(), behind.size());
    if (HasFailure()) return;
  }
}

TEST_P(FlowTest, WhatWasMadeAndIsGoneIsMadeAgain) {
  declare("{steps: [{name: a, run: {command: [x]}}]}");
  const auto first = finish(start().facts.id);
  work.gone.insert(std::string(first.life.steps.at("a").outputs.at("run").as_string()));
  EXPECT_EQ(finish(start().facts.id).life.steps.at("a").phase, StepPhase::succeeded);
  work.gone.clear();
  declare("{steps: [{name: a, cache: false, run: {command: [x]}}]}");
  EXPECT_EQ(finish(start().facts.id).life.steps.at("a").phase, StepPhase::succeeded);
}

TEST_P(FlowTest, AResumedRunDoesOnlyWhatDidNotSucceed) {
  declare(
      "{steps: [{name: a, run: {command: [x]}}, {name: b, after: [a], run: {command: [y]}}, {name: c, after: [b], "
      "run: {command: [z]}}]}");
  work.fails = {"b"};
  const auto failed = finish(start().facts.id);
  EXPECT_THAT(phases(failed),
              UnorderedElementsAre(std::pair("a", "succeeded"), std::pair("b", "failed"), std::pair("c", "blocked")));
  EXPECT_THAT(failed.life.why, HasSubstr("b: it fails"));
  EXPECT_THROW(flow->cancel(kWhere, failed.facts.id, "", {"user/ada", "x", "/", ""}), Error);
  work.fails.clear();
  flow->resume(kWhere, failed.facts.id, {"user/ada", "x", "/", ""});
  const auto resumed = finish(failed.facts.id);
  EXPECT_EQ(resumed.life.phase, RunPhase::succeeded);
  EXPECT_EQ(resumed.life.resumed, 1);
  EXPECT_THAT(counted(failed.facts.id, "job"),
              UnorderedElementsAre(std::pair("a", 1), std::pair("b", 2), std::pair("c", 1)));
  EXPECT_THROW(flow->resume(kWhere, failed.facts.id, {"user/ada", "x", "/", ""}), Error) << "it has succeeded";
}

TEST_P(FlowTest, CancelStopsWhatRunsAndBeginsNothing) {
  declare("{steps: [{name: a, run: {command: [x]}}, {name: b, after: [a], run: {command: [y]}}]}");
  work.waits = true;
  const auto id = start().facts.id;
  look_often();
  flow->cancel(kWhere, id, "enough", {"user/ada", "x", "/", ""});
  const auto run = finish(id);
  EXPECT_EQ(run.life.phase, RunPhase::cancelled);
  EXPECT_THAT(run.life.why, HasSubstr("cancelled by user/ada: enough"));
  EXPECT_EQ(work.stopped.size(), 1u);
  EXPECT_EQ(counted(id, "job").size(), 1u);
}

TEST_P(FlowTest, WhatCouldNotBeToldToStopIsToldAgain) {
  declare("{steps: [{name: a, run: {command: [x]}}]}");
  work.waits = true;
  work.stops_fail = 2;
  const auto id = start().facts.id;
  look();
  flow->cancel(kWhere, id, "enough", {"user/ada", "x", "/", ""});
  EXPECT_EQ(finish(id, 100).life.phase, RunPhase::cancelled);
  EXPECT_EQ(work.stopped.size(), 1u);
}

TEST_P(FlowTest, NothingIsLearnedFromBrokenDataWhoeverBeganIt) {
  rule();
  data.declare("rows", R"({"columns": [{"name": "a", "type": "int64"}]})");
  declare(
      "{blockedBy: [broken], triggers: [{dataset: rows}], steps: [{name: a, cache: false, run: {command: [x]}}, {name: "
      "b, after: [a], promote: {model: m, version: 1, alias: a}}]}");
  work.waits = true;
  const auto under_way = start().facts.id;
  look();
  EXPECT_EQ(flow->runs().find(under_way).life.steps.at("a").phase, StepPhase::running);
  data_are(true);
  const auto stopped = finish(under_way);
  EXPECT_EQ(stopped.life.phase, RunPhase::cancelled);
  EXPECT_THAT(stopped.life.why, HasSubstr("data are broken, by alert 1 (broken): half of them are zero"));
  EXPECT_TRUE(counted(under_way, "effect").empty());

  const auto by_hand = start().facts.id;
  data.ingest("rows", "a\n1\n");
  EXPECT_EQ(flow->run_triggers(), 0u);
  look_often();
  EXPECT_EQ(flow->runs().find(by_hand).life.phase, RunPhase::queued);
  EXPECT_THAT(flow->runs().find(by_hand).life.why, HasSubstr("waits: data are broken"));
  EXPECT_TRUE(counted(by_hand, "job").empty());

  data_are(false);
  EXPECT_EQ(flow->run_triggers(), 1u) << "what came meanwhile is not lost";
  EXPECT_EQ(finish(by_hand).life.phase, RunPhase::succeeded);
  EXPECT_EQ(finish(flow->runs().numbered(kWhere, "p", 0).facts.id).life.phase, RunPhase::succeeded);
}

TEST_P(FlowTest, BrokenDataAreSeenBeforeAnAliasMoves) {
  rule();
  declare("{blockedBy: [broken], steps: [{name: b, promote: {model: m, version: 1, alias: a}}]}");
  const auto id = start().facts.id;
  flow->pass();  // what the step is to write is known, and not yet written
  data_are(true);
  EXPECT_EQ(finish(id).life.phase, RunPhase::cancelled);
  EXPECT_TRUE(counted(id, "effect").empty());
}

TEST_P(FlowTest, SomebodyElseApproves) {
  declare(
      "{steps: [{name: ok, approve: {message: 'really?', by: [user/ada]}}, {name: b, after: [ok], run: {command: "
      "[y]}}]}");
  const auto id = start().facts.id;
  look_often();
  EXPECT_EQ(flow->runs().find(id).life.steps.at("ok").phase, StepPhase::asking);
  const auto decide = [&](const std::string& who, bool yes) {
    flow->decide(kWhere, id, "ok", yes, "", {who}, {who, "x", "/", ""});
  };
  EXPECT_THROW(decide("user/test", true), Error) << "who began it";
  EXPECT_THROW(decide("user/eve", true), Error) << "not among those who may";
  EXPECT_THROW(flow->decide(kWhere, id, "b", true, "", {"user/ada"}, {"user/ada", "x", "/", ""}), Error);
  restart();
  decide("user/ada", true);
  const auto run = finish(id);
  EXPECT_EQ(run.life.phase, RunPhase::succeeded);
  EXPECT_EQ(run.life.steps.at("ok").outputs.at("by"), json::value("user/ada"));

  const auto second = start().facts.id;
  look_often();
  EXPECT_EQ(flow->runs().find(second).life.steps.at("ok").phase, StepPhase::asking) << "asked each time";
  flow->decide(kWhere, second, "ok", false, "no", {"user/ada"}, {"user/ada", "x", "/", ""});
  EXPECT_EQ(finish(second).life.phase, RunPhase::failed);
}

TEST_P(FlowTest, ConditionsMatricesRetriesAndLimits) {
  declare(
      "{parameters: {go: {type: boolean, default: true}}, steps: ["
      "{name: m, matrix: {d: [1, 2]}, run: {command: ['${{matrix.d}}']}},"
      "{name: w, when: 'not ${{params.go}}', after: [m], run: {command: [y]}},"
      "{name: v, after: [w], run: {command: [y]}},"
      "{name: r, retries: {max: 2, backoff: 5s}, check: {dataset: d}}]}");
  work.fails = {"r"};
  const auto run = finish(start().facts.id);
  EXPECT_THAT(phases(run),
              UnorderedElementsAre(std::pair("m.1", "succeeded"), std::pair("m.2", "succeeded"),
                                   std::pair("r", "failed"), std::pair("v", "skipped"), std::pair("w", "skipped")));
  EXPECT_EQ(run.life.steps.at("r").attempt, 3);
  EXPECT_GE(run.life.steps.at("r").ended_us - run.created_us, 15'000'000) << "5 s, then 10 s";
  work.fails.clear();
  work.waits = true;
  declare("{timeLimit: 30s, steps: [{name: a, cache: false, run: {command: [x]}}]}");
  const auto late = finish(start().facts.id);
  EXPECT_EQ(late.life.phase, RunPhase::failed);
  EXPECT_THAT(late.life.why, HasSubstr("took longer than 30"));
  work.waits = false;
  declare(
      "{budget: {cpuHours: 1}, steps: [{name: a, cache: false, run: {command: [x]}}, {name: b, cache: false, after: "
      "[a], run: {command: [x]}}]}");
  EXPECT_THAT(finish(start().facts.id).life.why, HasSubstr("b: budget: 1.00 of 1 processor hours"));
}

TEST_P(FlowTest, OneRunAtATimeAndOneForAKey) {
  declare("{steps: [{name: a, cache: false, run: {command: [x]}}]}");
  const auto first = start({}, "k"), same = start({}, "k"), second = start();
  EXPECT_EQ(first.facts.id, same.facts.id);
  EXPECT_EQ(second.facts.number, 2);
  work.waits = true;
  look_often();
  EXPECT_EQ(flow->runs().find(second.facts.id).life.phase, RunPhase::queued);
  flow->cancel(kWhere, second.facts.id, "", {"user/ada", "x", "/", ""});
  look_often();
  EXPECT_EQ(flow->runs().find(second.facts.id).life.phase, RunPhase::cancelled);
  work.waits = false;
  EXPECT_EQ(finish(first.facts.id).life.phase, RunPhase::succeeded);
}

TEST_P(FlowTest, TriggersBeginOneRunForEachThingThatHappened) {
  data.declare("rows", R"({"columns": [{"name": "a", "type": "int64"}]})");
  data.ingest("rows", "a\n1\n");
  declare(
      "{parameters: {rows: {}}, whenBusy: wait, steps: [{name: a, run: {command: ['${{params.rows}}']}}], triggers: "
      "[{dataset: rows, parameters: {rows: '${{trigger.dataset}}'}}, {cron: '@hourly', parameters: {rows: x}}]}");
  EXPECT_EQ(flow->run_triggers(), 0u) << "what was before begins nothing";
  data.base.clock.advance(std::chrono::seconds(5));
  data.ingest("rows", "a\n2\n");
  EXPECT_EQ(flow->run_triggers(), 1u);
  restart();
  EXPECT_EQ(flow->run_triggers(), 0u);
  const auto run = flow->runs().numbered(kWhere, "p", 0);
  EXPECT_EQ(run.facts.parameters.at("rows"), json::value("rows@2"));
  EXPECT_EQ(run.owner, "user/test");
  data.base.clock.advance(std::chrono::hours(3));
  EXPECT_EQ(flow->run_triggers(), 1u) << "only the newest time counts";
  EXPECT_EQ(flow->run_triggers(), 0u);
}

TEST_P(FlowTest, EveryTriggerSeesEverythingThatHappened) {
  data.declare("rows", R"({"columns": [{"name": "a", "type": "int64"}]})");
  const std::string triggers =
      "triggers: [{dataset: rows, parameters: {rows: '${{trigger.dataset}}', how: one}}, {dataset: rows, parameters: "
      "{rows: '${{trigger.dataset}}', how: other}}]";
  const std::string spec =
      "parameters: {rows: {}, how: {}}, steps: [{name: a, run: {command: ['${{params.rows}}', '${{params.how}}']}}]";
  declare(fmt::format("{{{}, {}}}", spec, triggers));
  data.base.clock.advance(std::chrono::seconds(5));
  for (const auto* row : {"a\n1\n", "a\n2\n", "a\n3\n"}) {
    data.ingest("rows", row);
    data.base.clock.advance(std::chrono::seconds(1));
  }
  EXPECT_EQ(flow->run_triggers(), 6u);
  restart();
  EXPECT_EQ(flow->run_triggers(), 0u);
  std::vector<std::string> begun;
  for (const auto& run : flow->runs().list(kWhere, {})) begun.push_back(canonical(run.facts.parameters));
  EXPECT_THAT(begun, UnorderedElementsAre(R"({"how":"one","rows":"rows@1"})", R"({"how":"one","rows":"rows@2"})",
                                          R"({"how":"one","rows":"rows@3"})", R"({"how":"other","rows":"rows@1"})",
                                          R"({"how":"other","rows":"rows@2"})", R"({"how":"other","rows":"rows@3"})"));
  // One that is added begins with what happens from then on; where a busy pipeline skips, only the newest counts.
  data.base.clock.advance(std::chrono::seconds(5));
  declare(
      fmt::format("{{whenBusy: skip, concurrency: 100, {}, {}}}", spec,
                  triggers.substr(0, triggers.size() - 1) + ", {dataset: rows, parameters: {rows: x, how: third}}]"));
  EXPECT_EQ(flow->run_triggers(), 0u);
  data.base.clock.advance(std::chrono::seconds(5));
  for (const auto* row : {"a\n4\n", "a\n5\n"}) {
    data.ingest("rows", row);
    data.base.clock.advance(std::chrono::seconds(1));
  }
  EXPECT_EQ(flow->run_triggers(), 3u);
  EXPECT_EQ(flow->runs().list(kWhere, {"p", "", "", 3})[2].facts.parameters.at("rows"), json::value("rows@5"));
}

TEST_P(FlowTest, AnAlertBeginsARunEachTimeItFires) {
  rule();
  data_are(true);
  declare(
      "{parameters: {about: {}, alert: {type: int}}, steps: [{name: a, run: {command: ['${{params.about}}']}}], "
      "triggers: [{alert: {rule: broken}, parameters: {about: '${{trigger.rule}}: ${{trigger.text}} of "
      "${{trigger.subject}}', alert: '${{trigger.alert}}'}}]}");
  EXPECT_EQ(flow->run_triggers(), 0u) << "what fired before begins nothing";
  data_are(false);
  EXPECT_EQ(flow->run_triggers(), 0u);
  data_are(true);
  EXPECT_EQ(flow->run_triggers(), 1u);
  restart();
  EXPECT_EQ(flow->run_triggers(), 0u);
  const auto run = flow->runs().numbered(kWhere, "p", 0);
  EXPECT_EQ(run.facts.parameters.at("about"), json::value("broken: half of them are zero of endpoint/late"));
  EXPECT_EQ(run.facts.parameters.at("alert"), json::value(2));
  EXPECT_EQ(run.cause.at("severity"), json::value("warning"));
  data_are(false);
  data_are(true);
  EXPECT_EQ(flow->run_triggers(), 1u);
  EXPECT_THROW(declare("{steps: [{name: a, run: {command: [x]}}], triggers: [{alert: {rule: none}}]}"), Error);
  EXPECT_THROW(declare("{blockedBy: [broken], steps: [{name: a, run: {command: [x]}}], triggers: [{alert: {rule: "
                       "broken}}]}"),
               Error);
}

TEST_P(FlowTest, OfSeveralPushesWithOneSecretTheBranchTells) {
  declare(
      "{parameters: {to: {}}, steps: [{name: a, run: {command: [x]}}], triggers: [{push: {secret: hook, branch: main}, "
      "parameters: {to: production}}, {push: {secret: hook, branch: dev}, parameters: {to: test}}]}");
  const auto reveal = [](const std::string&) { return std::string("s3cret"); };
  const auto pushed = [&](const std::string& branch) {
    const auto body = fmt::format(R"({{"ref": "refs/heads/{}"}})", branch);
    return flow->pushed(kWhere, "p", "sha256=" + crypto::hmac_sha256(as_bytes("s3cret"), as_bytes(body)).hex(), body,
                        reveal);
  };
  EXPECT_EQ(pushed("dev")->facts.parameters.at("to"), json::value("test"));
  EXPECT_EQ(pushed("main")->facts.parameters.at("to"), json::value("production"));
  EXPECT_FALSE(pushed("other"));
}

TEST_P(FlowTest, APushIsSignedAndBeginsOneRunHoweverOftenItComes) {
  declare(
      "{parameters: {commit: {}}, steps: [{name: a, run: {command: [x]}}], triggers: [{push: {secret: hook, branch: "
      "main}, parameters: {commit: '${{trigger.commit}}'}}]}");
  const auto reveal = [](const std::string&) { return std::string("s3cret"); };
  const auto sign = [](const std::string& body, const std::string& key) {
    return "sha256=" + crypto::hmac_sha256(as_bytes(key), as_bytes(body)).hex();
  };
  const std::string body = R"({"ref": "refs/heads/main", "after": "abc123"})";
  for (const auto& signature : {std::string(), sign(body, "other"), sign(body + " ", "s3cret")})
    EXPECT_THROW(flow->pushed(kWhere, "p", signature, body, reveal), Error);
  EXPECT_THROW(flow->pushed(kWhere, "none", sign(body, "s3cret"), body, reveal), Error);
  const auto run = flow->pushed(kWhere, "p", sign(body, "s3cret"), body, reveal);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->facts.parameters.at("commit"), json::value("abc123"));
  EXPECT_EQ(flow->pushed(kWhere, "p", sign(body, "s3cret"), body, reveal)->facts.id, run->facts.id);
  const std::string other = R"({"ref": "refs/heads/dev", "after": "abc123"})";
  EXPECT_FALSE(flow->pushed(kWhere, "p", sign(other, "s3cret"), other, reveal));
}

TEST_P(FlowTest, OldRunsAreForgottenButNotWhatASignedCallBegan) {
  const std::string spec = "steps: [{name: a, run: {command: [x]}}], triggers: [{push: {secret: hook}}]}";
  declare("{keep: 10d, " + spec);
  const auto reveal = [](const std::string&) { return std::string("s3cret"); };
  const std::string body = R"({"ref": "refs/heads/main"})";
  const auto signature = "sha256=" + crypto::hmac_sha256(as_bytes("s3cret"), as_bytes(body)).hex();
  const auto pushed = flow->pushed(kWhere, "p", signature, body, reveal)->facts.id;
  finish(pushed);
  finish(start().facts.id);
  const auto last = finish(start().facts.id).facts.number;
  data.base.clock.advance(std::chrono::hours(9 * 24));
  EXPECT_EQ(flow->forget(), 0u);
  EXPECT_EQ(flow->pushed(kWhere, "p", signature, body, reveal)->facts.id, pushed);
  data.base.clock.advance(std::chrono::hours(2 * 24));
  EXPECT_EQ(flow->forget(), 2u) << "the newest stays";
  EXPECT_EQ(flow->runs().list(kWhere, {}).size(), 1u);
  EXPECT_THROW(flow->pushed(kWhere, "p", signature, body, reveal), Error) << "nor can it be sent again";
  EXPECT_EQ(finish(start().facts.id).facts.number, last + 1);
  EXPECT_EQ(flow->runs().numbered(kWhere, "p", 0).life.steps.at("a").phase, StepPhase::kept);
  data.base.clock.advance(std::chrono::hours(91 * 24));
  flow->forget();
  EXPECT_EQ(finish(start().facts.id).life.steps.at("a").phase, StepPhase::succeeded) << "made too long ago";
}

TEST_P(FlowTest, ItIsARunInTrackingAndWhoMayNotBeginsNothing) {
  declare("{parameters: {p: {default: q}}, steps: [{name: a, run: {command: [x]}}]}");
  const auto run = finish(start().facts.id);
  const auto tracked = track->run(kWhere, run.life.run_id);
  EXPECT_EQ(tracked.info.status, track::RunStatus::finished);
  EXPECT_EQ(tracked.params, (std::vector<track::KeyValue>{{"p", "q"}}));
  EXPECT_THROW(start({}, "", "user/nobody"), Error);
  EXPECT_THROW(start({{"other", 1}}), Error);
  work.denied = {"a"};
  work.changed = "new";
  EXPECT_THAT(finish(start().facts.id).life.why, HasSubstr("a: may not"));
}

INSTANTIATE_TEST_SUITE_P(Engines, FlowTest, testing::ValuesIn(sql::engines()), [](const auto& of) { return of.param; });

}  // namespace
}  // namespace falaj::flow
