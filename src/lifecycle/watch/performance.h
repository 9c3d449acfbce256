// SPDX-License-Identifier: Apache-2.0
#pragma once

// What windows of labelled predictions say of a model, as a function of values: no clock, no store.
//
// Each metric is compared with what it was (test `metric`), over windows one by one and the newest 2, 4, 8 ...
// together; beside it two detectors look for a rise in the stream of errors itself: adaptive windows (`adwin`) and Page
// and Hinkley's (`page_hinkley`). Half of the level is for the metrics, a quarter for each detector.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "foundation/stats/change.h"
#include "foundation/stats/outcomes.h"
#include "lifecycle/watch/look.h"

namespace falaj::watch {

// Labelled predictions in the order of time; or several windows of them together.
struct OutcomeWindow {
  std::int64_t number = 0;  // of its stream, from 0; of several, the first
  std::int64_t from_us = 0, until_us = 0;
  stats::Outcomes outcomes;
  void merge(const OutcomeWindow& later);
};

// Of windows in the order of time.
PerformanceReference make_performance_reference(const std::vector<stats::Outcomes>& windows, std::string is);

struct MetricSeen {
  std::string name;
  double value = 0, low = 0, high = 0;
  std::optional<double> was;     // absent: nothing to compare with yet
  std::optional<double> p;       // that it is as bad by chance, in this window alone; absent: it decides nothing
  std::optional<double> chance;  // the same of the blocks that end with it, with all that was looked at
};

// A rise of the error, while it stands.
struct RiseSeen {
  double before = 0, after = 0;
  std::int64_t quiet = 0;  // windows in a row that are nearer to what was before
};
// Looks for rises in a stream of errors. What it is made with follows from the reference.
class ErrorStream {
 public:
  ErrorStream(const PerformanceReference& reference, std::int64_t rows, std::int64_t horizon, double level);

  struct Rise {
    double before = 0, after = 0;
    std::uint64_t rows = 0;  // since it began
  };
  struct Rises {
    std::optional<Rise> adwin, page_hinkley;
  };
  Rises add(std::span<const double> losses);

  Bytes encode() const;
  void decode(BytesView bytes);  // throws corrupt

 private:
  const double largest_;          // errors lie between 0 and this
  const std::uint64_t together_;  // neighbours are alike: so many are one step
  stats::Adwin adwin_;
  stats::PageHinkley page_hinkley_;
  double sum_ = 0;  // of a step that is not whole
  std::uint64_t many_ = 0;
};

// Requires of who keeps it: all is kept but `blocks`, which follows from the newest windows.
struct PerformanceState {
  stats::Blocks<OutcomeWindow> blocks;
  std::map<std::string, TestState> tests;
  std::map<std::string, RiseSeen> rises;  // by test
  std::vector<std::int64_t> began_us;     // of the newest windows, oldest first
  Bytes errors;                           // of ErrorStream
};
void remember(PerformanceState& state, OutcomeWindow window);

struct LookedPerformance {
  PerformanceState state;
  std::vector<Finding> findings;  // all that stand
  std::vector<MetricSeen> metrics;
};
// `losses`: of the window's predictions, in the order of time.
// Ensures: while nothing changes, the chance that a finding ever begins within `horizon` windows is at most `level`.
LookedPerformance look(const PerformanceReference& reference, std::int64_t horizon, double level,
                       PerformanceState state, const OutcomeWindow& window, std::span<const double> losses);

std::vector<MetricSeen> metrics_seen(const OutcomeWindow& window, const PerformanceReference* reference);

}  // namespace falaj::watch

namespace falaj {

template <>
struct Shape<watch::MetricSeen> {
  using T = watch::MetricSeen;
  static constexpr std::string_view name = "MetricSeen";
  static Fields fields() {
    return {
        field("name", &T::name, "accuracy, auc, brier, log_loss; mae, rmse."),
        field("value", &T::value, "Its value."),
        field("low", &T::low, "Its lower 95 % bound."),
        field("high", &T::high, "And the upper one."),
        field("was", &T::was, "Of the reference; absent: there is none yet."),
        field("p", &T::p,
              "Chance that it is as bad in this window, were the model as good as before; absent: shown only."),
        field(
            "chance", &T::chance,
            "The same of blocks of windows that end with it, with all that was looked at; a finding begins at a share "
            "of the level.")};
  }
};
template <>
struct Shape<watch::RiseSeen> {
  using T = watch::RiseSeen;
  static constexpr std::string_view name = "MonitorRise";
  static Fields fields() {
    return {field("before", &T::before, ""), field("after", &T::after, ""), field("quiet", &T::quiet, "")};
  }
};

}  // namespace falaj
