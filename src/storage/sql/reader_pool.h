// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <memory>
#include <vector>

#include "foundation/base/mutex.h"
#include "storage/sql/connection.h"
#include "storage/sql/probe.h"

namespace falaj::sql {

// Read connections, made when needed and kept. Thread-safe. When all are in use, the next reader waits for one: the
// threads that may wait are bounded by whoever runs them.
class ReaderPool {
 public:
  ReaderPool(Engine& engine, Probe& probe, std::size_t limit) : engine_(engine), probe_(probe), limit_(limit) {}

  // Runs `work` inside one read transaction.
  void read(const std::function<void(Reader&)>& work);

 private:
  class Lease;
  std::unique_ptr<Connection> take();
  void give_back(std::unique_ptr<Connection> connection);

  Engine& engine_;
  Probe& probe_;
  const std::size_t limit_;

  Mutex mu_;  // guards everything below
  std::condition_variable returned_;
  std::vector<std::unique_ptr<Connection>> idle_ GUARDED_BY(mu_);
  std::size_t in_use_ GUARDED_BY(mu_) = 0;
};

}  // namespace falaj::sql
