// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"

namespace falaj::app {

// Work that is due now and then, on a thread of its own. A task that fails is logged and runs again when due.
class Upkeep {
 public:
  struct Task {
    std::string name;
    sys::Micros every;
    std::function<void()> run;
  };
  Upkeep(std::vector<Task> tasks, const sys::Clock& clock);
  ~Upkeep();  // returns when the task under way has finished

 private:
  void loop();

  const std::vector<Task> tasks_;
  const sys::Clock& clock_;
  Mutex mu_;
  std::condition_variable stop_asked_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace falaj::app
