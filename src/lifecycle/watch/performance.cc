// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/performance.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "lifecycle/watch/judge.h"

namespace falaj::watch {
namespace {

constexpr const char *kMetric = "metric", *kAdwin = "adwin", *kPageHinkley = "page_hinkley", *kError = "error";
constexpr double kSlack = 0.05;  // of the deviation of errors: rises of twice that are found soonest
constexpr std::size_t kBeganMax = 64;
constexpr std::uint32_t kSteps = 500;  // that stand for the distribution of errors
constexpr double kRareError = 0.999;   // of numbers: what is larger counts as this

double deviation_of(const PerformanceReference& reference) {
  return std::sqrt(std::max(reference.outcomes.loss().variance(), 1e-12));
}

double largest_error(const PerformanceReference& reference) {
  if (reference.outcomes.task() != stats::Task::regression) return 1;
  return std::max(reference.outcomes.losses().quantile(kRareError), 1e-12);
}

double steps_of(const PerformanceReference& reference, std::int64_t rows, std::int64_t horizon) {
  return std::max(1.0, static_cast<double>(rows) * static_cast<double>(horizon) / std::ceil(reference.effects.loss));
}

// The distribution of errors as the detectors get them.
stats::Quantiles steps_like(const PerformanceReference& reference, double largest) {
  stats::Quantiles out(2 * kSteps);
  const auto& losses = reference.outcomes.losses();
  const double points = static_cast<double>(std::min<std::uint64_t>(losses.count(), kSteps));
  double below = 0, told = 0;
  for (const auto& [value, weight] : losses.sorted()) {
    below += static_cast<double>(weight);
    for (; told + 0.5 <= below / static_cast<double>(losses.count()) * points; ++told)
      out.add(std::min(1.0, value / largest));
  }
  return out;
}

const stats::Metric* find(const std::vector<stats::Metric>& in, std::string_view name) {
  const auto found = std::find_if(in.begin(), in.end(), [&](const stats::Metric& m) { return m.name == name; });
  return found == in.end() ? nullptr : &*found;
}

std::size_t deciding(stats::Task task) {
  return task == stats::Task::binary ? 3 : task == stats::Task::classes ? 2 : 1;
}

Finding tell_metric(const PerformanceReference& reference, const stats::Metric& was, const stats::Metric& is,
                    const OutcomeWindow& block) {
  Finding out;
  out.kind = "performance";
  out.measured = {
      is.value, is.low, is.high, was.value, was.low, was.high, static_cast<std::int64_t>(block.outcomes.count())};
  out.text = fmt::format(
      "{} is {:.4g} ({:.4g} to {:.4g}) over {} labelled predictions, and was {:.4g} ({:.4g} to {:.4g}) {}", is.name,
      is.value, is.low, is.high, block.outcomes.count(), was.value, was.low, was.high, reference.is);
  return out;
}

// In powers of ten as of all findings, by Hoeffding's bound: a detector does not tell with which chance it saw it. What
// it saw is beyond what chance may do, if only just.
double score_of(const ErrorStream::Rise& rise, double largest, double level) {
  constexpr double kJustBeyond = 0.01;
  const double gap = (rise.after - rise.before) / largest;
  return std::max(kJustBeyond, std::log10(level) + 2 * static_cast<double>(rise.rows) * gap * gap / std::log(10.0));
}

// A rise that one of the detectors saw begins a finding; it stands until windows are nearer to what was before.
void see_rise(PerformanceState& state, const char* test, const std::optional<ErrorStream::Rise>& rise,
              const OutcomeWindow& window, double largest, double level) {
  auto& tested = state.tests[fmt::format("{} {}", test, kError)];
  if (rise && !tested.found) {
    state.rises[test] = {rise->before, rise->after, 0};
    const auto windows = std::clamp<std::uint64_t>(rise->rows / std::max<std::uint64_t>(1, window.outcomes.count()) + 1,
                                                   1, state.began_us.size());
    Finding out;
    out.column = kError;
    out.test = test;
    out.kind = "performance";
    out.windows = static_cast<std::int64_t>(windows);
    out.since_us = state.began_us[state.began_us.size() - windows];
    out.score = score_of(*rise, largest, level);
    out.text =
        fmt::format("the mean error rose from {:.4g} to {:.4g} over {} labelled predictions, by {}", rise->before,
                    rise->after, rise->rows, test == kAdwin ? "adaptive windows" : "Page and Hinkley's test");
    tested.found = std::move(out);
  }
  if (!tested.found) return;
  auto& standing = state.rises[test];
  tested.found->window = window.number;
  const bool is_back = window.outcomes.loss().mean() < (standing.before + standing.after) / 2;
  standing.quiet = is_back ? standing.quiet + 1 : 0;
  if (standing.quiet < kQuietWindows) return;
  tested.found.reset();
  state.rises.erase(test);
}

}  // namespace

void OutcomeWindow::merge(const OutcomeWindow& later) {
  from_us = std::min(from_us, later.from_us);
  until_us = std::max(until_us, later.until_us);
  outcomes.merge(later.outcomes);
}

void remember(PerformanceState& state, OutcomeWindow window) {
  state.blocks.add(std::move(window), [](const OutcomeWindow&, std::uint64_t) {});
}

PerformanceReference make_performance_reference(const std::vector<stats::Outcomes>& windows, std::string is) {
  PerformanceReference out{std::move(is), stats::Outcomes(windows.empty() ? stats::Task::binary : windows[0].task()),
                           stats::effects_of(windows)};
  for (const auto& window : windows) out.outcomes.merge(window);
  return out;
}

ErrorStream::ErrorStream(const PerformanceReference& reference, std::int64_t rows, std::int64_t horizon, double level)
    : largest_(largest_error(reference)),
      together_(static_cast<std::uint64_t>(std::ceil(reference.effects.loss))),
      adwin_(level / 2 / std::max(1.0, steps_of(reference, rows, horizon) / static_cast<double>(stats::Adwin::kLooks))),
      page_hinkley_(
          kSlack * deviation_of(reference) / largest_,
          stats::page_hinkley_threshold(steps_like(reference, largest_), kSlack * deviation_of(reference) / largest_,
                                        steps_of(reference, rows, horizon), level / 2)) {}

ErrorStream::Rises ErrorStream::add(std::span<const double> losses) {
  Rises out;
  for (const double loss : losses) {
    sum_ += std::min(1.0, loss / largest_);
    if (++many_ < together_) continue;
    const double step = sum_ / static_cast<double>(many_);
    sum_ = 0;
    many_ = 0;
    if (const auto cut = adwin_.add(step); cut && cut->after > cut->before)
      out.adwin = Rise{cut->before * largest_, cut->after * largest_, cut->kept * together_};
    if (const auto rise = page_hinkley_.add(step))
      out.page_hinkley = Rise{rise->before * largest_, rise->after * largest_, rise->steps * together_};
  }
  return out;
}

Bytes ErrorStream::encode() const {
  ByteWriter out;
  adwin_.encode(out);
  page_hinkley_.encode(out);
  out.u64(many_);
  out.u64(std::bit_cast<std::uint64_t>(sum_));
  return out.take();
}

void ErrorStream::decode(BytesView bytes) {
  ByteReader in(bytes);
  adwin_.decode(in);
  page_hinkley_.decode(in);
  many_ = in.u64();
  sum_ = std::bit_cast<double>(in.u64());
  in.expect_end();
  if (many_ >= together_) many_ = 0, sum_ = 0;  // the reference says otherwise than it did
}

std::vector<MetricSeen> metrics_seen(const OutcomeWindow& window, const PerformanceReference* reference) {
  std::vector<MetricSeen> out;
  std::vector<stats::Metric> was;
  if (reference) was = stats::metrics(reference->outcomes, reference->effects);
  for (const auto& metric : stats::metrics(window.outcomes, reference ? reference->effects : stats::OutcomeEffects())) {
    MetricSeen one{std::string(metric.name), metric.value, metric.low, metric.high, {}, {}, {}};
    if (const auto* before = find(was, metric.name)) one.was = before->value;
    out.push_back(std::move(one));
  }
  return out;
}

LookedPerformance look(const PerformanceReference& reference, std::int64_t horizon, double level,
                       PerformanceState state, const OutcomeWindow& window, std::span<const double> losses) {
  LookedPerformance out;
  out.metrics = metrics_seen(window, &reference);
  const auto family = deciding(reference.outcomes.task());
  const double for_metrics = level / 4, for_reference = level / 4 / static_cast<double>(family);
  const auto was = stats::metrics(reference.outcomes, reference.effects);
  Judge judge(for_metrics, horizon, family, window.number, state.tests);
  state.blocks.add(window, [&](const OutcomeWindow& block, std::uint64_t windows) {
    const auto is = stats::metrics(block.outcomes, reference.effects);
    for (auto& told : out.metrics) {
      const auto *now = find(is, told.name), *before = find(was, told.name);
      if (!now || !before) continue;
      const auto p = stats::worse_p(told.name, reference.outcomes, block.outcomes, reference.effects, for_reference);
      if (!p) continue;
      const auto seen = judge.see(kMetric, told.name, {block.number, block.from_us, windows}, *p, true,
                                  [&] { return tell_metric(reference, *before, *now, block); });
      if (windows == 1) told.p = *p;
      if (seen.counts) told.chance = std::min(told.chance.value_or(1), seen.chance);
    }
  });
  const auto rows = std::max<std::int64_t>(1, static_cast<std::int64_t>(window.outcomes.count()));
  ErrorStream errors(reference, rows, horizon, level / 2);
  if (!state.errors.empty()) errors.decode(state.errors);
  const auto rises = errors.add(losses);
  state.errors = errors.encode();
  state.began_us.push_back(window.from_us);
  if (state.began_us.size() > kBeganMax) state.began_us.erase(state.began_us.begin());
  const double largest = largest_error(reference);
  see_rise(state, kAdwin, rises.adwin, window, largest, level / 4);
  see_rise(state, kPageHinkley, rises.page_hinkley, window, largest, level / 4);
  for (const auto& [key, test] : state.tests)
    if (test.found) out.findings.push_back(*test.found);
  out.state = std::move(state);
  return out;
}

}  // namespace falaj::watch
