// SPDX-License-Identifier: Apache-2.0
// Jobs with all their threads, on an executor that runs nothing.
#include "lifecycle/jobs/jobs.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>

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
    for (const auto& module : {track::Track::migrations(), resource::Resources::migrations(), Jobs::migrations(),
                               Schedules::migrations(), Secrets::migrations()})
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
    options.launch.isolation_min = isolation_min;
    options.launch.url = [] { return "http://127.0.0.1:1"; };
    options.dispatcher.idle_after = std::chrono::minutes(2);
    options.usage_every = seconds(10);
    options.power_directory = dir / "power";
    options.stat_file = dir / "stat";
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
  void apply(const std::string& yaml) {
    resources->apply(base.act("resource.apply"), resource::read_documents("some", yaml),
                     [](std::string_view, const iam::Scope&) { return std::nullopt; });
  }
  static bool over(const Record& record) { return has_ended(record.life.phase); }
  static bool runs(const Record& record) { return record.life.phase == Phase::running; }

  static inline const Where kFlights = vault::VaultFixture::kFlights;
  static constexpr sys::Micros kPatience = seconds(60);
  const sys::RealClock real;
  execute::Isolation isolation_min = execute::Isolation::isolated;
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

TEST_F(JobsTest, AStoredCheckpointOutlivesItsDirectory) {
  executor->run_for(seconds(1000), seconds(1000));
  FakeFaults faults;
  faults.fails = 1;
  executor->set_faults(faults);
  JobSpec spec;
  spec.checkpoint.store_us = 60'000'000;
  const auto id = submit(spec)[0].id;
  after(id, runs, false);
  executor->set_faults({});  // the next attempt succeeds
  const auto checkpoint = fs::path(dir / ("jobs/" + id.str() + "/checkpoint"));
  const auto stored = [&] { return base.vault->list(kFlights, "@job/" + id.str() + "/", "", 10); };
  const auto await = [&](const std::function<bool()>& holds) {
    for (const auto until = real.now() + kPatience; !holds() && real.now() < until;) jobs->follow();
    EXPECT_TRUE(holds());
  };
  fs::create_directories(checkpoint / "rank0");
  std::ofstream(checkpoint / "rank0/7") << "weights of step 7";
  jobs->follow();
  EXPECT_TRUE(stored().empty()) << "not yet";
  base.clock.advance(seconds(61));
  await([&] { return stored().size() == 1; });
  std::ofstream(checkpoint / "rank0/8") << "weights of step 8";
  fs::remove(checkpoint / "rank0/7");
  base.clock.advance(seconds(1001));  // it fails, and what it had saved by then is stored, too
  EXPECT_EQ(after(id, over).life.phase, Phase::failed);
  ASSERT_EQ(stored().size(), 1u);
  EXPECT_TRUE(stored()[0].name.ends_with("/rank0/8"));
  fs::remove_all(dir / ("jobs/" + id.str()));
  base.database->write(base.act("job.requeue"), [&](sql::Writer& writer) {
    jobs->wish(writer, kFlights, {id, "requeue", "user/ada"});
  });
  EXPECT_EQ(after(id, runs).life.epoch, 2);
  std::ifstream file(checkpoint / "rank0/8");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "weights of step 8");
  base.clock.advance(seconds(1001));
  EXPECT_EQ(after(id, over).life.phase, Phase::succeeded);
  await([&] { return stored().empty(); });
}

TEST_F(JobsTest, AStoredCheckpointStaysWhenItsDirectoryIsLostWhileTheJobRuns) {
  executor->run_for(seconds(1000), seconds(1000));
  JobSpec spec;
  spec.checkpoint.store_us = 60'000'000;
  const auto id = submit(spec)[0].id;
  after(id, runs, false);
  const auto home = fs::path(dir / ("jobs/" + id.str()));
  const auto stored = [&] { return base.vault->list(kFlights, "@job/" + id.str() + "/", "", 10).size(); };
  std::ofstream(home / "checkpoint/1") << "weights";
  base.clock.advance(seconds(61));
  for (const auto until = real.now() + kPatience; stored() == 0 && real.now() < until;) jobs->follow();
  fs::remove_all(home);
  for (int copies = 0; copies < 3; ++copies) {
    base.clock.advance(seconds(61));
    jobs->follow();
    EXPECT_EQ(stored(), 1u);
  }
  jobs.reset();  // has done what it had begun
  EXPECT_EQ(stored(), 1u);
}

