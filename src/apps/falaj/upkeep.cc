// SPDX-License-Identifier: Apache-2.0
#include "apps/falaj/upkeep.h"

#include <algorithm>

#include "foundation/base/log.h"

namespace falaj::app {

Upkeep::Upkeep(std::vector<Task> tasks, const sys::Clock& clock)
    : tasks_(std::move(tasks)), clock_(clock), thread_([this] { loop(); }) {}

Upkeep::~Upkeep() {
  {
    Lock lock(mu_);
    stopping_ = true;
    stop_asked_.notify_all();
  }
  thread_.join();
}

void Upkeep::loop() {
  std::vector<sys::Micros> due;
  for (const auto& task : tasks_) due.push_back(clock_.now() + task.every);
  for (;;) {
    {
      Lock lock(mu_);
      const auto next = std::min_element(due.begin(), due.end());
      while (!stopping_ && clock_.now() < *next) lock.wait_for(stop_asked_, *next - clock_.now());
      if (stopping_) return;
    }
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (clock_.now() < due[i]) continue;
      try {
        tasks_[i].run();
      } catch (const std::exception& e) {
        log::warn("upkeep_failed", {{"task", tasks_[i].name}, {"problem", e.what()}});
      }
      due[i] = clock_.now() + tasks_[i].every;
    }
  }
}

}  // namespace falaj::app
