// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/predict.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace falaj::schedule {
namespace {

constexpr std::size_t kRemembered = 60;  // jobs of a user
constexpr double kOlder = 0.8;           // what the job before counts against the newest
constexpr double kOtherLimit = 0.2;
constexpr double kOtherTasks = 0.4;
constexpr double kOtherName = 0.2;
constexpr double kOfLimit = 0.3;          // what the limit counts against the newest job
constexpr double kShortestSeconds = 10;   // below that nobody minds waiting: slowdown is bounded there
constexpr double kUnknownSeconds = 3600;  // neither limit nor history

struct Weighed {
  double seconds;
  double weight;
};

Micros quantile(const std::vector<Weighed>& sorted, double total, double q) {
  double sum = 0;
  for (const Weighed& w : sorted) {
    sum += w.weight;
    if (sum >= q * total) return from_seconds(w.seconds);
  }
  return from_seconds(sorted.back().seconds);
}

}  // namespace

Guess Predictor::guess(const JobFacts& facts) const {
  const double most = facts.limit == kNever ? 1e18 : in_seconds(facts.limit);
  std::vector<Weighed> like = {{facts.limit == kNever ? kUnknownSeconds : most, kOfLimit}};
  if (const auto found = past_.find(facts.user); found != past_.end()) {
    const std::size_t name = std::hash<std::string>{}(facts.name);
    double weight = 1;
    for (auto past = found->second.rbegin(); past != found->second.rend(); ++past, weight *= kOlder) {
      like.push_back({std::min(past->seconds, most), weight * (past->limit == facts.limit ? 1 : kOtherLimit) *
                                                         (past->tasks == facts.tasks ? 1 : kOtherTasks) *
                                                         (past->name == name ? 1 : kOtherName)});
    }
  }
  double total = 0, mean = 0, inverse = 0;
  for (const Weighed& w : like) {
    const double seconds = std::max(w.seconds, kShortestSeconds);
    total += w.weight;
    mean += w.weight * seconds;
    inverse += w.weight / seconds;
  }
  std::ranges::sort(like, {}, &Weighed::seconds);
  return {quantile(like, total, 0.5), quantile(like, total, 0.9), inverse / mean};
}

void Predictor::learn(const JobFacts& facts, Micros ran) {
  std::deque<Past>& past = past_[facts.user];
  past.push_back({std::hash<std::string>{}(facts.name), facts.tasks, facts.limit, in_seconds(ran)});
  if (past.size() > kRemembered) past.pop_front();
}

}  // namespace falaj::schedule
