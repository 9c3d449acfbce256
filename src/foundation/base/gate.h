// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <optional>
#include <utility>

#include "foundation/base/mutex.h"

namespace falaj {

// Lets work in until closed, then waits for what is inside. Thread-safe.
//   if (auto hold = gate.enter()) { work } else throw Error(Code::cancelled, "stopping");
class Gate {
 public:
  class Hold {
   public:
    Hold(Hold&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (gate_) gate_->leave();
    }

   private:
    friend class Gate;
    explicit Hold(Gate* gate) : gate_(gate) {}
    Gate* gate_;
  };

  std::optional<Hold> enter() {
    Lock lock(mu_);
    if (closed_) return std::nullopt;
    ++inside_;
    return Hold(this);
  }
  // Ensures: nobody is inside, nobody enters again.
  void close() {
    Lock lock(mu_);
    closed_ = true;
    while (inside_ > 0) lock.wait(left_);
  }

 private:
  void leave() {
    Lock lock(mu_);
    if (--inside_ == 0) left_.notify_all();
  }
  Mutex mu_;
  std::condition_variable left_;
  std::size_t inside_ GUARDED_BY(mu_) = 0;
  bool closed_ GUARDED_BY(mu_) = false;
};

}  // namespace falaj
