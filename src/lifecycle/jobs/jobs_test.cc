// SPDX-License-Identifier: Apache-2.0
// Jobs with all their threads, on an executor that runs nothing.
#include "lifecycle/jobs/jobs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "foundation/base/testing.h"
#include "foundation/sys/testing.h"
#include "governance/vault/testing.h"
#include "lifecycle/jobs/schedules.h"
#include "lifecycle/jobs/testing.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::jobs {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

class JobsTest : public testing::Test {
 protected:
  JobsTest() : base("sqlite"), registry(job_kinds(bell)) {
    for (const auto& module :
         {track::Track::migrations(), resource::Resources::migrations(), Jobs::migrations(), Schedules::migrations()})
      base.database->migrate(module);
    resources = std::make_unique<resource::Resources>(*base.database, registry, base.clock);
    track = std::make_unique<track::Track>(*base.database, *base.directory, base.clock, base.random, *base.metrics);
    execute::Node node;
    node.name = "n1";
    node.cpu_millis = 4000;
    node.memory_bytes = std::int64_t{16} << 30;
    executor = std::make_unique<FakeExecutor>(base.clock, 7, std::vector{node});
    executor->run_for(seconds(1), seconds(2));
    make();
  }
  ~JobsTest() override { jobs.reset(); }

  void make() {
    JobsOptions options;
    options.launch.directory = dir / "jobs";
    options.launch.url = [] { return "http://127.0.0.1:1"; };
    jobs = std::make_unique<Jobs>(Jobs::Parts{*base.database, *resources, *base.directory, *base.vault, *track,
                                              base.clock, base.random, *base.metrics, bell},
                                  Jobs::Executors{{"local", executor.get()}}, std::move(options));
    jobs->start();
  }
  std::vector<Record> submit(JobSpec spec, const std::string& owner = "user/ada") {
    spec.command = {"train"};
    const auto records = jobs->prepare(kFlights, owner, {{"train", {}, std::move(spec)}},
                                       [](std::size_t, const std::string& path) { return path; });
    base.database->write(base.act("job.create"), [&](sql::Writer& writer) { jobs->insert(writer, records); });
    return records;
  }
  Record after(JobId id, const std::function<bool(const Record&)>& holds, bool clock_moves = true) {
    for (const auto until = real.now() + kPatience; real.now() < until;) {
      auto record = jobs->job(kFlights, id);
      if (holds(record)) return record;
      if (clock_moves) base.clock.advance(milliseconds(100));
    }
    ADD_FAILURE() << "it never came: " << json::serialize(encode(jobs->job(kFlights, id).life));
    return jobs->job(kFlights, id);
  }
  static bool over(const Record& record) { return has_ended(record.life.phase); }
  static bool runs(const Record& record) { return record.life.phase == Phase::running; }

  static inline const Where kFlights = vault::VaultFixture::kFlights;
  static constexpr sys::Micros kPatience = seconds(60);
  const sys::RealClock real;
  sys::TempDir dir;
  vault::VaultFixture base;
  std::shared_ptr<Bell> bell = std::make_shared<Bell>();
  resource::Registry registry;
  std::unique_ptr<resource::Resources> resources;
  std::unique_ptr<track::Track> track;
  std::unique_ptr<FakeExecutor> executor;
  std::unique_ptr<Jobs> jobs;
};

TEST_F(JobsTest, ManyJobsRunToTheirEndAndLeaveNothing) {
  JobSpec spec;
  spec.array = ArraySpec{50, 0};
  const auto records = submit(spec);
  for (const auto& record : records) EXPECT_EQ(after(record.id, over).life.phase, Phase::succeeded);
  EXPECT_TRUE(executor->violations().empty());
  EXPECT_EQ(executor->starts(), 50u);
  for (const auto& record : records) EXPECT_FALSE(fs::exists(dir / ("jobs/" + record.id.str())));
}

TEST_F(JobsTest, WhatAJobLeavesIsKeptInItsRun) {
  executor->run_for(seconds(1000), seconds(1000));
  JobSpec spec;
  spec.run.experiment = "late flights";
  const auto id = submit(spec)[0].id;
  const auto running = after(id, runs, false);
  const auto outputs = dir / ("jobs/" + id.str() + "/outputs");
  fs::create_directories(outputs + "/model");
  std::ofstream(outputs + "/model/weights") << "1 2 3";
  fs::create_symlink("/etc/passwd", outputs + "/passwd");  // is not followed
  base.clock.advance(seconds(1001));
  const auto done = after(id, over);
  EXPECT_EQ(done.life.phase, Phase::succeeded) << done.life.why;
  EXPECT_EQ(base.read(kFlights, track::run_artifact(done.life.run_id, "model/weights")), "1 2 3");
  EXPECT_EQ(track::list_artifacts(*base.vault, kFlights, track::run_artifact(done.life.run_id, "")).size(), 1u);
  const auto run = track->run(kFlights, done.life.run_id);
  EXPECT_EQ(run.info.status, track::RunStatus::finished);
  EXPECT_EQ(track->experiment(kFlights, run.info.experiment).name, "late flights");
}

