// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "compute/protocol/inference.h"
#include "foundation/stats/time_buckets.h"

namespace falaj::serve {

// How often something took how long: sixteen buckets for each power of two of microseconds, so a quantile is right to a
// sixteenth. Any number of threads add, any number read.
class Latencies : public stats::TimeBuckets<4> {
 public:
  void add(std::int64_t us) { buckets_[bucket(us)].fetch_add(1, std::memory_order_relaxed); }

  using Snapshot = Tally;
  Snapshot snapshot() const {
    Snapshot out{};
    for (std::size_t i = 0; i < kBuckets; ++i) out[i] = buckets_[i].load(std::memory_order_relaxed);
    return out;
  }

 private:
  std::array<std::atomic<std::uint64_t>, kBuckets> buckets_{};
};

// The value below which `share` of what a snapshot holds lies; 0 when it is empty.
inline double quantile_us(const Latencies::Snapshot& snapshot, double share) {
  return Latencies::quantile_us(snapshot, share);
}

// What happened to one variant since it was loaded. Any number of threads.
struct Counts {
  struct Sum {
    std::atomic<std::uint64_t> count{0}, us{0};
    void add(std::int64_t took_us, std::uint64_t times = 1) {
      count.fetch_add(times, std::memory_order_relaxed);
      us.fetch_add(static_cast<std::uint64_t>(took_us < 0 ? 0 : took_us) * times, std::memory_order_relaxed);
    }
    protocol::Duration read() const { return {count.load(std::memory_order_relaxed), us.load() * 1000}; }
  };
  Sum success, fail, queue, input, infer, output, cache_hit, cache_miss,
      woken;  // woken: requests that waited for a model that slept
  std::atomic<std::uint64_t> rows{0}, calls{0}, refused{0}, late{0}, dropped_shadows{0}, slow{0};
  std::atomic<std::int64_t> last_us{0};  // since 1970
  std::atomic<std::int64_t> pending{0};  // requests that are not answered yet
  Latencies latency;                     // of requests that were answered, from their coming to their answer

  static constexpr std::size_t kSizes = 17;  // calls by rows: powers of two
  std::array<Sum, kSizes> by_rows;
  void count_calls(std::uint32_t how_many, std::uint32_t rows_in_all, std::int64_t took_us);
  std::vector<protocol::BatchStatistics> batches() const;
};

}  // namespace falaj::serve
