// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace falaj::sys {

using Micros = std::chrono::microseconds;

// Both kinds of time. Thread-safe. Nothing outside sys/ reads real time any other way.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Micros now() const = 0;   // monotonic; only differences mean anything
  virtual Micros wall() const = 0;  // since 1970-01-01 UTC; may jump
};

class RealClock final : public Clock {
 public:
  Micros now() const override;
  Micros wall() const override;
};

// Moves only when told.
class SimClock final : public Clock {
 public:
  explicit SimClock(Micros wall_start = std::chrono::seconds(1'000'000'000)) : wall_start_(wall_start) {}
  Micros now() const override { return Micros(now_us_.load()); }
  Micros wall() const override { return wall_start_ + now(); }
  void advance(Micros d) { now_us_ += d.count(); }

 private:
  const Micros wall_start_;
  std::atomic<std::int64_t> now_us_{0};
};

}  // namespace falaj::sys
