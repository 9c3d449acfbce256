// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "foundation/sys/process.h"
#include "foundation/sys/testing.h"
#include "lifecycle/execute/slurm/settings.h"

namespace falaj::execute::slurm {

// A throw-away Slurm cluster of this object alone: real daemons in their own namespaces, nodes n1, n2, ... of 8
// processors and 4 GPUs each that are none. Requires: is_installed().
class TestCluster {
 public:
  explicit TestCluster(int nodes = 4, int job_kept_s = 300);
  static bool is_installed();    // says so on standard error where it is not
  static TestCluster& shared();  // started at first use

  // For an executor on it, of a directory of its own.
  Settings settings(const std::string& submit);
  void kill(const std::string& daemon);   // at once: slurmctld, slurmrestd, or a node with all that runs on it
  void start(const std::string& daemon);  // again
  std::string run(const std::vector<std::string>& command);  // inside; what it printed

 private:
  std::vector<std::string> words(const std::vector<std::string>& more) const;

  sys::TempDir directory_;
  sys::RealProcesses processes_;
  std::unique_ptr<sys::Child> cluster_;
  int executors_ = 0;
};

}  // namespace falaj::execute::slurm
