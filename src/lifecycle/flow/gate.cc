// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/gate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::flow {
namespace {

constexpr double kMeasuredAt = 1.959963984540054;  // standard errors of a 95 % interval, each way

// The z below which a normal variable is with chance p, by bisection of its distribution: exact to twelve digits.
double normal_quantile(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

double standard_error(const Measured& m) { return std::max(m.high - m.low, 0.0) / (2 * kMeasuredAt); }

const std::map<std::string, double>& metrics_for(const ConditionBody& condition, const VersionSeen& version) {
  if (condition.run.empty()) return version.metrics;
  static const std::map<std::string, double> kNone;
  const auto found = version.metrics_of.find(condition.run);
  return found == version.metrics_of.end() ? kNone : found->second;
}

std::string text_of(const Measured& m) {
  if (m.low == m.high) return fmt::format("{:.6g}", m.value);
  return fmt::format("{:.6g} ({:.6g} to {:.6g})", m.value, m.low, m.high);
}

Finding compare_metric(const ConditionBody& c, const Measured& ours, const VersionSeen* against) {
  Finding out{true, fmt::format("{} {}", c.metric, text_of(ours))};
  const auto need = [&](bool held, const std::string& what) {
    out.held &= held;
    out.said += fmt::format("{} {}{}", out.said.find("; ") == std::string::npos ? ";" : ",", held ? "" : "not ", what);
  };
  if (c.at_least) need(ours.low >= *c.at_least, fmt::format("at least {:g}", *c.at_least));
  if (c.at_most) need(ours.high <= *c.at_most, fmt::format("at most {:g}", *c.at_most));
  if (!c.better_by) return out;
  if (!against) {
    need(true, "compared, as there is nothing to compare with yet");
    return out;
  }
  const auto theirs = measured(against->metrics, c.metric);
  if (!theirs) {
    need(false, fmt::format("comparable: version {} has no {}", against->version, c.metric));
    return out;
  }
  const double sign = higher_is_better(c) ? 1 : -1;
  const double gain = sign * (ours.value - theirs->value);
  const double error = std::hypot(standard_error(ours), standard_error(*theirs));
  const double sure = gain - normal_quantile(c.confidence) * error;
  need(sure >= *c.better_by,
       fmt::format("better than version {} ({}) by {:g}: the gain is {:.6g}, at least {:.6g} with {:g} % confidence",
                   against->version, text_of(*theirs), *c.better_by, gain, sure, c.confidence * 100));
  return out;
}

}  // namespace

std::optional<Measured> measured(const std::map<std::string, double>& metrics, const std::string& name) {
  const auto value = metrics.find(name);
  if (value == metrics.end() || !std::isfinite(value->second)) return std::nullopt;
  const auto low = metrics.find(name + "_low"), high = metrics.find(name + "_high");
  if (low == metrics.end() || high == metrics.end() || !(low->second <= high->second))
    return Measured{value->second, value->second, value->second};
  return Measured{value->second, low->second, high->second};
}

bool higher_is_better(const ConditionBody& condition) {
  if (!condition.better.empty()) return condition.better == "higher";
  for (const auto* word : {"loss", "error", "mae", "mse", "rmse", "seconds", "bytes", "latency"})
    if (condition.metric.find(word) != std::string::npos) return false;
  return true;
}

Finding judge(const ConditionBody& c, const VersionSeen& version, const VersionSeen* against) {
  if (c.bytes_at_most) {
    const bool held = version.bytes <= *c.bytes_at_most;
    return {held, fmt::format("{} in all; {}at most {}", format_bytes(static_cast<std::uint64_t>(version.bytes)),
                              held ? "" : "not ", format_bytes(static_cast<std::uint64_t>(*c.bytes_at_most)))};
  }
  if (c.p99_at_most_us) {
    const auto seen = version.p99_us.find(c.endpoint);
    if (seen == version.p99_us.end())
      return {false, fmt::format("endpoint {} has not answered by it yet, so its latency is not known", c.endpoint)};
    const bool held = seen->second <= static_cast<double>(*c.p99_at_most_us);
    return {held, fmt::format("99 % of answers within {:.0f} us; {}at most {} us", seen->second, held ? "" : "not ",
                              *c.p99_at_most_us)};
  }
  const auto ours = measured(metrics_for(c, version), c.metric);
  if (!ours)
    return {false, fmt::format("{}: {} has no such metric", c.metric,
                               c.run.empty() ? "the run of the version" : "run " + c.run)};
  return compare_metric(c, *ours, against);
}

Verdict judge(const GateBody& gate, const std::vector<VersionSeen>& versions, const VersionSeen* against) {
  const auto decides = std::find_if(gate.conditions.begin(), gate.conditions.end(),
                                    [](const auto& condition) { return !condition.metric.empty(); });
  const auto score = [&](const VersionSeen& version) {
    if (decides == gate.conditions.end()) return 0.0;
    const auto value = measured(metrics_for(*decides, version), decides->metric);
    return value ? (higher_is_better(*decides) ? value->value : -value->value) : -INFINITY;
  };
  Verdict out;
  double best = 0;
  for (const auto& version : versions) {
    Verdict one{true, version.version, {}};
    for (const auto& condition : gate.conditions) {
      // One that is what it would be compared with is not worse than itself.
      const auto finding =
          judge(condition, version, against && against->version != version.version ? against : nullptr);
      one.passed &= finding.held;
      one.evidence.push_back(finding.said);
    }
    const bool first = out.version == 0;
    const bool better = one.passed && (!out.passed || score(version) > best);
    if (!first && !better) continue;
    best = score(version);
    out = std::move(one);
  }
  return out;
}

}  // namespace falaj::flow
