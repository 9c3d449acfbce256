// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "foundation/sys/process.h"
#include "foundation/sys/testing.h"
#include "lifecycle/execute/slurm/settings.h"
#include "lifecycle/execute/slurm/slurm_executor.h"

namespace falaj::execute::slurm {

// A throw-away Slurm cluster of this object alone: real daemons in their own namespaces, nodes n1, n2, ... of 8
// processors and 4 GPUs each that are none. Requires: is_installed().
class TestCluster {
 public:
  // With `groups` it bounds memory and follows processes as sites do. Requires: may_have_groups().
  enum class Groups { no, yes };
  // Slurm's own commands and daemons call a controller that is away for so long. With little of it they take one that
  // is slow for one that is away.
  static constexpr int kUsualPatience_s = 10, kLittlePatience_s = 3;
  explicit TestCluster(Groups groups = Groups::no, int patience_s = kUsualPatience_s);
  ~TestCluster();
  static bool is_installed();  // says so on standard error where it is not
  static bool may_have_groups();
  static TestCluster& shared();  // started at first use

  // For an executor on it, of a directory of its own.
  Settings settings(const std::string& submit);
  void kill(const std::string& daemon);  // at once: slurmctld, slurmrestd, or a node with all that runs on it
  void start(const std::vector<std::string>& daemon);  // again; with options, such as -c: it has forgotten everything
  std::string run(const std::vector<std::string>& command);  // inside; what it printed
  // Until the controller has written down what it knows now, which it does some seconds after it has acknowledged it.
  void await_saved();

 private:
  std::vector<std::string> words(const std::vector<std::string>& more) const;

  const Groups groups_;
  sys::TempDir directory_;
  sys::RealProcesses processes_;
  std::unique_ptr<sys::Child> cluster_;
  int executors_ = 0;
};

// ---- for benchmarks: what Slurm itself does on this machine, for others to be compared with, in the same run.
struct SlurmRates {
  double sbatch_submits, rest_submits;  // a second, one after the other, of jobs that wait
  double jobs;                          // a second, begun and ended: an array of /bin/true, by sbatch
};
SlurmRates measure_slurm(TestCluster& cluster, const sys::Clock& clock);

// An executor on a cluster, reached as the parameter says ("rest", "sbatch"), and words for what tests do with it.
class ClusterTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  void TearDown() override;
  virtual TestCluster& cluster() = 0;
  void open();  // as a program that was restarted does
  void open(std::unique_ptr<Gateway> gateway);

  Launch launch(const std::string& attempt, const std::string& script, int tasks = 1);
  std::string work(const std::string& attempt) const { return settings_.directory + "-work/" + attempt; }
  // Asks until `wanted`, at most a minute.
  Report await(const std::string& attempt, const std::function<bool(const Report&)>& wanted);
  Ending await_end(const std::string& attempt);
  Report report_of(const std::string& attempt);
  std::string log(const std::string& attempt, int rank = 0) { return executor_->logs(attempt, rank, 0, 1 << 20).text; }
  void await_log(const std::string& attempt, const std::string& text, int rank = 0);
  int jobs_of(const std::string& attempt);  // so many that Slurm knows, whatever became of them

  sys::RealClock clock_;
  sys::RealProcesses processes_;
  Settings settings_;
  std::unique_ptr<SlurmExecutor> executor_;
};

}  // namespace falaj::execute::slurm
