// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"
#include "foundation/stats/sequential.h"

namespace falaj::traffic {

inline constexpr std::string_view kExperimentMetrics[] = {"conversion", "mean"};
inline constexpr std::string_view kBetter[] = {"higher", "lower"};

// What the variants of an endpoint are compared by.
struct ExperimentRule {
  std::string metric = "conversion";  // of all answered: the mean with 0 for those without a label; mean: of the labels
  std::string baseline;               // the variant that the others are compared with
  std::string better = "higher";
  double effect = 0.02;  // the difference that is worth finding
  double confidence = 0.95;
  bool bandit = false;  // shares follow what is known
};

// What is known of a variant since the experiment began.
struct Arm {
  std::string variant;
  std::int64_t exposures = 0;  // rows that it answered
  stats::Sample labels;
};
stats::Sample sample_of(const ExperimentRule& rule, const Arm& arm);

struct ArmSeen {
  std::string variant;
  std::int64_t exposures = 0, labels = 0;
  double mean = 0;
  stats::SequentialTest::Seen against;  // the baseline; of the baseline itself nothing
  std::string says;                     // in words
};

// Pure. May be looked at any time: with any number of looks, and of variants, the chance that one is ever called better
// or worse that is not is at most 1 - confidence. The baseline is first.
std::vector<ArmSeen> look(const ExperimentRule& rule, const std::vector<Arm>& arms);

inline constexpr double kExploredPercent = 1;  // every arm gets that much, whatever is known

// Pure. Shares in whole percent: how likely each arm is the best (Thompson sampling, with draws from `seed`), and a
// little for each. Equal while there is an arm of which next to nothing is known.
std::map<std::string, double> bandit_shares(const ExperimentRule& rule, const std::vector<Arm>& arms,
                                            std::uint64_t seed);

}  // namespace falaj::traffic

template <>
struct falaj::Shape<falaj::traffic::ExperimentRule> {
  using T = traffic::ExperimentRule;
  static constexpr std::string_view name = "ExperimentRule";
  static Fields fields() {
    return {field("metric", &T::metric,
                  "conversion: the sum of the labels over all that was answered; mean: over those with a label.")
                .one_of(traffic::kExperimentMetrics),
            field("baseline", &T::baseline, "The variant that the others are compared with.").required().length(1, 63),
            field("better", &T::better, "Whether higher or lower is better.").one_of(traffic::kBetter),
            field("effect", &T::effect, "The difference that is worth finding: how soon, never whether it is right."),
            field("confidence", &T::confidence, "How sure what is said must be.").range(0, 1),
            field("bandit", &T::bandit, "Shares follow what is known, at most once a minute.")};
  }
};
