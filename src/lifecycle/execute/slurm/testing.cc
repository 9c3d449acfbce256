// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/testing.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/execute/slurm/command.h"
#include "lifecycle/execute/slurm/script.h"

namespace falaj::execute::slurm {
namespace {

constexpr const char* kServer = FALAJ_SERVERS "/slurm/run";

}  // namespace

bool TestCluster::is_installed() {
  for (const char* program : {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/slurmrestd", "/usr/sbin/munged",
                              "/usr/bin/sbatch", "/usr/bin/nsenter"}) {
    if (::access(program, X_OK) == 0) continue;
    std::fprintf(stderr, "SKIPPED: every test on Slurm, because there is no %s\n", program);
    return false;
  }
  return true;
}

bool TestCluster::may_have_groups() {
  if (::access("/sys/fs/cgroup/memory/cgroup.procs", W_OK) == 0 && ::access("/sys/fs/cgroup/freezer", W_OK) == 0)
    return true;
  std::fprintf(stderr, "SKIPPED: Slurm with control groups, because there are none of version 1 that we may make\n");
  return false;
}

TestCluster::TestCluster(Groups groups, int patience_s) : groups_(groups) {
  sys::Command command;
  command.argv = {kServer, "cluster", directory_.path(), "4"};
  command.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"};
  command.environment.push_back("SLURM_PATIENCE=" + std::to_string(patience_s));
  if (groups_ == Groups::yes) command.environment.push_back("SLURM_GROUPS=1");
  command.stdout_file = command.stderr_file = directory_ / "output";
  cluster_ = processes_.start(command);
  // The wait ends with the cluster, or after a minute.
  for (int tries = 0; !std::filesystem::exists(directory_ / "ready"); ++tries) {
    if (!cluster_->wait(std::chrono::milliseconds(10)) && tries < 6000) continue;
    std::ifstream output(directory_ / "output");
    throw Error(Code::unavailable,
                "the Slurm cluster does not start: " + std::string(std::istreambuf_iterator<char>(output), {}));
  }
}

TestCluster::~TestCluster() {
  cluster_.reset();
  if (groups_ == Groups::yes) run_command(processes_, words({"clean"}), "cleaning up after a test cluster", true);
}

TestCluster& TestCluster::shared() {
  static TestCluster cluster;
  return cluster;
}

std::vector<std::string> TestCluster::words(const std::vector<std::string>& more) const {
  std::vector<std::string> out{kServer, more.front(), directory_.path()};
  out.insert(out.end(), more.begin() + 1, more.end());
  return out;
}

Settings TestCluster::settings(const std::string& submit) {
  Settings out;
  out.submit = submit;
  out.directory = directory_ / ("attempts" + std::to_string(++executors_));
  out.url = "http://localhost";
  out.socket = directory_ / "rest.sock";
  const auto* me = ::getpwuid(::getuid());
  CHECK(me, "this user has a name");
  out.user = me->pw_name;
  out.token_command = words({"in", "scontrol", "token", "lifespan=600"});
  out.command_prefix = words({"in"});
  out.partitions = {{"urgent", "high"}};
  out.poll_us = 50'000;
  return out;
}

std::string TestCluster::run(const std::vector<std::string>& command) {
  auto argv = words({"in"});
  argv.insert(argv.end(), command.begin(), command.end());
  return run_command(processes_, argv, "running a command in the test cluster").output;
}

void TestCluster::await_saved() {
  const auto state = directory_ / "state/job_state";
  const auto written = [&] {
    std::error_code none_yet;
    return std::filesystem::last_write_time(state, none_yet);
  };
  const auto before = written();
  run({"sbatch", "--hold", "--output=/dev/null", "--wrap=true"});  // something new to write down
  while (written() == before) run({"scontrol", "ping"});
}

void TestCluster::kill(const std::string& daemon) {
  run_command(processes_, words({"kill", daemon}), "killing a daemon of the test cluster");
}

void TestCluster::start(const std::vector<std::string>& daemon) {
  auto argv = words({"start"});
  argv.insert(argv.end(), daemon.begin(), daemon.end());
  run_command(processes_, argv, "starting a daemon of the test cluster");
}

SlurmRates measure_slurm(TestCluster& cluster, const sys::Clock& clock) {
  constexpr int kSubmits = 200, kJobs = 400;
  const auto rate = [&](int count, const auto& work) {
    const auto began = clock.now();
    work();
    return count / std::chrono::duration<double>(clock.now() - began).count();
  };
  SlurmRates out{};
  // Nothing runs while submits are counted.
  cluster.run({"scontrol", "update", "partitionname=high", "state=down"});
  // One shell inside, so that coming in is not counted.
  out.sbatch_submits = rate(kSubmits, [&] {
    cluster.run({"bash", "-c",
                 "job=$(mktemp); printf '#!/bin/sh\\ntrue\\n' >$job; for ((i = 0; i < " + std::to_string(kSubmits) +
                     "; i++)); do sbatch --quiet --parsable --partition=high --output=/dev/null $job; done; rm $job"});
  });
  sys::RealProcesses processes;
  auto settings = cluster.settings("rest");
  const auto gateway = make_rest_gateway(settings, processes);
  Submission submission;
  submission.name = "bench";
  submission.script = "#!/bin/sh\ntrue\n";
  submission.directory = "/";
  submission.output = "/dev/null";
  submission.partition = "high";
  submission.environment = {{"PATH", "/usr/bin:/bin"}};
  gateway->nodes();  // makes the token
  out.rest_submits = rate(kSubmits, [&] {
    for (int i = 0; i < kSubmits; ++i) gateway->submit(submission);
  });
  cluster.run({"scancel", "--me"});
  out.jobs = rate(kJobs, [&] {
    cluster.run({"sbatch", "--wait", "--quiet", "--array=1-" + std::to_string(kJobs), "--output=/dev/null", "--mem=1",
                 "--wrap=true"});
  });
  return out;
}

void ClusterTest::SetUp() {
  if (!TestCluster::is_installed()) GTEST_SKIP() << "Slurm is not installed";
  settings_ = cluster().settings(GetParam());
  open();
}

void ClusterTest::TearDown() {
  if (HasFailure()) cluster().run({"scancel", "--me"});  // the next test wants the nodes
}

void ClusterTest::open() { open(make_gateway(settings_, processes_)); }

void ClusterTest::open(std::unique_ptr<Gateway> gateway) {
  executor_.reset();
  executor_ = std::make_unique<SlurmExecutor>(settings_, std::move(gateway), clock_);
}

Launch ClusterTest::launch(const std::string& attempt, const std::string& script, int tasks) {
  Launch out;
  out.attempt = attempt;
  out.command = {"bash", "-c", script};
  out.environment = {{"PATH", "/usr/bin:/bin"}};
  out.work_directory = work(attempt);
  for (int rank = 0; rank < tasks; ++rank) out.tasks.push_back({.rank = rank, .node = {}, .cpus = {}, .gpus = {}});
  return out;
}

Report ClusterTest::await(const std::string& attempt, const std::function<bool(const Report&)>& wanted) {
  const auto until = clock_.now() + std::chrono::minutes(1);
  for (std::uint64_t seen = 0; clock_.now() < until;) {
    try {
      for (const auto& report : executor_->poll(seen, std::chrono::milliseconds(100)))
        if (report.attempt == attempt && wanted(report)) return report;
    } catch (const Error& error) {
      if (error.code() != Code::unavailable) throw;
    }
  }
  throw Error(Code::deadline, "waited a minute for " + attempt);
}

Ending ClusterTest::await_end(const std::string& attempt) {
  return *await(attempt, [](const Report& r) { return r.phase == Phase::ended; }).ending;
}

Report ClusterTest::report_of(const std::string& attempt) {
  return await(attempt, [](const Report&) { return true; });
}

void ClusterTest::await_log(const std::string& attempt, const std::string& text, int rank) {
  await(attempt, [&](const Report& report) {
    return report.phase != Phase::starting &&
           (report.phase == Phase::ended || log(attempt, rank).find(text) != std::string::npos);
  });
  EXPECT_NE(log(attempt, rank).find(text), std::string::npos);
}

int ClusterTest::jobs_of(const std::string& attempt) {
  const auto comments = cluster().run({"squeue", "--noheader", "--states=all", "--format=%k"});
  const auto wanted = comment_of(settings_.directory + "/" + attempt);
  return static_cast<int>(std::ranges::count(split(comments, '\n'), std::string_view(wanted)));
}

}  // namespace falaj::execute::slurm
