// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "foundation/base/shape.h"
#include "foundation/stats/sequential.h"
#include "lifecycle/traffic/tallies.h"
#include "lifecycle/traffic/watched.h"

namespace falaj::traffic {

// How a new variant takes over, and what stops it.
struct CanaryRule {
  std::string variant;
  std::vector<double> steps = {5, 25, 50, 100};  // its share in percent, one after the other
  std::int64_t every_us = 600'000'000;           // at least so long at each
  std::int64_t requests_min = 100;               // and so many answered
  double failures_max = 0.01;                    // share of its requests
  double slower_max = 1.5;                       // its p99 against that of the others
  std::optional<double> metric_drop_max;         // how much lower the mean of its labels may be
  std::optional<double> shift_max;               // how far its predictions may be from those of the others, 0 to 1
};

// What was seen of the variant, or of all the others together, since the step began.
struct Observed {
  Grown counted{};
  bool broken = false;     // it could not be loaded, or crashed its server
  stats::Sample labels{};  // of what it predicted
  Sketches outputs{};      // what it predicted, since the rule holds
};

struct CanaryState {
  std::int64_t step = 0;  // place in CanaryRule::steps
  std::int64_t since_us = 0;
  double others_p99_us = 0;  // before the step began: the others may be asked too little for a new one; 0: not known
};

struct CanaryDecision {
  enum class What { wait, advance, promote, roll_back };
  What what = What::wait;
  std::string why;
};

// The p99 of the others that a canary is compared with; 0: not known.
double others_p99_us(const CanaryRule& rule, const CanaryState& state, const Observed& others);

// Pure. What to do with a canary now. A difference counts only when it is more than chance: failures by three standard
// deviations, and not when the others fail as often; latency by more than a millisecond, and by more requests than
// chance explains; labels by a test that may be looked at any time, predictions by what samples of one distribution
// differ by once in a million looks.
CanaryDecision decide(const CanaryRule& rule, const CanaryState& state, std::int64_t now_us, const Observed& canary,
                      const Observed& others);

}  // namespace falaj::traffic

template <>
struct falaj::Shape<falaj::traffic::CanaryRule> {
  using T = traffic::CanaryRule;
  static constexpr std::string_view name = "CanaryRule";
  static Fields fields() {
    return {
        field("variant", &T::variant, "Which variant takes over, step by step.").required().length(1, 63),
        field("steps", &T::steps, "Its share in percent at each step, growing to 100.").length(1, 20),
        field("every", &T::every_us, "At least so long at each step.").duration().range(1'000'000, 2'592'000'000'000),
        field("requestsMin", &T::requests_min, "And so many requests answered by it.").range(1, 1'000'000'000),
        field("failuresMax", &T::failures_max,
              "Share of its requests that may fail before it is rolled back, where the others fail less.")
            .range(0, 1),
        field("slowerMax", &T::slower_max, "Its p99 against that of the others before it is rolled back.")
            .range(1, 1000),
        field("metricDropMax", &T::metric_drop_max,
              "How much lower than that of the others the mean of its labels may be before it is rolled back; absent: "
              "labels are not looked at.")
            .range(0, 1'000'000'000),
        field("shiftMax", &T::shift_max,
              "How far the distribution of an output may be from that of the others before it is rolled back: the "
              "largest difference of shares below any value, or of any text, 0 to 1; absent: it is not looked at.")
            .range(0, 1)};
  }
};
