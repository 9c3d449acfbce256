// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/predictions.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>

#include "foundation/base/error.h"
#include "foundation/base/log.h"

namespace falaj::serve {
namespace {

constexpr int kPolite = 10;                            // of the kernel's niceness: a tenth of who answers
constexpr std::chrono::milliseconds kWriteEvery{100};  // nobody is woken for a row
constexpr sys::Micros kSegmentAge{1'000'000};
constexpr std::size_t kSegmentBytes = std::size_t{1} << 20;

std::atomic<std::uint64_t> logs_made{0};

// xoroshiro128++ of Blackman and Vigna: names must differ, not be secret, and cost no system call.
struct Generator {
  std::uint64_t log = 0, a = 0, b = 0;
  std::uint64_t next() {
    const auto out = std::rotl(a + b, 17) + a;
    b ^= a;
    a = std::rotl(a, 49) ^ b ^ (b << 21);
    b = std::rotl(b, 28);
    return out;
  }
};

std::size_t bytes_of(const Kept& kept) { return sizeof(Kept) + kept.packed.size() + kept.key.size(); }

}  // namespace

Predictions::Predictions(const sys::Clock& clock, sys::Random& random, Sink sink)
    : clock_(clock), random_(random), sink_(std::move(sink)), number_(++logs_made) {
  thread_ = std::thread([this] {
    ::setpriority(PRIO_PROCESS, 0, kPolite);  // of this thread alone, as Linux has it
    run();
  });
}

Predictions::~Predictions() {
  {
    Lock lock(mu_);
    closing_ = true;
    woken_.notify_all();
  }
  thread_.join();
}

IdBits Predictions::next_id() {
  thread_local Generator generator;
  if (generator.log != number_) generator = {number_, random_.next() | 1, random_.next()};
  const auto ms = static_cast<std::uint64_t>(clock_.wall().count() / 1000);
  return {ms << 16 | (generator.next() >> 48), generator.next()};
}

void Predictions::keep(Kept kept) {
  const auto bytes = bytes_of(kept);
  Lock lock(mu_);
  if (closing_ || waiting_bytes_ + bytes > kWaitingBytesMax) {
    tallies_[kept.endpoint->full_name].dropped += kept.rows;
    return;
  }
  waiting_bytes_ += bytes;
  waiting_.push_back(std::move(kept));
  if (std::exchange(asleep_, false) || waiting_bytes_ > kWaitingBytesMax / 2) woken_.notify_all();
}

void Predictions::flush() {
  Lock lock(mu_);
  const auto mine = ++flushes_asked_;
  woken_.notify_all();
  while (flushes_done_ < mine) lock.wait(flushed_);
}

Predictions::Tally Predictions::tally(const std::string& endpoint) const {
  Lock lock(mu_);
  const auto found = tallies_.find(endpoint);
  return found == tallies_.end() ? Tally() : found->second;
}

void Predictions::lost(const std::string& endpoint, std::uint64_t rows) {
  Lock lock(mu_);
  auto& tally = tallies_[endpoint];
  tally.dropped += rows;
  tally.rows -= std::min(tally.rows, rows);
}

void Predictions::run() {
  for (;;) {
    std::vector<Kept> taken;
    std::uint64_t flush = 0;
    bool last = false, all = false;
    {
      Lock lock(mu_);
      if (idle() && waiting_.empty() && open_.empty()) {
        asleep_ = true;
        while (asleep_ && idle()) lock.wait(woken_);
      }
      asleep_ = false;
      if (idle()) lock.wait_for(woken_, kWriteEvery);
      taken.swap(waiting_);
      waiting_bytes_ = 0;
      flush = flushes_asked_;
      last = closing_;
      all = !idle();
    }
    for (const auto& kept : taken) write(kept);
    for (auto at = open_.begin(); at != open_.end();) {
      if (all || clock_.now() - at->second.since >= kSegmentAge) {
        hand_over(at->second);
        at = open_.erase(at);
      } else {
        ++at;
      }
    }
    Lock lock(mu_);
    flushes_done_ = flush;
    flushed_.notify_all();
    if (last && waiting_.empty()) return;
  }
}

void Predictions::write(const Kept& kept) {
  const auto& endpoint = *kept.endpoint;
  auto& open = open_[endpoint.full_name];
  if (!open.segment.lines.empty() &&
      (open.segment.lines.size() >= kSegmentBytes || open.layout->columns != endpoint.log->columns)) {
    hand_over(open);
    open = {};
  }
  if (open.segment.lines.empty()) {
    const auto& plan = endpoint.plan;
    open = {{plan.tenant, plan.project, plan.name, endpoint.log->columns, 0, ""}, endpoint.log, clock_.now()};
  }
  std::size_t too_long = 0;
  try {
    too_long = append_lines(open.segment.lines, kept);
  } catch (const std::exception& e) {
    log::error("prediction_not_logged", {{"endpoint", endpoint.full_name}, {"what", e.what()}});
    too_long = kept.rows;
  }
  open.segment.rows += static_cast<std::int64_t>(kept.rows - too_long);
  Lock lock(mu_);
  auto& tally = tallies_[endpoint.full_name];
  tally.rows += kept.rows - too_long;
  tally.dropped += too_long;
}

void Predictions::hand_over(Open& open) {
  if (open.segment.rows == 0) return;
  try {
    sink_(open.segment);
  } catch (const Error& e) {
    const auto& segment = open.segment;
    lost(segment.tenant + "." + segment.project + "." + segment.endpoint, static_cast<std::uint64_t>(segment.rows));
    log::warn("log_segment_lost", {{"endpoint", segment.endpoint}, {"why", e.what()}});
  }
}

}  // namespace falaj::serve
