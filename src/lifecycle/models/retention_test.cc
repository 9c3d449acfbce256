// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "foundation/base/testing.h"
#include "foundation/base/text.h"
#include "governance/resource/kinds/kinds.h"
#include "lifecycle/models/removal.h"
#include "lifecycle/models/testing.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/removal.h"

namespace falaj::models {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

RetentionRule rule(std::string policy, std::vector<std::string> resources, std::int64_t keep_us, bool archive = false) {
  return {std::move(policy), "", std::move(resources), keep_us, archive};
}

TEST(Due, IsWhatARuleMeansOnceItsTimeIsOver) {
  const std::vector rules{rule("p", {"run/*"}, 10)};
  const Candidate run{{"run/1", "experiment/nightly/run/1"}, true, 100};
  EXPECT_EQ(due(rules, run, 110), nullptr) << "not past the time yet";
  EXPECT_EQ(due(rules, run, 111), &rules[0]);
  EXPECT_EQ(due(rules, {{"blob/1"}, true, 100}, 1000), nullptr);
  EXPECT_EQ(due(rules, {{"run/1"}, false, 100}, 1000), nullptr) << "what is not deleted is not removed";
}

TEST(Due, TheLongestRuleThatSpeaksOfItDecides) {
  const std::vector rules{rule("short", {"run/*"}, 10), rule("long", {"experiment/audited*"}, 1000),
                          rule("put away", {"*"}, 5, true)};
  EXPECT_EQ(due(rules, {{"run/1", "experiment/other/run/1"}, true, 0}, 20), &rules[0]);
  const Candidate audited{{"run/1", "experiment/audited/run/1"}, true, 0};
  EXPECT_EQ(due(rules, audited, 999), nullptr);
  EXPECT_EQ(due(rules, audited, 1001), &rules[1]);
  EXPECT_EQ(due(rules, {{"run/1"}, false, 0}, 6), &rules[2]);
}

TEST(Due, ATenantsRuleNamesTheProject) {
  auto of_tenant = rule("t", {"p/flights/run/*"}, 10);
  of_tenant.prefix = "p/flights/";
  EXPECT_NE(due({&of_tenant, 1}, {{"run/1"}, true, 0}, 20), nullptr);
  of_tenant.prefix = "p/cargo/";
  EXPECT_EQ(due({&of_tenant, 1}, {{"run/1"}, true, 0}, 20), nullptr);
}

class RetentionOf : public testing::TestWithParam<std::string>, public RegistryFixture {
 protected:
  RetentionOf() : RegistryFixture(GetParam()) {
    base.database->migrate(resource::Resources::migrations());
    base.clock.advance(std::chrono::hours(24 * 365 * 30));
    open();
    declare("{apiVersion: falaj/v1, kind: Zone, metadata: {name: uae}, spec: {residency: AE, backends: [memory]}}");
    declare("{apiVersion: falaj/v1, kind: Zone, metadata: {name: eu}, spec: {residency: EU, backends: [memory]}}");
    declare("{apiVersion: falaj/v1, kind: Tenant, metadata: {name: acme}, spec: {zones: [uae, eu]}}");
    declare("{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: flights}, spec: {zone: uae}}");
    declare("{apiVersion: falaj/v1, kind: Project, metadata: {tenant: acme, name: cargo}, spec: {zone: eu}}");
  }
  void open() {
    registry_of_kinds = std::make_unique<resource::Registry>(resource::governance_kinds(*base.directory));
    resources = std::make_unique<resource::Resources>(*base.database, *registry_of_kinds, base.clock);
  }
  void restart_all() {
    resources.reset();
    registry_of_kinds.reset();
    restart();
    open();
  }
  void declare(std::string_view yaml) {
    resources->apply({"user/test", "", "", ""}, resource::read_documents("test", yaml),
                     [](std::string_view, const iam::Scope&) { return std::nullopt; });
  }
  void policy(std::string_view name, std::string_view resources_, std::string_view keep, std::string_view then,
              std::string_view project = "project: flights, ") {
    declare(
        fmt::format("{{apiVersion: falaj/v1, kind: RetentionPolicy, metadata: {{tenant: acme, {}name: {}}}, spec: "
                    "{{resources: {}, keep: {}, then: {}}}}}",
                    project, name, resources_, keep, then));
  }
  RetentionReport pass(bool dry_run = false, int steps = 1'000'000, const iam::Scope& scope = {}) {
    Retention::Asked asked;
    asked.dry_run = dry_run;
    asked.scope = scope;
    asked.go_on = [&steps] { return steps-- > 0; };
    return Retention({*base.database, *base.directory, *resources, *base.vault, *track, *logged_models, *base.metrics})
        .pass(base.clock.wall().count(), asked);
  }
  void days(int n) { base.clock.advance(std::chrono::hours(24 * n) + std::chrono::milliseconds(2)); }
  void put_away(const std::string& run) { track->set_run_stage(kFlights, run, track::Stage::deleted, act()); }
  void end(const std::string& run) {
    track::RunChange change;
    change.status = track::RunStatus::finished;
    change.end_ms = base.clock.wall().count() / 1000;
    track->update_run(kFlights, run, change, act());
  }
  bool exists(const std::string& run) {
    try {
      track->run_info(kFlights, run);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  std::uint64_t stored_bytes() {
    std::uint64_t bytes = 0;
    for (const auto& blob : base.backends.at(vault::VaultFixture::kUae)->list("", "", 1'000'000)) bytes += blob.bytes;
    return bytes;
  }
  std::uint64_t names_below(const std::string& prefix) { return base.vault->list(kFlights, prefix, "", 1000).size(); }
  std::string random_text(std::size_t bytes) {
    std::string out(bytes, ' ');
    base.random.fill(std::as_writable_bytes(std::span(out.data(), out.size())));
    return out;
  }
  std::size_t audited(std::string_view verb) {
    audit::Filter filter;
    filter.verb = verb;
    return base.log->log(filter, std::nullopt, 1000).records.size();
  }

  std::unique_ptr<resource::Registry> registry_of_kinds;
  std::unique_ptr<resource::Resources> resources;
};

TEST_P(RetentionOf, NothingWithoutAPolicy) {
  const auto run = run_with(kFlights, {{"a", "bytes"}});
  put_away(run);
  days(1000);
  const auto report = pass();
  EXPECT_EQ(report.removed_runs, 0);
  EXPECT_TRUE(exists(run));
  EXPECT_EQ(audited("retention.pass"), 0U) << "nothing to say";
}

TEST_P(RetentionOf, DeletedRunsGoAndTheirBytesAreGivenBack) {
  policy("trash", "['run/*']", "30d", "delete");
  const auto before = stored_bytes();
  const auto gone = run_with(kFlights, {{"model/w.bin", random_text(300'000)}, {"log.txt", random_text(50'000)}});
  const auto later = run_with(kFlights, {{"x", random_text(1000)}}), active = run_with(kFlights, {{"y", "1"}});
  const auto with_files = stored_bytes();
  EXPECT_GT(with_files, before + 350'000);
  put_away(gone);
  days(20);
  put_away(later);
  put_away(gone);  // again: that does not make it younger
  days(5);
  EXPECT_EQ(pass().removed_runs, 0) << "25 days are not 30";
  days(6);

  const auto dry = pass(true);
  EXPECT_EQ(dry.removed_runs, 1);
  EXPECT_EQ(dry.files, 2);
  EXPECT_GE(dry.bytes, 350'000);
  EXPECT_TRUE(exists(gone)) << "a dry run does nothing";

  const auto report = pass();
  EXPECT_EQ(report.removed_runs, 1);
  EXPECT_EQ(report.bytes, dry.bytes);
  EXPECT_FALSE(exists(gone));
  EXPECT_TRUE(exists(later));
  EXPECT_TRUE(exists(active));
  EXPECT_EQ(names_below("@run/" + gone), 0U);
  ASSERT_TRUE(report.freed_bytes);
  EXPECT_GE(*report.freed_bytes, 350'000);
  EXPECT_EQ(stored_bytes(), with_files - static_cast<std::uint64_t>(*report.freed_bytes));
  EXPECT_EQ(audited("run.remove"), 1U);
  EXPECT_EQ(base.read(kFlights, track::run_artifact(active, "y")), "1");
  EXPECT_EQ(pass().removed_runs, 0) << "once";
}

TEST_P(RetentionOf, EndedRunsArePutAwayFirstAndCanComeBack) {
  policy("away", "['experiment/Default*']", "10d", "archive");
  policy("trash", "['run/*']", "5d", "delete");
  const auto ended = run_with(kFlights, {{"a", "1"}}), under_way = run_with(kFlights, {{"a", "2"}});
  end(ended);
  days(11);
  auto report = pass();
  EXPECT_EQ(report.archived_runs, 1);
  EXPECT_EQ(report.removed_runs, 0);
  EXPECT_EQ(track->run_info(kFlights, ended).stage, track::Stage::deleted);
  EXPECT_EQ(track->run_info(kFlights, under_way).stage, track::Stage::active);
  track->set_run_stage(kFlights, ended, track::Stage::active, act());
  EXPECT_EQ(pass().archived_runs, 0) << "taking it back is a change";
  days(11);
  EXPECT_EQ(pass().archived_runs, 1);
  days(6);
  EXPECT_EQ(pass().removed_runs, 1);
  EXPECT_FALSE(exists(ended));
}

TEST_P(RetentionOf, WhatAPromotedModelCameFromStaysAndTheReasonIsSaid) {
  policy("trash", "['run/*', 'logged-model/*']", "1d", "delete");
  policy("away", "['run/*']", "1d", "archive");
  const auto run = run_with(kFlights, {{"model/w", random_text(10'000)}});
  end(run);
  const auto version = version_of(kFlights, "delay", run);
  registry->set_alias(kFlights, "delay", "champion", version.number, act());
  days(2);
  EXPECT_EQ(pass().archived_runs, 0) << "it is not even put away";
  put_away(run);
  days(2);
  auto report = pass();
  EXPECT_EQ(report.removed_runs, 0);
  ASSERT_THAT(report.reasons, SizeIs(1));
  EXPECT_EQ(report.reasons[0].resource, "/t/acme/p/flights/run/" + run);
  EXPECT_THAT(report.reasons[0].why, HasSubstr("alias 'champion'"));
  EXPECT_TRUE(exists(run));

  registry->delete_alias(kFlights, "delay", "champion", act());
  const auto before = stored_bytes();
  EXPECT_EQ(pass().removed_runs, 1);
  EXPECT_EQ(registry->files(kFlights, version.model_row, 1, "").size(), 1U);
  EXPECT_EQ(stored_bytes(), before) << "a version that nobody deleted keeps its files";
  registry->delete_version(kFlights, "delay", 1, act());
  days(2);
  EXPECT_GE(pass().freed_bytes.value_or(0), 10'000) << "nothing names them any more";
}

TEST_P(RetentionOf, AHeldRunStays) {
  policy("trash", "['run/*']", "1d", "delete");
  const auto run = run_with(kFlights, {{"a", "1"}});
  track->log(kFlights, run, {{}, {}, {{std::string(kHoldTag), "case 7/2026"}}}, act());
  put_away(run);
  days(2);
  const auto report = pass();
  EXPECT_EQ(report.kept, 1);
  ASSERT_THAT(report.reasons, SizeIs(1));
  EXPECT_THAT(report.reasons[0].why, HasSubstr("case 7/2026"));
  EXPECT_TRUE(exists(run));
}

TEST_P(RetentionOf, DeletedExperimentsGoWithAllThatIsInThem) {
  policy("trash", "['experiment/*']", "7d", "delete");
  const auto number = track->create_experiment(kFlights, "nightly", {{"team", "ops"}}, act());
  track::NewRun wanted;
  wanted.experiment = number;
  std::vector<std::string> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(track->create_run(kFlights, wanted, act()).info.run_id);
  base.put(kFlights, track::run_artifact(runs[0], "f"), random_text(5000));
  track->log_inputs(kFlights, runs[0], {{{"data", "d1", "", "", "", ""}, {}}}, {}, act());
  track::NewLoggedModel model;
  model.experiment = number;
  const auto model_id = logged_models->create(kFlights, model, act()).model_id;
  base.put(kFlights, track::model_artifact(model_id, "w"), random_text(5000));
  track->set_experiment_stage(kFlights, number, track::Stage::deleted, act());
  days(8);
  const auto dry = pass(true);
  const auto report = pass();
  EXPECT_EQ(report.removed_experiments, 1);
  EXPECT_EQ(report.removed_runs, 3);
  EXPECT_EQ(report.removed_models, 1);
  EXPECT_EQ(report.files, 2);
  EXPECT_EQ(std::tuple(dry.removed_experiments, dry.removed_runs, dry.removed_models, dry.bytes),
            std::tuple(1, 3, 1, report.bytes));
  EXPECT_ERROR(track->experiment(kFlights, number), Code::not_found);
  EXPECT_GE(report.freed_bytes.value_or(0), 10'000);
  EXPECT_EQ(track->create_experiment(kFlights, "nightly", {}, act()), number + 1) << "the number is not given again";
}

TEST_P(RetentionOf, AnExperimentWithARunThatIsNeededStays) {
  policy("trash", "['experiment/*']", "7d", "delete");
  const auto number = track->create_experiment(kFlights, "nightly", {}, act());
  track::NewRun wanted;
  wanted.experiment = number;
  const auto needed = track->create_run(kFlights, wanted, act()).info.run_id;
  const auto other = track->create_run(kFlights, wanted, act()).info.run_id;
  base.put(kFlights, track::run_artifact(needed, "model/w"), "weights");
  registry->set_alias(kFlights, "delay", "champion", version_of(kFlights, "delay", needed).number, act());
  track->set_experiment_stage(kFlights, number, track::Stage::deleted, act());
  days(8);
  const auto report = pass();
  EXPECT_EQ(report.removed_experiments, 0);
  EXPECT_EQ(report.kept, 2) << "the run, said once, and its experiment";
  EXPECT_TRUE(exists(needed));
  EXPECT_FALSE(exists(other));
}

TEST_P(RetentionOf, LoggedModelsAndBlobsGoByTheirOwnRules) {
  policy("old", "['logged-model/*', 'blob/raw-*']", "3d", "delete");
  const auto run = run_with(kFlights, {});
  const auto deleted = model_with(kFlights, run, {{"w", "1"}}), kept = model_with(kFlights, run, {{"w", "2"}});
  logged_models->remove(kFlights, deleted, act());
  for (const auto* name : {"raw-1", "raw-2", "Araw", "zraw", "cooked"}) base.put(kFlights, name, name);
  base.vault->pin(kFlights, "raw-2", "lawsuit", act());
  days(4);
  base.put(kFlights, "raw-new", "x");
  const auto report = pass();
  EXPECT_EQ(report.removed_models, 1);
  EXPECT_EQ(report.removed_blobs, 1);
  EXPECT_ERROR(logged_models->get(kFlights, deleted, true), Code::not_found);
  EXPECT_EQ(logged_models->get(kFlights, kept).model_id, kept);
  EXPECT_ERROR(base.vault->info(kFlights, "raw-1"), Code::not_found);
  for (const auto* name : {"raw-2", "raw-new", "Araw", "zraw", "cooked"})
    EXPECT_EQ(base.vault->info(kFlights, name).name, name);
  ASSERT_THAT(report.reasons, SizeIs(1));
  EXPECT_THAT(report.reasons[0].why, HasSubstr("lawsuit"));
  EXPECT_EQ(names_below("@model/" + kept), 1U);
}

TEST_P(RetentionOf, StaysWhereItBelongs) {
  policy("of-tenant", "['p/cargo/run/*']", "1d", "delete", "");
  const auto here = run_with(kFlights, {}), there = run_with(kCargo, {{"a", "1"}});
  put_away(here);
  track->set_run_stage(kCargo, there, track::Stage::deleted, act());
  days(2);
  EXPECT_EQ(pass(false, 1'000'000, iam::Scope::parse("/t/acme/p/flights")).removed_runs, 0);
  EXPECT_EQ(pass(false, 1'000'000, iam::Scope::parse("/t/globex")).policies, 0);
  EXPECT_EQ(pass().removed_runs, 1);
  EXPECT_TRUE(exists(here));
  EXPECT_ERROR(track->run_info(kCargo, there), Code::not_found);
}

// A kill between any two writes of a pass: nothing that can be seen is half gone, and the next pass goes on.
TEST_P(RetentionOf, GoesOnAfterAKillAnywhere) {
  policy("trash", "['run/*']", "1d", "delete");
  std::vector<std::string> runs;
  for (int i = 0; i < 4; ++i) {
    runs.push_back(run_with(kFlights, {{"a", random_text(2000)}, {"b/c", random_text(2000)}}));
    put_away(runs.back());
  }
  days(2);
  // The run is gone, its files are not yet.
  track->remove_run(
      kFlights, runs[0], [](sql::Reader&) {}, act());
  EXPECT_EQ(names_below("@run/" + runs[0]), 2U);
  restart_all();
  EXPECT_EQ(pass(false, 1).removed_runs, 1) << "and stopped";
  EXPECT_EQ(names_below("@run/" + runs[0]), 0U);
  restart_all();
  for (const auto& run : runs) {
    if (exists(run)) {
      EXPECT_EQ(names_below("@run/" + run), 2U) << "what can be seen is whole";
    }
  }
  EXPECT_EQ(pass().removed_runs, 2);
  EXPECT_EQ(names_below("@run/"), 0U);
  EXPECT_THAT(base.database->read([](sql::Reader& r) { return track::leftovers(r, 10); }), IsEmpty());
}

TEST_P(RetentionOf, RemembersItsLastPassAndWaitsForABackup) {
  policy("trash", "['run/*']", "1d", "delete");
  put_away(run_with(kFlights, {{"a", random_text(3000)}}));
  days(2);
  {
    const vault::Vault::Hold backup(*base.vault);
    const auto report = pass();
    EXPECT_EQ(report.removed_runs, 1);
    EXPECT_FALSE(report.freed_bytes) << "the backup may still copy them";
  }
  EXPECT_GE(pass().freed_bytes.value_or(0), 3000) << "made good by the next pass";
  restart_all();
  const auto last =
      Retention({*base.database, *base.directory, *resources, *base.vault, *track, *logged_models, *base.metrics})
          .last();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->at_us, base.clock.wall().count());
  EXPECT_EQ(audited("retention.pass"), 2U);
}

INSTANTIATE_TEST_SUITE_P(Engines, RetentionOf, testing::ValuesIn(sql::engines()));

}  // namespace
}  // namespace falaj::models
