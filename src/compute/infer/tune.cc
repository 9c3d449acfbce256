// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/tune.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace falaj::infer {

Setting Tuner::step(const Seen& seen, const Costs& costs) {
  if (seen.answered > 0) correct(seen);
  scale(seen);
  work_out(seen, costs);
  return setting_;
}

// Late is worse than refused: down at once, up slowly and only where requests were refused.
void Tuner::correct(const Seen& seen) {
  // What one period shows scatters around what all of them will.
  constexpr double kAim = 0.9;
  const double used = static_cast<double>(seen.p99.count()) / (kAim * static_cast<double>(target_.p99.count()));
  if (used > 1)
    room_ *= std::max(0.8, 1 / used);
  else if (used < 0.95 && seen.refused > 0)
    room_ *= 1 + 0.25 * (1 - used);
  // Who is late because the thread cannot even read them all in time is not helped by a queue that takes nobody.
  room_ = std::clamp(room_, 0.3, 4.0);
}

void Tuner::scale(const Seen& seen) {
  if (pause_ > 0) --pause_;
  if (setting_.instances > 1 && !trying_ && seen.refused == 0 && seen.busy < 0.2) {
    --setting_.instances;  // the rest can do it
    return;
  }
  if (seen.refused == 0 || seen.period <= Micros{0}) return;
  const double rate = static_cast<double>(seen.answered) * 1e6 / static_cast<double>(seen.period.count());
  rate_now_ += (rate - rate_now_) / (++full_periods_);
  if (full_periods_ < kTrialPeriods) return;
  if (trying_ && rate_now_ < 1.1 * rate_before_) {
    --setting_.instances;  // they only took the processor from each other
    pause_ = kPausePeriods;
    trying_ = false;
  } else if (setting_.instances < target_.instances_most && pause_ == 0) {
    ++setting_.instances;
    trying_ = true;
    rate_before_ = rate_now_;
  } else {
    trying_ = false;
  }
  rate_now_ = 0, full_periods_ = 0;
}

void Tuner::work_out(const Seen& seen, const Costs& costs) {
  const std::uint32_t known = costs.most_known();
  if (known == 0) return;
  const auto target = static_cast<double>(target_.p99.count());
  const double budget = room_ * target;
  const auto us = [&](std::uint32_t rows) {
    return std::max(1.0, costs.us_of(rows).value_or(1) + seen.row_us * static_cast<double>(rows));
  };
  // Who comes while a call runs waits for it, and takes one itself; a larger call that leaves no room for that is late.
  const auto fits = [&](std::uint32_t rows) {
    return rows == 1 || (2 * us(rows) <= target && 1.5 * us(rows) <= budget);
  };
  const std::uint32_t most = std::min(target_.rows_most, known);
  double best = 0;
  for (std::uint32_t rows = 1; rows <= most; rows *= 2)
    if (fits(rows)) best = std::max(best, rows / us(rows));
  std::uint32_t rows_max = 1;
  while (rows_max < most && rows_max / us(rows_max) < 0.985 * best) rows_max *= 2;
  // There is need, and the largest known is the best: a larger one is worth a try. So is, now and then, one that was
  // found to be worse: it may have been bad luck.
  const bool need = seen.refused > 0 || seen.busy > 0.8;
  const bool again = need && ++needy_periods_ % kLookAgain == 0;
  if (need && (again || rows_max == known) && rows_max * 2 <= target_.rows_most && 4 * us(rows_max) <= target)
    rows_max *= 2;

  const double calls = budget / us(rows_max) - 1;  // that may stand in the queue, one being under way
  const double rows = std::max(0.5, calls) * rows_max * setting_.instances;
  setting_.rows_max = rows_max;
  setting_.queue_rows_max = static_cast<std::uint32_t>(std::clamp(rows, 1.0, 1e6));
  // Calls become dearer from one moment to the next, as when a burst must be read beside them; then the queue turns out
  // to be too long. Who would be late because of it makes room for those who come after.
  setting_.stale_after = Micros(static_cast<std::int64_t>(std::max(0.5 * target, 0.95 * target - us(rows_max))));
  // Waiting gets no more done, since batches grow by themselves while calls run. It leaves the processor to others, so
  // it is paid from latency that nobody needs.
  const bool idle = seen.refused == 0 && seen.busy < 0.5 && seen.p99 * 2 < target_.p99;
  const bool gains = costs.gains_from_more(1, rows_max);
  setting_.wait_max = idle && gains ? Micros(static_cast<std::int64_t>(0.05 * budget)) : Micros{0};
}

