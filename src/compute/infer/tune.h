// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "compute/infer/batch.h"

// target_p99: the queue of a model sets itself so that a stated latency holds at the highest throughput.
namespace falaj::infer {

struct LatencyTarget {
  Micros p99{10'000};                // of answered requests, from their coming to their answer
  std::uint32_t rows_most = 1'024;   // of one call
  std::uint32_t instances_most = 1;  // calls at the same time
};

// What one period showed: some hundred requests at least, or a second.
struct Seen {
  Micros period{0};
  std::uint64_t answered = 0;  // requests
  std::uint64_t refused = 0;   // because the queue was full
  Micros p99{0};               // of those answered
  double busy = 0;             // share of the time in which instances ran, their mean, 0 to 1
  double row_us = 0;           // of the thread that runs the model, for each row, besides: reading, answering
};

struct Setting {
  std::uint32_t rows_max = 8;
  Micros wait_max{0};
  std::uint32_t queue_rows_max = 64;
  std::uint32_t instances = 1;
  Micros stale_after{0};
  friend bool operator==(const Setting&, const Setting&) = default;
};

// Works out from what calls cost which batch gets the most rows done, and how long the queue may be for its last to end
// in time; who does not fit is refused at once, rather than all being late. What is seen corrects it: costs are means
// and the worst case is rare, so the queue may be longer, or must be shorter, than worked out. Another instance is kept
// only if more was answered with it. Pure: no clock, no thread.
class Tuner {
 public:
  explicit Tuner(const LatencyTarget& target) : target_(target) {}

  Setting step(const Seen& seen, const Costs& costs);
  const Setting& setting() const { return setting_; }

 private:
  void correct(const Seen& seen);
  void scale(const Seen& seen);
  void work_out(const Seen& seen, const Costs& costs);

  LatencyTarget target_;
  Setting setting_;
  double room_ = 1;  // how much of the target the worst case may take

  static constexpr std::uint32_t kLookAgain = 10;
  std::uint32_t needy_periods_ = 0;

  // Trying an instance more: how many were answered per second while requests were refused.
  static constexpr std::uint32_t kTrialPeriods = 8, kPausePeriods = 200;
  double rate_before_ = 0, rate_now_ = 0;
  std::uint32_t full_periods_ = 0;  // in which requests were refused, since the last change
  bool trying_ = false;
  std::uint32_t pause_ = 0;  // periods until the next try
};

// Sets a queue by what happens to it. Belongs to the same thread.
class QueueTuner {
 public:
  static constexpr Micros kPeriod{100'000}, kPeriodMost{1'000'000};

  // The first setting of the queue is the tuner's.
  QueueTuner(const LatencyTarget& target, BatchQueue& queue, Micros now);

  void refused() { ++seen_.refused, ++refused_since_; }  // because the queue was full
  // Where the thread that runs the model also reads requests and writes answers, those wait for it before they come to
  // the queue and after the call. `worked`: the time that it worked since it last took a batch, with the call of
  // `done`. Adds what that means to the batch's latencies. Before ran().
  void shares_thread(const BatchDone& done, Batch& batch, Micros worked);
  // After each run_batch. Sets the queue anew when a period is over.
  void ran(const BatchDone& done, const Batch& batch, BatchQueue& queue, Micros now);
  const Setting& setting() const { return tuner_.setting(); }

 private:
  static constexpr std::size_t kBuckets = 28 * 16;  // sixteen for each power of two of microseconds
  static constexpr std::uint64_t kEnough = 200;     // requests, for a quantile of a hundredth
  void set(BatchQueue& queue) const;
  Micros p99() const;

  Tuner tuner_;
  double row_us_ = 0;                // moving mean of what Seen calls so
  std::uint64_t refused_since_ = 0;  // since the thread took a batch: it read those, too
  Seen seen_;
  Micros began_, busy_{0};
  std::vector<std::uint32_t> latencies_ = std::vector<std::uint32_t>(kBuckets);
};

}  // namespace falaj::infer
