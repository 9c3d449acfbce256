// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "foundation/sys/clock.h"
#include "foundation/sys/descriptor.h"

namespace falaj::execute::local {

// One thread that waits for descriptors and times (epoll). Not thread-safe. Whatever it calls may watch, unwatch and
// set timers; what throws out of a call ends run().
class Loop {
 public:
  using Ready = std::function<void(std::uint32_t events)>;
  using Timer = std::pair<sys::Micros, std::uint64_t>;

  explicit Loop(const sys::Clock& clock);

  void watch(int fd, std::uint32_t events, Ready ready);  // Requires: not watched
  void change(int fd, std::uint32_t events);              // Requires: watched
  void unwatch(int fd);                                   // before it is closed; nothing when it is not watched
  Timer after(sys::Micros delay, std::function<void()> call);
  void cancel(Timer timer);  // nothing when it has been called

  void run();  // until quit
  void quit() { quit_ = true; }

 private:
  struct Entry {
    std::uint32_t generation;  // tells a descriptor from an earlier one of the same number
    Ready ready;
  };
  int wait_ms() const;
  void call_timers();
  template <class F>
  static void guarded(F call);

  const sys::Clock& clock_;
  sys::Descriptor epoll_;
  std::unordered_map<int, Entry> entries_;
  std::vector<std::unordered_map<int, Entry>::node_type> retired_;  // one of them may be running
  std::map<Timer, std::function<void()>> timers_;
  std::uint64_t last_timer_ = 0;
  std::uint32_t last_generation_ = 0;
  bool quit_ = false;
};

}  // namespace falaj::execute::local