// ---- For a queue.
namespace {

constexpr std::size_t kEach = 16;  // buckets of a power of two

std::size_t bucket_of(Micros latency) {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(0, latency.count()));
  if (value < kEach) return value;
  const auto power = static_cast<std::size_t>(std::bit_width(value)) - 5;  // 0 for 16 to 31
  return (power + 1) * kEach + ((value >> power) & (kEach - 1));
}

Micros end_of(std::size_t bucket) {
  if (bucket < kEach) return Micros(static_cast<std::int64_t>(bucket) + 1);
  return Micros(static_cast<std::int64_t>((kEach + bucket % kEach + 1) << (bucket / kEach - 1)));
}

}  // namespace

QueueTuner::QueueTuner(const LatencyTarget& target, BatchQueue& queue, Micros now) : tuner_(target), began_(now) {
  set(queue);
}

void QueueTuner::set(BatchQueue& queue) const {
  BatchRule rule = queue.rule();
  rule.rows_max = tuner_.setting().rows_max;
  rule.wait_max = tuner_.setting().wait_max;
  rule.queue_rows_max = tuner_.setting().queue_rows_max;
  rule.stale_after = tuner_.setting().stale_after;
  queue.set_rule(rule);
}

Micros QueueTuner::p99() const {
  std::uint64_t above = seen_.answered / 100;
  for (std::size_t at = kBuckets; at-- > 0; above -= latencies_[at])
    if (latencies_[at] > above) return end_of(at);
  return Micros{0};
}

void QueueTuner::shares_thread(const BatchDone& done, Batch& batch, Micros worked) {
  if (batch.latencies.empty() || done.rows == 0) return;
  const auto besides = static_cast<double>(std::max(Micros{0}, worked - done.took).count());
  // Refusing takes the thread's time as answering does. Put down to those who were answered, it would make them look
  // dear, and more be refused, and so on.
  const double handled = done.rows + static_cast<double>(std::exchange(refused_since_, 0));
  row_us_ += (besides / handled - row_us_) / 16;
  // Who came while it worked was read only then: the first of a batch had waited for about all of that time, the last
  // for none. They are answered in that order, too, which takes more than half of what is besides the call.
  constexpr double kAnswering = 0.6;
  const auto count = static_cast<double>(batch.latencies.size());
  double place = 0.5;
  for (auto& latency : batch.latencies) {
    const double before = (1 - place / count) * static_cast<double>(worked.count());
    const double after = place / count * kAnswering * besides;
    latency += Micros(static_cast<std::int64_t>(before + after));
    ++place;
  }
}

void QueueTuner::ran(const BatchDone& done, const Batch& batch, BatchQueue& queue, Micros now) {
  for (const Micros latency : batch.latencies) ++latencies_[std::min(bucket_of(latency), kBuckets - 1)];
  seen_.answered += batch.latencies.size();
  busy_ += done.took;
  seen_.period = now - began_;
  if (seen_.period < kPeriod || (seen_.answered < kEnough && seen_.period < kPeriodMost)) return;
  seen_.p99 = p99();
  seen_.row_us = row_us_;
  seen_.busy = std::min(1.0, static_cast<double>(busy_.count()) / static_cast<double>(seen_.period.count()));
  tuner_.step(seen_, queue.costs());
  set(queue);
  seen_ = {};
  began_ = now, busy_ = Micros{0};
  std::fill(latencies_.begin(), latencies_.end(), 0);
}

}  // namespace falaj::infer