TEST_F(JobsTest, StoredCheckpointsOfJobsThatFailedGoInTheEnd) {
  executor->run_for(seconds(1000), seconds(1000));
  FakeFaults faults;
  faults.fails = 1;
  executor->set_faults(faults);
  JobSpec spec;
  spec.checkpoint.store_us = 60'000'000;
  const auto id = submit(spec)[0].id;
  after(id, runs, false);
  const auto stored = [&] { return base.vault->list(kFlights, "@job/" + id.str() + "/", "", 10).size(); };
  std::ofstream(dir / ("jobs/" + id.str() + "/checkpoint/1")) << "weights";
  base.clock.advance(seconds(61));
  for (const auto until = real.now() + kPatience; stored() == 0 && real.now() < until;) jobs->follow();
  base.clock.advance(seconds(1001));
  EXPECT_EQ(after(id, over).life.phase, Phase::failed);
  jobs->upkeep();
  EXPECT_EQ(stored(), 1u) << "somebody may start it again";
  base.clock.advance(std::chrono::hours(24 * 8));
  jobs->upkeep();
  EXPECT_EQ(stored(), 0u);
}

TEST_F(JobsTest, ARunIsMadeByTheWriteThatPlacesItsJob) {
  executor->run_for(seconds(1000), seconds(1000));
  const auto id = submit(JobSpec())[0].id;
  const auto running = after(id, runs, false);
  const auto records_of = [&](const std::string& verb) {
    return base.database->read([&](sql::Reader& reader) {
      return reader.first("SELECT COUNT(*) FROM audit_record WHERE verb = ?", {std::string_view(verb)},
                          [](const sql::Row& row) { return row.integer(0); });
    });
  };
  EXPECT_EQ(records_of("run.create"), 0) << "no write of its own";
  EXPECT_EQ(track->run_info(kFlights, running.life.run_id).status, track::RunStatus::running);
}

TEST_F(JobsTest, AnExperimentThatTakesNoRunsStopsOnlyJobsThatNameIt) {
  const auto gone = track->create_experiment(kFlights, "gone", {}, base.act("experiment.create"));
  track->set_experiment_stage(kFlights, gone, track::Stage::deleted, base.act("experiment.delete"));
  JobSpec spec;
  spec.run.experiment = "gone";
  const auto refused = submit(spec)[0].id, other = submit(JobSpec())[0].id;
  EXPECT_EQ(after(other, over).life.phase, Phase::succeeded);
  const auto failed = after(refused, over);
  EXPECT_EQ(failed.life.phase, Phase::failed);
  EXPECT_NE(failed.life.why.find("is deleted: restore it first"), std::string::npos) << failed.life.why;
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
  InputSpec rows;
  rows.name = "rows";
  rows.blob = "data/rows.csv";
  spec.inputs = {rows};
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
  for (const auto i : {0U, 1U}) after(records[i].id, runs, false);
  const auto waits = [&] { return jobs->explain(jobs->job(kFlights, records[3].id)); };
  for (const auto until = real.now() + kPatience; waits().reason != "held" && real.now() < until;) {
  }
  EXPECT_EQ(waits().text, "waits for quota /t/acme/p/flights, which has as many at once as it may");
  EXPECT_EQ(executor->running(), 2u);
  base.clock.advance(seconds(1001));
  for (const auto& record : records) EXPECT_EQ(after(record.id, over).life.phase, Phase::succeeded);
}

