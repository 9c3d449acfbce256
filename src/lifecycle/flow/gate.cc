// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/gate.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::flow {
namespace {

constexpr double kMeasuredAt = 1.959963984540054;  // standard errors of a 95 % interval, each way

// Words within a metric's name that tell which of its ends is the good one.
constexpr std::string_view kLower[] = {
    "bias",  "brier",   "bytes", "cer",    "cost",        "crps",    "deviance", "distance", "drift",
    "ece",   "eer",     "error", "errors", "fnr",         "fpr",     "kl",       "latency",  "mae",
    "mape",  "mce",     "mse",   "nll",    "perplexity",  "pinball", "psi",      "rmse",     "rmsle",
    "rmspe", "seconds", "smape", "wape",   "wasserstein", "wer"};
constexpr std::string_view kHigher[] = {
    "acc",    "accuracy", "ap",    "auc",   "auprc",       "auroc",    "bleu",        "coverage", "dice",      "f1",
    "hits",   "iou",      "kappa", "lift",  "map",         "mcc",      "mrr",         "ndcg",     "precision", "r2",
    "recall", "roc",      "rouge", "score", "sensitivity", "spearman", "specificity", "tnr",      "tpr"};

// "test_log-loss/origin" is: test, log, loss, origin.
std::vector<std::string> words_in(std::string_view metric) {
  std::vector<std::string> out{""};
  for (const char c : metric) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out.back() += static_cast<char>(upper ? c - 'A' + 'a' : c);
    else
      out.emplace_back();
  }
  return out;
}

// Of whatever: test_gain_logloss is how much smaller the loss is.
bool is_gain(std::string_view metric) {
  const auto words = words_in(metric);
  return std::find(words.begin(), words.end(), "gain") != words.end();
}

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

// Adds what is needed to what was said, and whether it holds.
void need(Finding& out, bool held, const std::string& what) {
  out.held &= held;
  out.said += fmt::format("{} {}{}", out.said.find("; ") == std::string::npos ? ";" : ",", held ? "" : "not ", what);
}

void compare_with(const ConditionBody& c, const std::string& metric, const Measured& ours, const VersionSeen* against,
                  Finding& out) {
  if (!against) return need(out, true, "compared, as there is nothing to compare with yet");
  const auto theirs = measured(against->metrics, metric);
  if (!theirs) return need(out, false, fmt::format("comparable: version {} has no {}", against->version, metric));
  const double sign = higher_is_better(c) ? 1 : -1;
  const double gain = sign * (ours.value - theirs->value);
  const double error = std::hypot(standard_error(ours), standard_error(*theirs));
  const double sure = gain - normal_quantile(c.confidence) * error;
  need(out, sure >= *c.better_by,
       fmt::format("better than version {} ({}) by {:g}: the gain is {:.6g}, at least {:.6g} with {:g} % confidence",
                   against->version, text_of(*theirs), *c.better_by, gain, sure, c.confidence * 100));
}

Finding compare_metric(const ConditionBody& c, const std::string& metric, const Measured& ours,
                       const VersionSeen* against) {
  Finding out{true, fmt::format("{} {}", metric, text_of(ours))};
  if (c.at_least) need(out, ours.low >= *c.at_least, fmt::format("at least {:g}", *c.at_least));
  if (c.at_most) need(out, ours.high <= *c.at_most, fmt::format("at most {:g}", *c.at_most));
  if (c.better_by) compare_with(c, metric, ours, against, out);
  return out;
}

// Every slice must hold what the condition says; the worst is told, and how far it is from the best.
Finding compare_slices(const ConditionBody& c, const VersionSeen& version, const VersionSeen* against) {
  const auto prefix = fmt::format("{}/{}/", c.metric, c.slices);
  const auto& metrics = metrics_for(c, version);
  const double sign = higher_is_better(c) ? 1 : -1;
  struct Slice {
    std::string name;
    Measured seen;
  };
  std::optional<Slice> best, worst;
  std::size_t many = 0, failed = 0;
  Finding first{true, ""};
  for (auto it = metrics.lower_bound(prefix); it != metrics.end() && it->first.starts_with(prefix); ++it) {
    const auto& name = it->first;
    if (name.ends_with("_low") || name.ends_with("_high")) continue;
    const auto seen = measured(metrics, name);
    if (!seen) continue;
    ++many;
    const auto finding =
        compare_metric(c, name, *seen, against && measured(against->metrics, name) ? against : nullptr);
    if (!finding.held && failed++ == 0) first = finding;
    if (!best || sign * seen->value > sign * best->seen.value) best = Slice{name, *seen};
    if (!worst || sign * seen->value < sign * worst->seen.value) worst = Slice{name, *seen};
  }
  if (many == 0) return {false, fmt::format("{}: there is no slice by {}", c.metric, c.slices)};
  Finding out{failed == 0, fmt::format("{} slices by {}, worst {} {}", many, c.slices,
                                       worst->name.substr(prefix.size()), text_of(worst->seen))};
  if (failed > 0) need(out, false, fmt::format("all of them: {} fail, such as {}", failed, first.said));
  if (!c.spread_at_most) return out;
  const double spread = std::abs(best->seen.value - worst->seen.value);
  const double most =
      spread + normal_quantile(c.confidence) * std::hypot(standard_error(best->seen), standard_error(worst->seen));
  need(out, most <= *c.spread_at_most,
       fmt::format("within {:g} of the best, {} {}: {:.6g} apart, at most {:.6g} with {:g} % confidence",
                   *c.spread_at_most, best->name.substr(prefix.size()), text_of(best->seen), spread, most,
                   c.confidence * 100));
  return out;
}

