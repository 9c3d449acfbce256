// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/predict.h"

#include <algorithm>
#include <array>
#include <functional>

namespace falaj::schedule {
namespace {

constexpr double kOlder = 0.8;  // what the job before counts against the newest
constexpr double kOtherLimit = 0.2;
constexpr double kOtherTasks = 0.4;
constexpr double kOtherName = 0.2;
constexpr double kOfLimit = 0.3;          // what the limit counts against the newest job
constexpr double kShortestSeconds = 10;   // below that nobody minds waiting: slowdown is bounded there
constexpr double kUnknownSeconds = 3600;  // neither limit nor history

}  // namespace

Guess Predictor::guess(const JobFacts& facts) const {
  const double most = facts.limit == kNever ? 1e18 : in_seconds(facts.limit);
  const double unknown = facts.limit == kNever ? kUnknownSeconds : most;
  double total = 0, mean = 0, inverse = 0;
  const auto count = [&](double run, double weight) {
    const double seconds = std::max(run, kShortestSeconds);
    total += weight;
    mean += weight * seconds;
    inverse += weight / seconds;
  };
  count(unknown, kOfLimit);
  const auto found = past_.find(facts.user);
  if (found == past_.end()) return {from_seconds(unknown), from_seconds(unknown), inverse / mean};

  const History& history = found->second;
  const std::size_t name = std::hash<std::string>{}(facts.name);
  std::array<double, kRemembered> weights;  // by place in the ring
  double weight = 1;
  for (std::size_t age = 0, at = history.newest; age < history.ring.size(); ++age, weight *= kOlder) {
    const Past& past = history.ring[at];
    weights[at] = weight * (past.limit == facts.limit ? 1 : kOtherLimit) *
                  (past.tasks == facts.tasks ? 1 : kOtherTasks) * (past.name == name ? 1 : kOtherName);
    count(std::min(past.seconds, most), weights[at]);
    at = at == 0 ? history.ring.size() - 1 : at - 1;
  }
  // The run times below which half and nine tenths of the weight lie.
  Guess guess{Micros{-1}, Micros{-1}, inverse / mean};
  double sum = 0;
  const auto pass = [&](double seconds, double of) {
    sum += of;
    if (guess.p50 < Micros{0} && sum >= 0.5 * total) guess.p50 = from_seconds(seconds);
    if (sum >= 0.9 * total) guess.p90 = from_seconds(seconds);
    return guess.p90 >= Micros{0};
  };
  bool passed_unknown = false;
  double longest = unknown;
  for (const std::uint8_t at : history.by_seconds) {
    const double seconds = std::min(history.ring[at].seconds, most);
    if (!passed_unknown && unknown <= seconds) {
      passed_unknown = true;
      if (pass(unknown, kOfLimit)) return guess;
    }
    if (pass(seconds, weights[at])) return guess;
    longest = std::max(longest, seconds);
  }
  if (!passed_unknown) pass(unknown, kOfLimit);
  if (guess.p50 < Micros{0}) guess.p50 = from_seconds(longest);
  if (guess.p90 < Micros{0}) guess.p90 = from_seconds(longest);
  return guess;
}

void Predictor::learn(const JobFacts& facts, Micros ran) {
  History& history = past_[facts.user];
  const Past past{std::hash<std::string>{}(facts.name), facts.tasks, facts.limit, in_seconds(ran)};
  std::vector<std::uint8_t>& order = history.by_seconds;
  if (history.ring.size() < kRemembered) {
    history.newest = history.ring.size();
    history.ring.push_back(past);
  } else {
    history.newest = (history.newest + 1) % kRemembered;
    std::erase(order, static_cast<std::uint8_t>(history.newest));
    history.ring[history.newest] = past;
  }
  const auto after =
      std::ranges::upper_bound(order, past.seconds, {}, [&](std::uint8_t at) { return history.ring[at].seconds; });
  order.insert(after, static_cast<std::uint8_t>(history.newest));
}

}  // namespace falaj::schedule