TEST_F(JobsTest, ARestartFindsWhatRuns) {
  executor->run_for(seconds(500), seconds(1000));
  JobSpec spec;
  spec.array = ArraySpec{8, 0};
  const auto records = submit(spec);
  for (int i = 0; i < 4; ++i) after(records[static_cast<std::size_t>(i)].id, runs, false);
  jobs.reset();
  EXPECT_EQ(executor->running(), 4u) << "what runs goes on running";
  make();
  for (const auto& record : records) EXPECT_EQ(after(record.id, over).life.epoch, 1);
  EXPECT_EQ(executor->starts(), 8u);
  EXPECT_TRUE(executor->violations().empty());
}

TEST_F(JobsTest, WishesAreSeenToEvenAfterARestart) {
  executor->run_for(seconds(100'000), seconds(100'000));
  const auto id = submit({})[0].id;
  after(id, runs, false);
  jobs->stop();
  base.database->write(base.act("job.cancel"), [&](sql::Writer& writer) {
    jobs->wish(writer, kFlights, {id, "cancel", "user/ada"});
  });
  jobs.reset();
  make();
  EXPECT_EQ(after(id, over).life.phase, Phase::cancelled);
}

TEST_F(JobsTest, InputsAreStagedAndTheTokenIsOfTheOwnerAndRevoked) {
  base.declare(iam::User{"acme", "ada", "", "", false});
  base.put(kFlights, "data/rows.csv", "a,b\n1,2\n");
  executor->run_for(seconds(1000), seconds(1000));
  JobSpec spec;
  spec.inputs = {{"rows", "", "", "data/rows.csv"}};
  spec.network = "host";
  const auto id = submit(spec, "user/acme/ada")[0].id;
  after(id, runs, false);
  const auto home = dir / ("jobs/" + id.str());
  std::ifstream staged(home + "/inputs/rows/rows.csv");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(staged), {}), "a,b\n1,2\n");
  std::ifstream file(home + "/secret/token.1");
  const auto token = "Bearer " + std::string(std::istreambuf_iterator<char>(file), {});
  const auto identity = base.directory->authenticate({token, {}, std::nullopt});
  EXPECT_EQ(identity.principal.str(), "user/acme/ada");
  ASSERT_EQ(identity.restrictions.size(), 1u);
  EXPECT_EQ(identity.restrictions[0].scope, kFlights.scope());
  base.clock.advance(seconds(1001));
  after(id, over);
  EXPECT_ERROR(base.directory->authenticate({token, {}, std::nullopt}), Code::unauthenticated);
  EXPECT_FALSE(fs::exists(home));
}

TEST_F(JobsTest, AQuotaHoldsJobsBack) {
  iam::Quota quota;
  quota.tenant = "acme";
  quota.name = "few";
  quota.scope = kFlights.scope();
  quota.concurrent_jobs = 2;
  base.declare(quota);
  executor->run_for(seconds(1000), seconds(1000));
  JobSpec spec;
  spec.array = ArraySpec{4, 0};
  const auto records = submit(spec);
  after(records[1].id, runs, false);
  const auto waits = [&] { return jobs->explain(jobs->job(kFlights, records[3].id)); };
  for (const auto until = real.now() + kPatience; waits().reason != "held" && real.now() < until;) {
  }
  EXPECT_EQ(waits().text, "waits for quota /t/acme/p/flights, which has as many at once as it may");
  EXPECT_EQ(executor->running(), 2u);
  base.clock.advance(seconds(1001));
  for (const auto& record : records) EXPECT_EQ(after(record.id, over).life.phase, Phase::succeeded);
}

TEST(Due, OnlyTheNewestOfTheTimesThatPassedCounts) {
  const auto hourly = Cron::parse("@hourly");
  const auto at = [](std::string_view text) { return *parse_time(text); };
  EXPECT_FALSE(due(hourly, at("2026-01-01T10:00:00Z"), at("2026-01-01T10:59:59Z")));
  EXPECT_EQ(due(hourly, at("2026-01-01T10:00:00Z"), at("2026-01-01T11:00:00Z")), at("2026-01-01T11:00:00Z"));
  EXPECT_EQ(due(hourly, at("2026-01-01T10:00:00Z"), at("2026-01-08T10:30:00Z")), at("2026-01-08T10:00:00Z"));
}

}  // namespace
}  // namespace falaj::jobs
