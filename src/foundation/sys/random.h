// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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
  // Random words for ids to come: asking the kernel for those of each one takes longer than all the rest. A process
  // that forks does not share them with its child.
  static constexpr std::size_t kPoolWords = 64;
  using Pool = std::array<std::uint64_t, kPoolWords>;
  IdBits make(std::uint64_t ms) REQUIRES(mu_);

  const Clock& clock_;
  Random& random_;
  Mutex mu_;
  IdBits last_ GUARDED_BY(mu_);
  Pool pool_ GUARDED_BY(mu_){};
  std::size_t left_ GUARDED_BY(mu_) = 0;     // of its words
  std::uint32_t forks_ GUARDED_BY(mu_) = 0;  // of this process when it was filled
};

}  // namespace falaj::sys
