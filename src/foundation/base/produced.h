// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"
#include "foundation/base/mutex.h"

namespace falaj {

// A thread that produces bytes and a caller that takes them, at most a few pieces apart. The producer holds a snapshot
// of the database for as long as it runs, which a function asked piece by piece could not.
class Produced {
 public:
  explicit Produced(std::function<void(const std::function<void(BytesView)>&)> produce)
      : thread_([this, produce = std::move(produce)] {
          std::exception_ptr failure;
          try {
            produce([this](BytesView piece) { put(piece); });
          } catch (...) {
            failure = std::current_exception();
          }
          Lock lock(mu_);
          ended_ = true;
          failure_ = failure;
          changed_.notify_all();
        }) {}
  ~Produced() {
    {
      Lock lock(mu_);
      abandoned_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  // Empty at the end; throws what the producer threw.
  Bytes next() {
    Lock lock(mu_);
    while (waiting_.empty() && !ended_) lock.wait(changed_);
    if (waiting_.empty() && failure_) std::rethrow_exception(failure_);
    Bytes out = std::exchange(waiting_, {});
    changed_.notify_all();
    return out;
  }

 private:
  static constexpr std::size_t kWaitingBytesMax = 4 << 20;

  void put(BytesView piece) {
    Lock lock(mu_);
    while (waiting_.size() >= kWaitingBytesMax && !abandoned_) lock.wait(changed_);
    if (abandoned_) throw Error(Code::cancelled, "nobody waits for the answer any more");
    waiting_.insert(waiting_.end(), piece.begin(), piece.end());
    changed_.notify_all();
  }

  Mutex mu_;
  std::condition_variable changed_;
  Bytes waiting_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false, abandoned_ GUARDED_BY(mu_) = false;
  std::exception_ptr failure_ GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace falaj