TEST_F(JobsTest, ATokenIsWorthNothingOnceItsAttemptHasEnded) {
  base.declare(iam::User{"acme", "ada", "", "", false});
  executor->run_for(seconds(100'000), seconds(100'000));
  JobSpec spec;
  spec.network = "host";
  const auto id = submit(spec, "user/acme/ada")[0].id;
  const auto token_of = [&](int attempt) {
    std::ifstream file(dir / ("jobs/" + id.str() + "/secret/token." + std::to_string(attempt)));
    return "Bearer " + std::string(std::istreambuf_iterator<char>(file), {});
  };
  after(id, runs, false);
  const auto first = token_of(1);
  EXPECT_EQ(base.directory->authenticate({first, {}, std::nullopt}).principal.str(), "user/acme/ada");
  base.database->write(base.act("job.requeue"), [&](sql::Writer& writer) {
    jobs->wish(writer, kFlights, {id, "requeue", "user/acme/ada"});
  });
  after(id, [](const Record& record) { return record.life.epoch == 2 && runs(record); });
  const auto valid = [&](const std::string& token) {
    try {
      base.directory->authenticate({token, {}, std::nullopt});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  after(
      id, [&](const Record&) { return !valid(first); }, false);
  EXPECT_FALSE(valid(first));
  EXPECT_TRUE(valid(token_of(2)));
}

TEST_F(JobsTest, AnElasticJobGrowsWhenThereIsRoomAndNobodyWaits) {
  executor->run_for(seconds(100'000), seconds(100'000));
  JobSpec other;
  other.cpus = 2;
  const auto first = submit(other)[0].id;
  after(first, runs, false);
  JobSpec elastic;
  elastic.tasks = 4;
  elastic.tasks_min = 1;
  elastic.preemptible = true;
  const auto id = submit(elastic)[0].id;
  const auto tasks = [](const Record& record) {
    std::int64_t out = 0;
    for (const auto& place : record.life.places) out += place.tasks;
    return out;
  };
  EXPECT_EQ(tasks(after(id, runs, false)), 2) << "as many as there is room for";
  base.database->write(base.act("job.cancel"), [&](sql::Writer& writer) {
    jobs->wish(writer, kFlights, {first, "cancel", "user/ada"});
  });
  const auto grown = after(id, [](const Record& record) { return record.life.epoch == 2 && runs(record); });
  EXPECT_EQ(tasks(grown), 4);
  EXPECT_EQ(grown.life.resizes, 1);
  EXPECT_EQ(grown.life.preemptions, 0);
  EXPECT_TRUE(executor->violations().empty());
}

TEST_F(JobsTest, AHookBringsANodeForAJobThatNoneHolds) {
  fs::create_directories(dir / "hooks");
  const auto hook = dir / "hooks/more";
  std::ofstream(hook) << "#!/bin/sh\necho \"$@\" >>asked\n";
  fs::permissions(hook, fs::perms::owner_all);
  apply(
      "{apiVersion: falaj/v1, kind: NodePool, metadata: {name: cloud}, spec: {nodes: ['c*'], scaling: hooks, max: 2,"
      " costPerHour: 36, warmUp: 20h, idleAfter: 1m, steadyFor: 0s, shape: {cpus: 8, memory: 8GiB}, hooks: {up: more, "
      "down: "
      "more}}}");
  JobSpec spec;
  spec.cpus = 8;  // n1 has four
  const auto id = submit(spec)[0].id;
  const auto asked = [&] {
    std::ifstream in(dir / "hooks/asked");
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const auto await = [&](const std::function<bool()>& holds) {
    for (const auto until = real.now() + kPatience; !holds() && real.now() < until;)
      base.clock.advance(milliseconds(100));
    return holds();
  };
  ASSERT_TRUE(await([&] { return !asked().empty(); }));
  EXPECT_EQ(asked(), "cloud 1\n");
  execute::Node node;
  node.name = "c1";
  node.cpu_millis = 8000;
  node.memory_bytes = std::int64_t{8} << 30;
  executor->add_node(node);
  EXPECT_EQ(after(id, over).life.phase, Phase::succeeded);
  // It costs what it held, by the hour, and is given back when nobody needs it.
  const auto used = jobs->usage(kFlights.scope(), UsageBy::job, 0, base.clock.wall().count());
  ASSERT_EQ(used.size(), 1u);
  EXPECT_NEAR(used[0].cost, 0.01 * used[0].cpu_allocated_seconds / 8, 1e-6);
  EXPECT_GT(used[0].cost, 0);
  ASSERT_TRUE(await([&] { return asked() == "cloud 1\ncloud c1\n"; })) << asked();
  executor->remove_node("c1");
  ASSERT_TRUE(await([&] {
    const auto pools = jobs->pools();
    return pools.size() == 1 && pools[0].up == 0 && pools[0].leaving == 0;
  }));
  EXPECT_GT(jobs->pools()[0].spent, 0);
  const auto returned = [&] {
    for (const auto& event : jobs->pool_events("cloud", 10))
      if (event.what == "returned") return true;
    return false;
  };
  ASSERT_TRUE(await(returned));
  std::vector<std::string> what;
  for (const auto& event : jobs->pool_events("cloud", 10))
    if (event.what != "failed")
      what.push_back(event.what);  // time runs faster here than a hook: given back, still there
  EXPECT_EQ(what, (std::vector<std::string>{"returned", "returning", "came", "asked"}));
  EXPECT_TRUE(executor->violations().empty());
}

TEST_F(JobsTest, ABurstPoolIsForWhoWouldMissADeadlineElsewhere) {
  executor->run_for(seconds(100'000), seconds(100'000));
  execute::Node node;
  node.name = "c1";
  node.cpu_millis = 4000;
  node.memory_bytes = std::int64_t{16} << 30;
  executor->add_node(node);
  resources->apply(base.act("resource.apply"),
                   resource::read_documents("pools",
                                            "{apiVersion: falaj/v1, kind: NodePool, metadata: {name: cloud}, spec: "
                                            "{nodes: ['c*'], burst: true, waitTarget: 300d}}"),
                   [](std::string_view, const iam::Scope&) { return std::nullopt; });
  JobSpec whole;
  whole.cpus = 4;
  whole.time_limit_us = 200'000 * kSecondUs;
  EXPECT_EQ(after(submit(whole)[0].id, runs, false).life.places.at(0).node, "n1");
  const auto patient = submit(whole)[0].id;
  const auto why = [&](JobId id) { return jobs->explain(jobs->job(kFlights, id)).reason; };
  for (const auto until = real.now() + kPatience; why(patient) == "new" && real.now() < until;) {
  }
  const auto is_known = [&] {  // a deadline is refused by what is known when it is submitted
    const auto nodes = jobs->nodes();
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return n.name == "c1" && n.pool == "cloud"; });
  };
  for (const auto until = real.now() + kPatience; !is_known() && real.now() < until;)
    base.clock.advance(milliseconds(10));  // nodes are asked for now and then
  EXPECT_TRUE(is_known());
  auto urgent = whole;
  urgent.expected_us = 3600 * kSecondUs;
  urgent.deadline = format_time(base.clock.wall().count() + 100'000 * kSecondUs);
  EXPECT_EQ(after(submit(urgent)[0].id, runs).life.places.at(0).node, "c1");
  EXPECT_EQ(jobs->job(kFlights, patient).life.phase, Phase::admitted);
}

TEST_F(JobsTest, AJobThatHoldsProcessorsAndDoesNothingIsToldOf) {
  executor->run_for(seconds(100'000), seconds(100'000));
  executor->set_busy(0.01);
  const auto id = submit({})[0].id;
  const auto idle = after(id, [](const Record& record) { return record.life.idle_since_us > 0; });
  EXPECT_EQ(idle.life.phase, Phase::running);
  EXPECT_NE(idle.life.why.find(" % of the 1 processors it holds, since "), std::string::npos) << idle.life.why;
  after(
      id, [&](const Record&) { return base.metrics->render().find("falaj_jobs_idle 1") != std::string::npos; }, false);
  executor->set_busy(1);
  EXPECT_EQ(after(id, [](const Record& record) { return record.life.idle_since_us == 0; }).life.why,
            "uses its processors again");
}

TEST_F(JobsTest, AJobIsChargedItsPartOfWhatTheMachineDrew) {
  jobs.reset();
  const auto says = [&](int microjoules, std::int64_t busy_seconds) {
    fs::create_directories(dir / "power/intel-rapl:0");
    std::ofstream(dir / "power/intel-rapl:0/energy_uj") << microjoules;
    std::ofstream(dir / "stat") << "cpu " << busy_seconds * ::sysconf(_SC_CLK_TCK) << " 0 0 0 0 0 0";
  };
  says(0, 0);
  executor->run_for(seconds(100), seconds(100));
  make();
  const auto id = submit({})[0].id;
  after(id, runs, false);
  says(6'000'000, 2);
  const auto done = after(id, over);
  ASSERT_TRUE(done.life.end);
  const auto usage = jobs->usage(kFlights.scope(), UsageBy::job, 0, base.clock.wall().count());
  ASSERT_EQ(usage.size(), 1u);
  EXPECT_GT(done.life.end->cpu_us, 0);
  EXPECT_DOUBLE_EQ(usage[0].energy_joules, 3 * static_cast<double>(done.life.end->cpu_us) / 1e6);
}

TEST_F(JobsTest, ADeadlineThatCannotBeMetIsRefusedWithTheEarliestThatCan) {
  executor->run_for(seconds(1000), seconds(1000));
  JobSpec whole;
  whole.cpus = 4;
  whole.time_limit_us = 3600 * kSecondUs;
  const auto id = submit(whole)[0].id;
  const auto running = after(id, runs, false);
  JobSpec due;
  due.expected_us = 60 * kSecondUs;
  const auto in = [&](std::int64_t span_s) { return format_time(base.clock.wall().count() + span_s * kSecondUs); };
  due.deadline = in(3000);  // the node is free in an hour at the latest
  try {
    submit(due);
    ADD_FAILURE() << "it was let in";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::invalid);
    const auto free = running.life.started_us + (3600 + 30) * kSecondUs;  // with its grace
    EXPECT_NE(std::string(e.what()).find("the earliest it can be done is " + format_time(free + due.expected_us)),
              std::string::npos)
        << e.what();
  }
  due.deadline = in(4000);
  EXPECT_EQ(submit(due).size(), 1u);
}

TEST(Due, OnlyTheNewestOfTheTimesThatPassedCounts) {
  const auto hourly = Cron::parse("@hourly");
  const auto at = [](std::string_view text) { return *parse_time(text); };
  EXPECT_FALSE(due(hourly, at("2026-01-01T10:00:00Z"), at("2026-01-01T10:59:59Z")));
  EXPECT_EQ(due(hourly, at("2026-01-01T10:00:00Z"), at("2026-01-01T11:00:00Z")), at("2026-01-01T11:00:00Z"));
  EXPECT_EQ(due(hourly, at("2026-01-01T10:00:00Z"), at("2026-01-08T10:30:00Z")), at("2026-01-08T10:00:00Z"));
}

TEST_F(JobsTest, WhatAQueueMayHoldIsWhatItsResourceNames) {
  apply(
      "{apiVersion: falaj/v1, kind: Queue, metadata: {name: plain}, spec: {limit: {gpus: 0, cpus: 8}, guaranteed: "
      "{cpus: "
      "4}}}");
  const auto rules = read_rules(*resources, {"local"});
  const auto plain =
      std::find_if(rules.queues.begin(), rules.queues.end(), [](const auto& q) { return q.name == "plain"; });
  ASSERT_NE(plain, rules.queues.end());
  using schedule::kUnbounded;
  EXPECT_EQ(plain->limit, (schedule::Amounts{8000, kUnbounded, kUnbounded, 0}));
  EXPECT_EQ(plain->guaranteed, (schedule::Amounts{4000, kUnbounded, kUnbounded, 0}));
}

TEST_F(JobsTest, OfTwoJobsTheOneThatSavedItsWorkLastIsStopped) {
  apply("{apiVersion: falaj/v1, kind: PriorityClass, metadata: {name: urgent}, spec: {value: 100, preempts: true}}");
  executor->run_for(seconds(100'000), seconds(100'000));
  FakeFaults faults;
  faults.saves = 0;  // they are gone at once when they are told to stop
  executor->set_faults(faults);
  JobSpec spec;
  spec.cpus = 2;
  spec.preemptible = true;
  spec.run.make = false;
  const auto older = submit(spec)[0].id;
  after(older, runs, false);
  base.clock.advance(seconds(600));
  const auto newer = submit(spec)[0].id;
  after(newer, runs, false);
  base.clock.advance(seconds(600));
  const auto file = fs::path(dir / ("jobs/" + older.str() + "/checkpoint/rank0/7"));
  fs::create_directory(file.parent_path());
  std::ofstream(file) << "weights";
  const std::chrono::sys_time<sys::Micros> now(base.clock.wall());
  for (const auto& path : {file, file.parent_path()})
    fs::last_write_time(path, fs::file_time_type::clock::from_sys(now));
  jobs->follow();
  spec.priority_class = "urgent";
  spec.preemptible = false;
  const auto urgent = submit(spec)[0].id;
  after(urgent, runs);
  EXPECT_EQ(jobs->job(kFlights, older).life.preemptions, 1);
  EXPECT_EQ(jobs->job(kFlights, newer).life.preemptions, 0);
  const auto used = jobs->usage(kFlights.scope(), UsageBy::job, 0, base.clock.wall().count());
  const auto lost = std::find_if(used.begin(), used.end(), [&](const auto& u) { return u.key == older.str(); });
  ASSERT_NE(lost, used.end());
  EXPECT_GE(lost->cpu_allocated_seconds, 2 * 1200);
  EXPECT_LT(lost->lost_seconds, lost->cpu_allocated_seconds - 2 * 1199);  // what it did before it saved is not lost
}

TEST_F(JobsTest, NoJobStartsWeakerThanItsTenantAccepts) {
  executor->keep_apart(execute::Isolation::restricted);
  isolation_min = execute::Isolation::restricted;
  jobs.reset();
  make();
  EXPECT_EQ(after(submit({})[0].id, over).life.phase, Phase::succeeded);
  auto tenant = *base.directory->snapshot()->find<iam::Tenant>("acme");
  tenant.isolation_min = "contained";
  base.declare(tenant);
  const auto refused = after(submit({})[0].id, over);
  EXPECT_EQ(refused.life.phase, Phase::failed);
  ASSERT_TRUE(refused.life.end.has_value());
  EXPECT_EQ(refused.life.end->reason, "not_started");
  EXPECT_NE(refused.life.why.find("contained is asked for"), std::string::npos) << refused.life.why;
}

}  // namespace
}  // namespace falaj::jobs
