// SPDX-License-Identifier: Apache-2.0
#include "foundation/net/worker_pool.h"

namespace falaj::net {

WorkerPool::WorkerPool(std::size_t threads, std::size_t queue_max, Gauge& queued) : queue_(queue_max), queued_(queued) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkerPool::~WorkerPool() {
  queue_.close();
  for (auto& thread : threads_) thread.join();
}

bool WorkerPool::start(Work work) {
  queued_.Increment();
  if (queue_.try_push(work)) return true;
  queued_.Decrement();
  return false;
}

void WorkerPool::run() {
  while (auto work = queue_.pop()) {
    queued_.Decrement();
    (*work)();
  }
}

}  // namespace falaj::net
