// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "foundation/base/mutex.h"

namespace falaj::jobs {

// Threads that do what they are given, in its order. What waits is bounded by whoever gives it: a job has one thing
// under way at a time. What is given after stop, or not begun by then, is dropped.
class Workers {
 public:
  explicit Workers(std::size_t threads);
  ~Workers();
  void give(std::function<void()> work) EXCLUDES(mu_);  // must not throw
  void stop() EXCLUDES(mu_);                            // returns when nothing is under way; idempotent

 private:
  void loop();

  Mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace falaj::jobs
