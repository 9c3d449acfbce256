// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/slurm/slurm_executor.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "foundation/base/testing.h"
#include "lifecycle/execute/slurm/testing.h"

namespace falaj::execute::slurm {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

// A cluster, an executor on it, and words for what tests do with them.
class OnCluster : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!TestCluster::is_installed()) GTEST_SKIP() << "Slurm is not installed";
    settings_ = cluster().settings(GetParam());
    open();
  }
  virtual TestCluster& cluster() { return TestCluster::shared(); }
  void open() {
    executor_.reset();  // two on one directory is not allowed
    executor_ = std::make_unique<SlurmExecutor>(settings_, make_gateway(settings_, processes_), clock_);
  }

  Launch launch(const std::string& attempt, const std::string& script, int tasks = 1) {
    Launch out;
    out.attempt = attempt;
    out.command = {"bash", "-c", script};
    out.environment = {{"PATH", "/usr/bin:/bin"}};
    out.work_directory = settings_.directory + "-work/" + attempt;
    for (int rank = 0; rank < tasks; ++rank) out.tasks.push_back({.rank = rank, .node = {}, .cpus = {}, .gpus = {}});
    return out;
  }

  Report await(const std::string& attempt, const std::function<bool(const Report&)>& wanted) {
    const auto until = clock_.now() + kPatience;
    std::uint64_t seen = 0;
    while (clock_.now() < until) {
      try {
        for (const auto& report : executor_->poll(seen, std::chrono::seconds(1)))
          if (report.attempt == attempt && wanted(report)) return report;
      } catch (const Error& error) {
        if (error.code() != Code::unavailable) throw;
      }
    }
    throw Error(Code::deadline, "it did not come to that: " + attempt);
  }
  Report await_end(const std::string& attempt) {
    return await(attempt, [](const Report& r) { return r.phase == Phase::ended; });
  }
  std::string log(const std::string& attempt, int rank = 0) { return executor_->logs(attempt, rank, 0, 1 << 20).text; }
  // Until the task has written this.
  void await_log(const std::string& attempt, const std::string& text, int rank = 0) {
    await(attempt, [](const Report& r) { return r.phase != Phase::starting; });
    const auto until = clock_.now() + kPatience;
    std::uint64_t seen = 0;
    while (log(attempt, rank).find(text) == std::string::npos && clock_.now() < until) {
      try {
        executor_->poll(seen, std::chrono::milliseconds(20));
      } catch (const Error&) {
      }
    }
  }

  sys::RealClock clock_;
  sys::RealProcesses processes_;
  Settings settings_;
  std::unique_ptr<SlurmExecutor> executor_;
};

TEST_P(OnCluster, RunsAndTellsTheEnd) {
  executor_->start(launch("job1.1", "echo hello; echo error >&2; exit 3"));
  const auto report = await_end("job1.1");
  EXPECT_EQ(name_of(report.ending->reason), "finished") << report.ending->message;
  EXPECT_EQ(report.ending->exit_code, 3);
  EXPECT_GT(report.started.count(), 0);
  EXPECT_GE(report.ending->at, report.started);
  EXPECT_EQ(log("job1.1"), "hello\nerror\n");
}

INSTANTIATE_TEST_SUITE_P(Rest, OnCluster, testing::Values("rest"));
INSTANTIATE_TEST_SUITE_P(Sbatch, OnCluster, testing::Values("sbatch"));

}  // namespace
}  // namespace falaj::execute::slurm
