// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace falaj::sql {

// Raised once; everybody who waits for it goes on, woken by one system call. std::atomic::wait would do, but yields the
// processor several times before it sleeps, which with many callers costs more than the writes they wait for.
class Signal {
 public:
  void raise() {
    raised_.store(1, std::memory_order_release);
    ::syscall(SYS_futex, &raised_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
  void wait() {
    while (raised_.load(std::memory_order_acquire) == 0)
      ::syscall(SYS_futex, &raised_, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }

 private:
  std::atomic<std::uint32_t> raised_{0};
  static_assert(sizeof(raised_) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);
};

}  // namespace falaj::sql
