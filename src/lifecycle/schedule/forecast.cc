// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/forecast.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lifecycle/schedule/book.h"

namespace falaj::schedule {
namespace {

constexpr std::size_t kWaitsRemembered = 2000;
constexpr std::size_t kNeighbours = 100;
constexpr std::size_t kEnough = 50;
constexpr double kLearningRate = 0.03;
constexpr double kLevelMax = 3;

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
    for (const auto& [key, pending] : book.queues[queue->second].pending) {
      if (!(key < own)) break;
      crowd.ahead +=
          dominant_share(pending->job.task, pending->job.tasks_min, book.capacity) * in_seconds(pending->job.run.p50);
    }
  }
  for (const auto& [id, entry] : book.running) {
    const Running& running = entry.running;
    const double left = std::max(0.0, in_seconds(running.started + running.job.run.p50 - now));
    crowd.ahead += dominant_share(running.job.task, tasks_of(running.placement), book.capacity) * left;
  }
  return crowd;
}

bool StartForecast::knows_enough() const { return past_.size() >= kEnough; }

Guess StartForecast::guess(const Crowd& crowd) const {
  if (past_.empty()) return {from_seconds(crowd.ahead), from_seconds(crowd.ahead * 2), 0};
  const double ahead = std::log1p(crowd.ahead), share = std::log(crowd.share + 1e-6), run = std::log1p(crowd.run);
  std::vector<std::pair<double, double>> near;  // how unlike, waited
  for (const Past& past : past_) {
    near.emplace_back(
        std::abs(past.ahead - ahead) + 0.5 * std::abs(past.share - share) + 0.5 * std::abs(past.run - run),
        past.waited);
  }
  const std::size_t used = std::min(kNeighbours, near.size());
  std::ranges::nth_element(near, near.begin() + static_cast<std::ptrdiff_t>(used) - 1);
  std::vector<double> waits;
  for (std::size_t i = 0; i < used; ++i) waits.push_back(near[i].second);
  std::ranges::sort(waits);
  const auto at = [&](double level) {
    const double rank = std::clamp(level, 0.0, 1.0) * static_cast<double>(used - 1);
    // A level beyond all that was seen reaches further than all that was seen.
    const double beyond = level > 1 ? 1 + (level - 1) * 10 : 1;
    return from_seconds(waits[static_cast<std::size_t>(std::ceil(rank))] * beyond);
  };
  return {at(level50_), std::max(at(level50_), at(level90_)), 0};
}

void StartForecast::overdue() { level90_ = std::min(level90_ + kLearningRate * 0.9, kLevelMax); }

void StartForecast::learn(const Crowd& crowd, Micros waited, const Guess& told, bool was_overdue) {
  past_.push_back({std::log1p(crowd.ahead), std::log(crowd.share + 1e-6), std::log1p(crowd.run), in_seconds(waited)});
  if (past_.size() > kWaitsRemembered) past_.pop_front();
  level50_ += kLearningRate * (0.5 - (waited <= told.p50 ? 1 : 0));
  if (!was_overdue) level90_ += kLearningRate * (0.9 - (waited <= told.p90 ? 1 : 0));
  level50_ = std::clamp(level50_, 0.05, 0.95);
  level90_ = std::clamp(level90_, 0.5, kLevelMax);
}

}  // namespace falaj::schedule
