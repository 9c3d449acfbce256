// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/experiment.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <fmt/format.h>

namespace falaj::traffic {
namespace {

constexpr std::uint64_t kKnownMin = 30;  // labels of an arm, before it is weighed against others
constexpr int kDraws = 4'000;

std::string in_words(const ExperimentRule& rule, const stats::Sample& base, const stats::Sample& arm,
                     const stats::SequentialTest::Seen& seen) {
  const auto fewest = std::min(base.count, arm.count);
  if (fewest < stats::SequentialTest::kCountMin)
    return fmt::format("too early: {} of {} values", fewest, stats::SequentialTest::kCountMin);
  if (!seen.bounded) return "nothing differs so far";
  if (seen.low <= 0 && seen.high >= 0) return "no difference shown so far";
  const bool better = (seen.difference > 0) == (rule.better == "higher");
  return fmt::format("{} than {}", better ? "better" : "worse", rule.baseline);
}

// How good an arm may be, by what is known of it.
double draw(const ExperimentRule& rule, const stats::Sample& sample, std::mt19937_64& random) {
  const auto n = static_cast<double>(sample.count);
  double value = 0;
  if (rule.metric == "conversion" && sample.sum >= 0 && sample.sum <= n && sample.sum_of_squares == sample.sum) {
    std::gamma_distribution<double> yes(1 + sample.sum, 1), no(1 + n - sample.sum, 1);
    const double a = yes(random), b = no(random);
    value = a / (a + b);
  } else {
    std::normal_distribution<double> around(sample.mean(), std::sqrt(sample.variance() / std::max(n, 1.0)));
    value = around(random);
  }
  return rule.better == "higher" ? value : -value;
}

}  // namespace

stats::Sample sample_of(const ExperimentRule& rule, const Arm& arm) {
  auto out = arm.labels;
  if (rule.metric == "conversion")
    out.count = std::max(out.count, static_cast<std::uint64_t>(std::max<std::int64_t>(arm.exposures, 0)));
  return out;
}

std::vector<ArmSeen> look(const ExperimentRule& rule, const std::vector<Arm>& arms) {
  const Arm none;
  const auto* base = &none;
  for (const auto& arm : arms)
    if (arm.variant == rule.baseline) base = &arm;
  const auto others = std::max<std::size_t>(arms.size(), 2) - 1;
  // Each comparison may err a little less often, so that all of them together err as seldom as is said.
  const double confidence = 1 - (1 - rule.confidence) / static_cast<double>(others);
  const auto known = sample_of(rule, *base);
  std::vector<ArmSeen> out;
  for (const auto& arm : arms) {
    const auto sample = sample_of(rule, arm);
    ArmSeen seen;
    seen.variant = arm.variant;
    seen.exposures = arm.exposures;
    seen.labels = static_cast<std::int64_t>(arm.labels.count);
    seen.mean = sample.mean();
    if (&arm == base) {
      seen.says = "baseline";
      out.insert(out.begin(), std::move(seen));
      continue;
    }
    stats::SequentialTest test(rule.effect, confidence);
    seen.against = test.look(known, sample);
    seen.against.p = std::min(1.0, seen.against.p * static_cast<double>(others));
    seen.says = in_words(rule, known, sample, seen.against);
    out.push_back(std::move(seen));
  }
  return out;
}

std::map<std::string, double> bandit_shares(const ExperimentRule& rule, const std::vector<Arm>& arms,
                                            std::uint64_t seed) {
  std::vector<double> wins(arms.size(), 0);
  std::vector<stats::Sample> samples;
  bool known = true;
  for (const auto& arm : arms) {
    samples.push_back(sample_of(rule, arm));
    known &= samples.back().count >= kKnownMin;
  }
  if (known) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < kDraws; ++i) {
      std::size_t best = 0;
      double most = 0;
      for (std::size_t at = 0; at < arms.size(); ++at)
        if (const double value = draw(rule, samples[at], random); at == 0 || value > most) best = at, most = value;
      wins[best] += 1.0 / kDraws;
    }
  } else {
    for (auto& win : wins) win = 1.0 / static_cast<double>(arms.size());
  }
  std::map<std::string, double> out;
  const double free = 100 - kExploredPercent * static_cast<double>(arms.size());
  for (std::size_t at = 0; at < arms.size(); ++at)
    out[arms[at].variant] = kExploredPercent + std::round(free * wins[at]);
  return out;
}

}  // namespace falaj::traffic
