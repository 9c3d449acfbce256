// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/sim_process.h"

#include <algorithm>
#include <csignal>

namespace falaj::sys {

class SimProcesses::SimChild final : public Child {
 public:
  SimChild(SimClock& clock, Run run, int pid) : clock_(clock), run_(run), pid_(pid), ends_(clock.now() + run.takes) {}

  int pid() const override { return pid_; }

  void signal(int number) override {
    Lock lock(mu_);
    const bool deadly = number == SIGKILL || ((number == SIGTERM || number == SIGINT) && !run_.ignores_terminate);
    if (!deadly || clock_.now() >= ends_) return;
    ends_ = clock_.now();
    run_.exit = {0, number};
  }

  std::optional<Exit> wait(Micros at_most) override {
    Lock lock(mu_);
    const Micros left = std::max(ends_ - clock_.now(), Micros(0));
    clock_.advance(std::min(left, std::max(at_most, Micros(0))));
    if (left > at_most) return std::nullopt;
    return run_.exit;
  }

 private:
  SimClock& clock_;
  Mutex mu_;
  Run run_ GUARDED_BY(mu_);
  const int pid_;
  Micros ends_ GUARDED_BY(mu_);
};

std::unique_ptr<Child> SimProcesses::start(const Command& command) {
  const Run run = script_(command);
  Lock lock(mu_);
  started_.push_back(command);
  return std::make_unique<SimChild>(clock_, run, static_cast<int>(started_.size()));
}

std::vector<Command> SimProcesses::started() const {
  Lock lock(mu_);
  return started_;
}

}  // namespace falaj::sys
