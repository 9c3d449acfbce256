// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "compute/serve/crash_note.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"

namespace falaj::serve {

// Threads for calls that take long, so that what else came on an I/O thread does not wait for them. They are started as
// there is work, and give way to the I/O threads. Of the models that wait, the one whose calls took least goes first:
// none starves another, however much it is asked. Thread-safe.
class SlowLane {
 public:
  SlowLane(const sys::Clock& clock, std::size_t threads_max, CrashNote* note)
      : clock_(clock), threads_max_(threads_max), note_(note) {}
  ~SlowLane() { close(); }
  SlowLane(const SlowLane&) = delete;
  SlowLane& operator=(const SlowLane&) = delete;

  // `model`: whose time it is, and `digest` what to blame for a crash. `call` must not throw.
  void push(std::uint32_t model, std::string digest, std::function<void()> call);
  bool has_room() const;  // a thread is free, or can be started
  std::size_t threads_max() const { return threads_max_; }
  // Ends when the calls under way do. Those that wait are dropped.
  void close();

 private:
  struct Call {
    std::uint32_t model;
    std::string digest;
    std::function<void()> run;
  };
  struct Model {
    sys::Micros used{0};  // by its calls; counted from that of who was served last when it came
    std::size_t running = 0;
    std::deque<Call> waiting;
  };
  void work(std::size_t place);
  std::optional<Call> take();
  void ended(std::uint32_t model, sys::Micros took);

  const sys::Clock& clock_;
  const std::size_t threads_max_;
  CrashNote* const note_;

  mutable Mutex mu_;  // guards everything below
  std::condition_variable woken_;
  std::map<std::uint32_t, Model> models_ GUARDED_BY(mu_);  // with calls under way or waiting
  std::size_t waiting_ GUARDED_BY(mu_) = 0, idle_ GUARDED_BY(mu_) = 0;
  sys::Micros used_ GUARDED_BY(mu_){0};  // of the model that was served last: newcomers begin there
  bool closing_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_ GUARDED_BY(mu_);
};

}  // namespace falaj::serve