Finding judge_latency(const ConditionBody& c, const VersionSeen& version) {
  const auto seen = version.latency.find(c.endpoint);
  const auto requests = seen == version.latency.end() ? 0 : seen->second.requests;
  if (requests < c.requests_min)
    return {false, fmt::format("endpoint {} has answered {} requests by it, which is not the {} that tell its latency",
                               c.endpoint, requests, c.requests_min)};
  const bool held = seen->second.p99_us <= static_cast<double>(*c.p99_at_most_us);
  return {held, fmt::format("99 % of {} answers at {} within {:.0f} us; {}at most {} us", requests, c.endpoint,
                            seen->second.p99_us, held ? "" : "not ", *c.p99_at_most_us)};
}

Finding judge_drift(const ConditionBody& c, const VersionSeen& version) {
  const auto found = version.drift.find(c.monitor);
  if (found == version.drift.end() || found->second.column.empty())
    return {false, fmt::format("what monitor {} sees could not be compared with what the version was tested on: {}",
                               c.monitor, found == version.drift.end() ? "not looked at" : found->second.why_not)};
  const auto& seen = found->second;
  const double beyond = std::max(0.0, seen.psi - seen.noise);
  const bool held = beyond <= *c.psi_at_most;
  return {held,
          fmt::format("of {} rows that monitor {} saw, {} is farthest from what the version was tested on: {:.3g} "
                      "beyond the {:.3g} that chance brings; {}at most {:g}",
                      seen.rows, c.monitor, seen.column, beyond, seen.noise, held ? "" : "not ", *c.psi_at_most)};
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

std::optional<std::size_t> decided_by(const GateBody& gate) {
  for (std::size_t i = 0; i < gate.conditions.size(); ++i)
    if (!gate.conditions[i].metric.empty()) return i;
  return std::nullopt;
}

std::optional<bool> told_better(const ConditionBody& condition) {
  if (!condition.better.empty()) return condition.better == "higher";
  if (is_gain(condition.metric)) return true;
  const auto words = words_in(condition.metric);
  const auto is_among = [&](std::span<const std::string_view> names) {
    return std::any_of(words.begin(), words.end(), [&](const auto& word) {
      return std::find(names.begin(), names.end(), std::string_view(word)) != names.end();
    });
  };
  const bool loses = std::any_of(words.begin(), words.end(), [](const auto& w) { return w.ends_with("loss"); });
  if (loses || is_among(kLower)) return false;
  if (is_among(kHigher)) return true;
  if (condition.at_least.has_value() == condition.at_most.has_value()) return std::nullopt;
  return condition.at_least.has_value();
}

bool higher_is_better(const ConditionBody& condition) { return told_better(condition).value_or(true); }

Finding judge(const ConditionBody& c, const VersionSeen& version, const VersionSeen* against) {
  if (c.bytes_at_most) {
    const bool held = version.bytes <= *c.bytes_at_most;
    return {held, fmt::format("{} in all; {}at most {}", format_bytes(static_cast<std::uint64_t>(version.bytes)),
                              held ? "" : "not ", format_bytes(static_cast<std::uint64_t>(*c.bytes_at_most)))};
  }
  if (c.p99_at_most_us) return judge_latency(c, version);
  if (c.psi_at_most) return judge_drift(c, version);
  if (c.safe) return version.files.value_or(Finding{false, "its files were not looked at"});
  if (!c.slices.empty()) return compare_slices(c, version, against);
  const auto ours = measured(metrics_for(c, version), c.metric);
  if (!ours)
    return {false, fmt::format("{}: {} has no such metric", c.metric,
                               c.run.empty() ? "the run of the version" : "run " + c.run)};
  return compare_metric(c, c.metric, *ours, against);
}

Verdict judge(const GateBody& gate, const std::vector<VersionSeen>& versions, const VersionSeen* against) {
  const auto decides = decided_by(gate);
  const auto score = [&](const VersionSeen& version) {
    if (!decides) return 0.0;
    const auto& condition = gate.conditions[*decides];
    const auto value = measured(metrics_for(condition, version), condition.metric);
    return value ? (higher_is_better(condition) ? value->value : -value->value) : -INFINITY;
  };
  Verdict out;
  double best = 0;
  for (const auto& version : versions) {
    Verdict one{true, version.version, {}};
    for (const auto& condition : gate.conditions) {
      // One that is what it would be compared with is not worse than itself.
      auto finding = judge(condition, version, against && against->version != version.version ? against : nullptr);
      // A gain over an alias that nobody holds yet was not measured.
      if (!against && !gate.against.empty() && is_gain(condition.metric) &&
          !measured(metrics_for(condition, version), condition.metric))
        finding = {true, fmt::format("{}: there is nothing to compare with yet", condition.metric)};
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
