// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/testing.h"

#include <pwd.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "foundation/base/error.h"
#include "lifecycle/execute/slurm/command.h"

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

TestCluster::TestCluster(int nodes, int job_kept_s) {
  sys::Command command;
  command.argv = {kServer, "cluster", directory_.path(), std::to_string(nodes)};
  command.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
                         "SLURM_MIN_JOB_AGE=" + std::to_string(job_kept_s)};
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

void TestCluster::kill(const std::string& daemon) {
  run_command(processes_, words({"kill", daemon}), "killing a daemon of the test cluster");
}

void TestCluster::start(const std::string& daemon) {
  run_command(processes_, words({"start", daemon}), "starting a daemon of the test cluster");
}

}  // namespace falaj::execute::slurm
