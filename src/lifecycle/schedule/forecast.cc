// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/forecast.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lifecycle/schedule/book.h"

namespace falaj::schedule {
namespace {

constexpr std::size_t kStartsRemembered = 2000;
constexpr std::size_t kAlike = 100;  // starts that a forecast is made from
constexpr std::size_t kEnough = 50;
constexpr double kRecordMax = 100'000;  // a longer record would take ever longer to change
constexpr double kShortestWait = 1;     // seconds
constexpr double kLongestWait = 10 * 365 * 86400.0;

struct Alike {
  double unlike;
  double waited;  // seconds, so far or until it started
  bool started;
};

// How long until `part` of those like these have started. If too few have to say, the rest is taken to start at the
// mean rate of all of these.
double wait_of_part(const std::vector<Alike>& in_order, double part) {
  double left = 1, waited = 0;
  std::size_t starts = 0, waiting = in_order.size();
  for (const Alike& one : in_order) {
    if (one.started) {
      left *= 1 - 1 / static_cast<double>(waiting);
      if (1 - left >= part - 1e-9) return one.waited;
      ++starts;
    }
    --waiting;
    waited += one.waited;
  }
  const double mean = waited / static_cast<double>(std::max<std::size_t>(starts, 1));
  return in_order.back().waited + mean * std::max(0.0, std::log(left / (1 - part)));
}

}  // namespace

Crowd crowd(const State& state, const Job& job, Micros now) {
  const Book& book = state.book();
  Crowd crowd;
  crowd.share = dominant_share(job.task, job.tasks_min, book.capacity);
  crowd.run = in_seconds(job.run.p50);
  const auto queue = book.queue_index.find(job.queue);
  if (queue != book.queue_index.end()) {
    const double score = book.rules.order == Order::hastiest ? -job.run.haste : 0;
    const OrderKey own{-job.priority, score, job.submitted, job.id};
    for (const Waiting& waiting : book.queues[queue->second].pending) {
      if (!(waiting.key < own)) break;
      const Job& before = waiting.pending->job;
      crowd.ahead += dominant_share(before.task, before.tasks_min, book.capacity) * in_seconds(before.run.p50);
    }
  }
  for (const auto& [id, entry] : book.running) {
    const Running& running = entry.running;
    const double left = std::max(0.0, in_seconds(running.started + running.job.run.p50 - now));
    crowd.ahead += dominant_share(running.job.task, tasks_of(running.placement), book.capacity) * left;
  }
  return crowd;
}

// The excess is measured against what chance alone brings about, which grows with the root of the record.
double StartForecast::Band::stretched(double seconds) const {
  const double factor = std::exp(std::clamp(excess / std::sqrt(1 + std::min(judged, kRecordMax)), -30.0, 30.0));
  return std::min(std::max(seconds, kShortestWait) * factor, kLongestWait);
}

void StartForecast::Band::judge(bool late) {
  excess += (late ? 1 : 0) - (1 - part);
  judged += 1;
}

bool StartForecast::knows_enough() const { return starts_ >= kEnough; }

Guess StartForecast::from_past(const Crowd& crowd, Micros now) const {
  if (starts_ == 0) return {from_seconds(crowd.ahead), from_seconds(crowd.ahead * 2), 0};
  const double ahead = std::log1p(crowd.ahead), share = std::log(crowd.share + 1e-6), run = std::log1p(crowd.run);
  std::vector<Alike> alike;
  std::vector<double> unlike;  // of those that have started
  alike.reserve(past_.size());
  unlike.reserve(starts_);
  for (const Past& past : past_) {
    if (past.gone) continue;
    const bool started = past.waited != kNever;
    const double how =
        std::abs(past.ahead - ahead) + 0.5 * std::abs(past.share - share) + 0.5 * std::abs(past.run - run);
    alike.push_back({how, in_seconds(started ? past.waited : now - past.told), started});
    if (started) unlike.push_back(how);
  }
  // As many starts as are asked for, and those that wait which are no less alike.
  const auto last = unlike.begin() + static_cast<std::ptrdiff_t>(std::min(kAlike, unlike.size())) - 1;
  std::ranges::nth_element(unlike, last);
  std::erase_if(alike, [&](const Alike& one) { return one.unlike > *last; });
  std::ranges::sort(alike, {}, [](const Alike& one) { return std::pair(one.waited, !one.started); });
  const double p50 = half_.stretched(wait_of_part(alike, half_.part));
  const double p90 = nine_of_ten_.stretched(wait_of_part(alike, nine_of_ten_.part));
  return {from_seconds(p50), from_seconds(std::max(p50, p90)), 0};
}

Guess StartForecast::tell(JobId job, const Crowd& crowd, Micros now) {
  gone(job);
  judge_late(now);
  const Guess guess = from_past(crowd, now);
  const Told told{now, forgotten_ + past_.size(), now + guess.p50, now + guess.p90};
  told_.emplace(job, told);
  due_.emplace(told.p50, job, false);
  due_.emplace(told.p90, job, true);
  past_.push_back({std::log1p(crowd.ahead), std::log(crowd.share + 1e-6), std::log1p(crowd.run), now});
  return guess;
}

void StartForecast::judge_late(Micros now) {
  for (; !due_.empty() && std::get<Micros>(*due_.begin()) < now; due_.erase(due_.begin())) {
    const auto& [when, job, nine] = *due_.begin();
    Told& told = told_.at(job);
    (nine ? told.judged90 : told.judged50) = true;
    (nine ? nine_of_ten_ : half_).judge(true);
  }
}

StartForecast::Past* StartForecast::past_of(const Told& told) {
  return told.number < forgotten_ ? nullptr : &past_[static_cast<std::size_t>(told.number - forgotten_)];
}

// Of those told before it none is kept, started or not: who is still there would be those that wait longest.
void StartForecast::forget_oldest() {
  starts_ -= past_.front().waited != kNever ? 1 : 0;
  past_.pop_front();
  ++forgotten_;
}

void StartForecast::started(JobId job, Micros now) {
  const auto found = told_.find(job);
  if (found == told_.end()) return;
  judge_late(now);
  const Told told = found->second;
  if (!told.judged50) half_.judge(false);
  if (!told.judged90) nine_of_ten_.judge(false);
  if (Past* past = past_of(told)) {
    past->waited = now - told.at;
    for (++starts_; starts_ > kStartsRemembered;) forget_oldest();
  }
  due_.erase({told.p50, job, false});
  due_.erase({told.p90, job, true});
  told_.erase(found);
}

void StartForecast::gone(JobId job) {
  const auto found = told_.find(job);
  if (found == told_.end()) return;
  if (Past* past = past_of(found->second)) past->gone = true;
  due_.erase({found->second.p50, job, false});
  due_.erase({found->second.p90, job, true});
  told_.erase(found);
}

}  // namespace falaj::schedule
