// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/queue.h"

namespace falaj::net {

// Threads that may block. Thread-safe.
class WorkerPool {
 public:
  using Work = std::function<void()>;  // must not throw

  WorkerPool(std::size_t threads, std::size_t queue_max, Gauge& queued);
  ~WorkerPool();
  // False when the queue is full.
  bool start(Work work);

 private:
  void run();
  BoundedQueue<Work> queue_;
  Gauge& queued_;
  std::vector<std::thread> threads_;
};

}  // namespace falaj::net
