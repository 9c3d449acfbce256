// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <thread>

#include "foundation/base/mutex.h"
#include "foundation/sys/descriptor.h"
#include "storage/online/store.h"

namespace falaj::serve {

// A worker may make no connections, and knows no password: it asks for one to Redis, and gets it, made and
// authenticated, from its supervisor.

// The supervisor's end: answers until it is dropped.
class Dialler {
 public:
  explicit Dialler(std::optional<online::RedisOptions> redis);  // none: every question is refused
  ~Dialler();
  int workers_end() const { return theirs_.get(); }
  void given() { theirs_ = sys::Descriptor(); }  // the worker has its end

 private:
  void run();
  const std::optional<online::RedisOptions> redis_;
  sys::Descriptor ours_, theirs_;
  std::thread thread_;
};

// The worker's end. Thread-safe.
class Dialled {
 public:
  explicit Dialled(sys::Descriptor end) : end_(std::move(end)) {}
  sys::Descriptor dial();  // throws unavailable

 private:
  Mutex asking_;
  const sys::Descriptor end_;
};

}  // namespace falaj::serve
