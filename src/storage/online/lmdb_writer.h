// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to online.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "storage/online/lmdb_environment.h"
#include "storage/online/probe.h"

namespace falaj::online {

// The one thread that writes. Writes that arrive while it commits gather, run in one transaction and share one durable
// commit. A write that fails is taken out by running all of its group again, each alone. Thread-safe.
class LmdbWriter {
 public:
  LmdbWriter(Environment& environment, Probe& probe, std::size_t waiting_max);
  ~LmdbWriter();  // what was accepted is written first

  // Returns LMDB's result; what it throws reaches its caller. May run more than once: begins anew each time.
  using Work = std::function<int(MDB_txn*)>;
  void run(const Work& work);

 private:
  struct Waiting {
    const Work* work;
    std::optional<Error> error;
    bool done = false;
  };
  void loop();
  void run_group(std::span<Waiting* const> group);
  void run_together(std::span<Waiting* const> group);  // throws what any of them throws, or the commit
  int try_commit(std::span<Waiting* const> group);

  Environment& environment_;
  Probe& probe_;
  const std::size_t waiting_max_;
  const sys::RealClock clock_;
  std::uint64_t commits_ = 0;  // the writer thread's own

  Mutex mu_;
  std::condition_variable arrived_, done_;
  std::vector<Waiting*> waiting_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace falaj::online
