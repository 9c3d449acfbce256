// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/canary.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "foundation/stats/distance.h"

namespace falaj::traffic {
namespace {

constexpr double kDeviations = 3, kSlowerUs = 1'000;
constexpr std::int64_t kFailuresMin = 3;  // one or two say nothing of a share
constexpr double kOthersMin = 100;        // requests to the others; fewer say nothing of how often they fail
constexpr double kMetricConfidence = 0.99, kMetricEffectMin = 0.01;
constexpr std::uint64_t kPredictionsMin = 100;  // fewer say nothing of a distribution
constexpr double kChanceOfALook = 1e-6;

// Surely lower, and by more than may be.
bool is_worse(const CanaryRule& rule, const Observed& canary, const Observed& others) {
  if (!rule.metric_drop_max) return false;
  stats::SequentialTest test(std::max(*rule.metric_drop_max, kMetricEffectMin), kMetricConfidence);
  const auto seen = test.look(others.labels, canary.labels);
  return seen.bounded && seen.high < 0 && -seen.difference > *rule.metric_drop_max;
}

// The largest difference of shares: of values below any number, of any text, of missing ones.
double shift_between(const ColumnSketch& a, const ColumnSketch& b) {
  const auto share = [](std::uint64_t part, std::uint64_t of) {
    return of == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(of);
  };
  double shift = std::abs(share(a.missing, a.rows) - share(b.missing, b.rows));
  if (a.holds != b.holds || a.present() == 0 || b.present() == 0) return shift;
  if (a.holds == ColumnSketch::Holds::numbers) return std::max(shift, stats::ks(a.numbers, b.numbers));
  for (const auto* sketch : {&a, &b})
    for (const auto& entry : sketch->texts.top(ColumnSketch::kTexts))
      shift = std::max(shift, std::abs(share(a.texts.counted(entry.text), a.texts.total()) -
                                       share(b.texts.counted(entry.text), b.texts.total())));
  return shift;
}

// By how much samples of so many values differ by chance, and sketches err.
double shift_by_chance(const ColumnSketch& a, const ColumnSketch& b) {
  const auto rows = [](const ColumnSketch& sketch) { return static_cast<double>(sketch.rows); };
  double out = std::sqrt(-std::log(kChanceOfALook / 2) / 2 * (1 / rows(a) + 1 / rows(b)));
  for (const auto* sketch : {&a, &b}) {
    if (sketch->holds == ColumnSketch::Holds::numbers) out += sketch->numbers.rank_error_everywhere();
    if (sketch->holds == ColumnSketch::Holds::texts && sketch->texts.total() > 0)
      out += static_cast<double>(sketch->texts.error()) / static_cast<double>(sketch->texts.total());
  }
  return out;
}

// The output that is surely farther off than it may be, in words; "": none.
std::string shifted_output(const CanaryRule& rule, const Observed& canary, const Observed& others) {
  if (!rule.shift_max) return "";
  for (const auto& [name, own] : canary.outputs) {
    const auto found = others.outputs.find(name);
    if (found == others.outputs.end() || own.rows < kPredictionsMin || found->second.rows < kPredictionsMin) continue;
    const double shift = shift_between(own, found->second);
    if (shift - shift_by_chance(own, found->second) > *rule.shift_max)
      return fmt::format("its predictions differ: {} by {:.2f} of all, where {:.2f} is allowed", name, shift,
                         *rule.shift_max);
  }
  return "";
}

double by_chance(double share, double of) { return kDeviations * std::sqrt(share * (1 - share) * of); }

// More of its requests failed than may, and more than of the others': what refuses everybody is not its fault.
bool fails(const CanaryRule& rule, const Grown& canary, const Grown& others) {
  const auto asked = static_cast<double>(canary.requests + canary.failures);
  const auto failed = static_cast<double>(canary.failures);
  if (canary.failures < kFailuresMin || failed <= rule.failures_max * asked + by_chance(rule.failures_max, asked))
    return false;
  const auto others_asked = static_cast<double>(others.requests + others.failures);
  if (others_asked < kOthersMin) return true;
  const auto others_failed = static_cast<double>(others.failures);
  const double together = (failed + others_failed) / (asked + others_asked);
  return failed / asked - others_failed / others_asked > by_chance(together, 1 / asked + 1 / others_asked);
}

bool is_slower(const CanaryRule& rule, const Grown& canary, double others_p99_us) {
  if (canary.requests < rule.requests_min || others_p99_us <= 0) return false;
  const auto p99_us = Times::quantile_us(canary.latency, 0.99);
  const double most_us = std::max(rule.slower_max * others_p99_us, others_p99_us + kSlowerUs);
  if (p99_us <= most_us) return false;
  double slow = 0;
  for (auto i = Times::bucket(static_cast<std::int64_t>(most_us)) + 1; i < canary.latency.size(); ++i)
    slow += static_cast<double>(canary.latency[i]);
  const auto requests = static_cast<double>(canary.requests);
  return slow > 0.01 * requests + by_chance(0.01, requests);
}

}  // namespace

double others_p99_us(const CanaryRule& rule, const CanaryState& state, const Observed& others) {
  if (others.counted.requests < rule.requests_min) return state.others_p99_us;
  return Times::quantile_us(others.counted.latency, 0.99);
}

CanaryDecision decide(const CanaryRule& rule, const CanaryState& state, std::int64_t now_us, const Observed& canary,
                      const Observed& others) {
  using What = CanaryDecision::What;
  if (canary.broken) return {What::roll_back, "it cannot be served"};
  const auto& own = canary.counted;
  if (fails(rule, own, others.counted))
    return {What::roll_back, fmt::format("{} of {} requests failed", own.failures, own.requests + own.failures)};
  const auto p99_us = Times::quantile_us(own.latency, 0.99);
  const auto others_us = others_p99_us(rule, state, others);
  if (is_slower(rule, own, others_us))
    return {What::roll_back,
            fmt::format("its p99 is {:.1f} ms, that of the others {:.1f} ms", p99_us / 1000, others_us / 1000)};
  if (is_worse(rule, canary, others))
    return {What::roll_back, fmt::format("the mean of its {} labels is {:.4g}, that of the others {:.4g}",
                                         canary.labels.count, canary.labels.mean(), others.labels.mean())};
  if (auto shifted = shifted_output(rule, canary, others); !shifted.empty())
    return {What::roll_back, std::move(shifted)};
  if (own.requests < rule.requests_min || now_us - state.since_us < rule.every_us) return {};
  const auto why =
      fmt::format("{} requests answered, {} failed, p99 {:.1f} ms", own.requests, own.failures, p99_us / 1000);
  const bool last = state.step + 1 >= static_cast<std::int64_t>(rule.steps.size());
  return {last ? What::promote : What::advance, why};
}

}  // namespace falaj::traffic
