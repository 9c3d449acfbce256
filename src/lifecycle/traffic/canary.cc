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

}  // namespace

CanaryDecision decide(const CanaryRule& rule, const CanaryState& state, std::int64_t now_us, const Observed& canary,
                      const Observed& others) {
  using What = CanaryDecision::What;
  if (canary.broken) return {What::roll_back, "it cannot be served"};
  // A server that was started again counts from zero.
  const bool restarted = canary.requests < state.requests || canary.failures < state.failures;
  const auto answered = canary.requests - (restarted ? 0 : state.requests);
  const auto failed = canary.failures - (restarted ? 0 : state.failures);
  const auto asked = static_cast<double>(answered + failed);
  const double allowed =
      rule.failures_max * asked + kDeviations * std::sqrt(rule.failures_max * (1 - rule.failures_max) * asked);
  if (failed >= kFailuresMin && static_cast<double>(failed) > allowed)
    return {What::roll_back, fmt::format("{} of {} requests failed", failed, answered + failed)};
  const bool slower = others.requests >= rule.requests_min && canary.p99_us > rule.slower_max * others.p99_us &&
                      canary.p99_us - others.p99_us > kSlowerUs;
  if (slower && answered >= rule.requests_min)
    return {What::roll_back, fmt::format("its p99 is {:.1f} ms, that of the others {:.1f} ms", canary.p99_us / 1000,
                                         others.p99_us / 1000)};
  if (is_worse(rule, canary, others))
    return {What::roll_back, fmt::format("the mean of its {} labels is {:.4g}, that of the others {:.4g}",
                                         canary.labels.count, canary.labels.mean(), others.labels.mean())};
  if (auto shifted = shifted_output(rule, canary, others); !shifted.empty())
    return {What::roll_back, std::move(shifted)};
  if (answered < rule.requests_min || now_us - state.since_us < rule.every_us) return {};
  const auto why =
      fmt::format("{} requests answered, {} failed, p99 {:.1f} ms", answered, failed, canary.p99_us / 1000);
  const bool last = state.step + 1 >= static_cast<std::int64_t>(rule.steps.size());
  return {last ? What::promote : What::advance, why};
}

}  // namespace falaj::traffic
