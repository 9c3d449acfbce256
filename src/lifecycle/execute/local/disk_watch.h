// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "foundation/sys/clock.h"
#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/local/loop.h"

namespace falaj::execute::local {

// Looks again and again at how much a directory takes, in a process of its own: a tree can be made to take long. The
// longer it takes, the seldomer. Not thread-safe.
class DiskWatch {
 public:
  struct Calls {
    std::function<std::vector<pid_t>()> processes;  // that may hold files without a name
    std::function<void()> over;                     // once
  };
  DiskWatch(Loop& loop, const sys::Clock& clock, std::string directory, std::int64_t bytes_max, Calls calls);
  ~DiskWatch();
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

 private:
  void look();
  void hear();

  Loop& loop_;
  const sys::Clock& clock_;
  const std::string directory_;
  const std::int64_t bytes_max_;
  const Calls calls_;
  sys::Micros began_{0};
  sys::Descriptor answer_;
  std::optional<Loop::Timer> next_;
};

}  // namespace falaj::execute::local
