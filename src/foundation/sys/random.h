// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "foundation/base/id.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"

namespace falaj::sys {

// Unpredictable bytes. Thread-safe.
class Random {
 public:
  virtual ~Random() = default;
  virtual void fill(std::span<std::byte> out) = 0;
  std::uint64_t next();                      // uniform over 64 bits
  std::uint64_t below(std::uint64_t limit);  // uniform over 0..limit-1; Requires: limit > 0
};

// From the kernel: good enough for keys.
class RealRandom final : public Random {
 public:
  void fill(std::span<std::byte> out) override;
};

// The same bytes for the same seed. Never for keys.
class SimRandom final : public Random {
 public:
  explicit SimRandom(std::uint64_t seed) : state_(seed) {}
  void fill(std::span<std::byte> out) override;

 private:
  Mutex mu_;
  std::uint64_t state_ GUARDED_BY(mu_);
};

// Makes ids that sort by time of making; within one process strictly increasing, even when the clock stands still or
// goes back. Thread-safe.
class Ids {
 public:
  Ids(const Clock& clock, Random& random) : clock_(clock), random_(random) {}
  IdBits next();
  template <class Tag>
  Id<Tag> next() {
    return {next()};
  }

 private:
  const Clock& clock_;
  Random& random_;
  Mutex mu_;
  IdBits last_ GUARDED_BY(mu_);
};

}  // namespace falaj::sys
