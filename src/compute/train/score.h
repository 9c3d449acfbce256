// SPDX-License-Identifier: Apache-2.0
#pragma once

// How good predictions are, and how sure that is. Pure.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/loader/prepare.h"

namespace falaj::train {

using loader::Objective;

// A metric with its 95 % interval.
struct Score {
  double value = 0, low = 0, high = 0;
};

// The chance that a positive is ranked above a negative, ties counted half; the interval is DeLong's. NaN unless both
// classes are there. `labels` are 0 or 1.
Score roc_auc(std::span<const float> predictions, std::span<const float> labels);

// Means over rows, with the interval of a mean. `classes` predictions a row; 1: the probability of class 1.
Score log_loss(std::span<const float> predictions, std::span<const float> labels, std::size_t classes);
Score accuracy(std::span<const float> predictions, std::span<const float> labels, std::size_t classes);
Score mean_absolute_error(std::span<const float> predictions, std::span<const float> labels);
Score root_mean_squared_error(std::span<const float> predictions, std::span<const float> labels);
// Of the first ten of each group, which is a run of equal numbers in `groups`.
Score ndcg(std::span<const float> predictions, std::span<const float> labels, std::span<const float> groups);

struct Curve {
  std::vector<double> x, y;
};
// At most `points` of them, ends included.
Curve roc_curve(std::span<const float> predictions, std::span<const float> labels, std::size_t points = 200);
Curve precision_recall_curve(std::span<const float> predictions, std::span<const float> labels,
                             std::size_t points = 200);
// Share of positives (y) where the model said x, in bins of equally many rows.
Curve calibration_curve(std::span<const float> predictions, std::span<const float> labels, std::size_t bins = 10);

// How far what the model says is from what happens: the root of the mean square over bins of equally many rows, less
// what chance adds. NaN with fewer than two rows a bin.
Score calibration_error(std::span<const float> predictions, std::span<const float> labels, std::size_t bins = 10);

struct Named {
  std::string name;
  Score score;
};
// Everything that is said of predictions; the first is what decides unless another is asked for.
std::vector<Named> scores(Objective objective, std::span<const float> predictions, std::span<const float> labels,
                          std::size_t classes, std::span<const float> groups = {});
// How much better `ours` are than `theirs` on the same rows, positive where they are, with the interval of the
// difference: much narrower than those of the two.
std::vector<Named> gains(Objective objective, std::span<const float> ours, std::span<const float> theirs,
                         std::span<const float> labels, std::size_t classes, std::span<const float> groups = {});
bool higher_is_better(std::string_view metric);

}  // namespace falaj::train
