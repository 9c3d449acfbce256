// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/sys/process.h"

namespace falaj::sys {

// Processes that follow a script, on a SimClock: a run takes the time the script says, and waiting moves the clock.
class SimProcesses final : public Processes {
 public:
  struct Run {
    Micros takes{0};
    Exit exit;
    bool ignores_terminate = false;  // then only SIGKILL ends it early
  };
  // Called for each start; may throw what a real start throws.
  using Script = std::function<Run(const Command& command)>;

  SimProcesses(SimClock& clock, Script script) : clock_(clock), script_(std::move(script)) {}
  std::unique_ptr<Child> start(const Command& command) override;

  std::vector<Command> started() const;

 private:
  class SimChild;
  SimClock& clock_;
  const Script script_;

  mutable Mutex mu_;
  std::vector<Command> started_ GUARDED_BY(mu_);
};

}  // namespace falaj::sys
