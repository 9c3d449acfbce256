// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "foundation/sys/process.h"
#include "foundation/sys/testing.h"
#include "lifecycle/execute/local/local_executor.h"

namespace falaj::execute::local {

// The keeper's program as the build made it, for tests and benchmarks of any directory.
std::vector<std::string> built_keeper();

// A local executor in a directory of its own, with its keeper; both are gone at the end of the scope.
class TestNode {
 public:
  explicit TestNode(LocalSettings settings = {});  // the directory and the keeper are filled in
  ~TestNode();

  LocalExecutor& executor() { return *executor_; }
  void reopen();       // as a program that was restarted
  void kill_keeper();  // at once
  const std::string& directory() const { return directory_.path(); }
  std::string operator/(const std::string& name) const { return directory_ / name; }
  const LocalSettings& settings() const { return settings_; }

 private:
  sys::TempDir directory_;
  sys::RealClock clock_;
  sys::RealProcesses processes_;
  LocalSettings settings_;
  std::unique_ptr<LocalExecutor> executor_;
};

}  // namespace falaj::execute::local
