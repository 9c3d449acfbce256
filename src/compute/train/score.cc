// SPDX-License-Identifier: Apache-2.0
#include "compute/train/score.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "foundation/base/error.h"

namespace falaj::train {
namespace {

constexpr double kTwoSided95 = 1.959963984540054;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::uint32_t> order_of(std::span<const float> values) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return values[a] < values[b]; });
  return order;
}

// Ranks from 1; equal values share the mean of theirs.
std::vector<double> midranks(std::span<const float> values) {
  const auto order = order_of(values);
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t j = i;
    while (j < order.size() && values[order[j]] == values[order[i]]) ++j;
    const double rank = 0.5 * static_cast<double>(i + 1 + j);
    for (std::size_t k = i; k < j; ++k) ranks[order[k]] = rank;
    i = j;
  }
  return ranks;
}

template <class F>
Score mean_of(std::size_t n, F each) {
  if (n == 0) return {kNan, kNan, kNan};
  double mean = 0, squares = 0;  // Welford: losses of a million rows lose nothing to cancellation
  for (std::size_t i = 0; i < n; ++i) {
    const double v = each(i), delta = v - mean;
    mean += delta / static_cast<double>(i + 1);
    squares += delta * (v - mean);
  }
  const double error =
      n > 1 ? kTwoSided95 * std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n)) : 0;
  return {mean, mean - error, mean + error};
}

double variance_of(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double sum = 0;
  for (const double v : values) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(values.size() - 1);
}

// Walks thresholds from the highest prediction down and tells `each` the true and false positives above it.
template <class F>
void walk_down(std::span<const float> predictions, std::span<const float> labels, F each) {
  const auto order = order_of(predictions);
  double hits = 0, misses = 0;
  for (std::size_t i = order.size(); i > 0;) {
    const float at = predictions[order[i - 1]];
    for (; i > 0 && predictions[order[i - 1]] == at; --i) (labels[order[i - 1]] > 0.5F ? hits : misses) += 1;
    each(hits, misses);
  }
}

Curve thinned(Curve curve, std::size_t points) {
  if (curve.x.size() <= points) return curve;
  Curve out;
  for (std::size_t i = 0; i < points; ++i) {
    const auto at = i * (curve.x.size() - 1) / (points - 1);
    out.x.push_back(curve.x[at]);
    out.y.push_back(curve.y[at]);
  }
  return out;
}

double gain(std::span<const float> labels, std::span<const std::uint32_t> order) {
  double sum = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(10, order.size()); ++i)
    sum += (std::exp2(labels[order[i]]) - 1) / std::log2(static_cast<double>(i + 2));
  return sum;
}

// DeLong's parts of an AUC: for each positive the share of negatives below it, and for each negative that of positives
// above it, in the order of rows.
struct Placements {
  std::vector<double> above, below;
};
Placements placements(std::span<const float> predictions, std::span<const float> labels) {
  CHECK(predictions.size() == labels.size(), "a label a prediction");
  std::vector<float> of_class[2];
  for (std::size_t i = 0; i < labels.size(); ++i) of_class[labels[i] > 0.5F].push_back(predictions[i]);
  const auto& [negative, positive] = of_class;
  const auto n = static_cast<double>(negative.size()), p = static_cast<double>(positive.size());
  std::vector<float> all = positive;
  all.insert(all.end(), negative.begin(), negative.end());
  const auto ranks = midranks(all), of_positive = midranks(positive), of_negative = midranks(negative);
  Placements out{std::vector<double>(positive.size()), std::vector<double>(negative.size())};
  for (std::size_t i = 0; i < positive.size(); ++i) out.above[i] = (ranks[i] - of_positive[i]) / n;
  for (std::size_t i = 0; i < negative.size(); ++i)
    out.below[i] = 1 - (ranks[positive.size() + i] - of_negative[i]) / p;
  return out;
}

// Of an AUC, or of the difference of two: the mean of `above`.
Score of_placements(const Placements& parts) {
  if (parts.above.empty() || parts.below.empty()) return {kNan, kNan, kNan};
  const auto p = static_cast<double>(parts.above.size()), n = static_cast<double>(parts.below.size());
  const double mean = std::accumulate(parts.above.begin(), parts.above.end(), 0.0) / p;
  const double error = kTwoSided95 * std::sqrt(variance_of(parts.above) / p + variance_of(parts.below) / n);
  return {mean, mean - error, mean + error};
}

constexpr double kLeast = 1e-7;  // a float can come no closer to 1
double loss_of(std::span<const float> predictions, std::span<const float> labels, std::size_t classes, std::size_t i) {
  const double said = classes == 1 ? (labels[i] > 0.5F ? predictions[i] : 1.0 - predictions[i])
                                   : predictions[i * classes + static_cast<std::size_t>(labels[i])];
  return -std::log(std::clamp(said, kLeast, 1.0));
}

}  // namespace

Score roc_auc(std::span<const float> predictions, std::span<const float> labels) {
  auto out = of_placements(placements(predictions, labels));
  if (std::isfinite(out.value)) out = {out.value, std::max(0.0, out.low), std::min(1.0, out.high)};
  return out;
}

Score log_loss(std::span<const float> predictions, std::span<const float> labels, std::size_t classes) {
  return mean_of(labels.size(), [&](std::size_t i) { return loss_of(predictions, labels, classes, i); });
}

Score accuracy(std::span<const float> predictions, std::span<const float> labels, std::size_t classes) {
  return mean_of(labels.size(), [&](std::size_t i) {
    if (classes == 1) return (predictions[i] >= 0.5F) == (labels[i] > 0.5F) ? 1.0 : 0.0;
    const auto row = predictions.subspan(i * classes, classes);
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    return best == static_cast<std::ptrdiff_t>(labels[i]) ? 1.0 : 0.0;
  });
}

Score mean_absolute_error(std::span<const float> predictions, std::span<const float> labels) {
  return mean_of(labels.size(), [&](std::size_t i) { return std::abs(double{predictions[i]} - labels[i]); });
}

Score root_mean_squared_error(std::span<const float> predictions, std::span<const float> labels) {
  const auto squared = mean_of(labels.size(), [&](std::size_t i) {
    const double off = double{predictions[i]} - labels[i];
    return off * off;
  });
  return {std::sqrt(squared.value), std::sqrt(std::max(0.0, squared.low)), std::sqrt(squared.high)};
}

namespace {

// Of each group that has something to find.
std::vector<double> each_ndcg(std::span<const float> predictions, std::span<const float> labels,
                              std::span<const float> groups) {
  CHECK(groups.size() == labels.size(), "a group a row");
  std::vector<double> each;
  for (std::size_t begin = 0; begin < labels.size();) {
    std::size_t end = begin;
    while (end < labels.size() && groups[end] == groups[begin]) ++end;
    std::vector<std::uint32_t> order(end - begin);
    std::iota(order.begin(), order.end(), static_cast<std::uint32_t>(begin));
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return labels[a] > labels[b]; });
    const double ideal = gain(labels, order);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return predictions[a] > predictions[b]; });
    if (ideal > 0) each.push_back(gain(labels, order) / ideal);
    begin = end;
  }
  return each;
}

}  // namespace

Score ndcg(std::span<const float> predictions, std::span<const float> labels, std::span<const float> groups) {
  const auto each = each_ndcg(predictions, labels, groups);
  return mean_of(each.size(), [&](std::size_t i) { return each[i]; });
}

Curve roc_curve(std::span<const float> predictions, std::span<const float> labels, std::size_t points) {
  const auto positives =
      static_cast<double>(std::count_if(labels.begin(), labels.end(), [](float l) { return l > 0.5F; }));
  const double negatives = static_cast<double>(labels.size()) - positives;
  Curve curve{{0}, {0}};
  walk_down(predictions, labels, [&](double hits, double misses) {
    curve.x.push_back(negatives > 0 ? misses / negatives : 0);
    curve.y.push_back(positives > 0 ? hits / positives : 0);
  });
  return thinned(std::move(curve), points);
}

Curve precision_recall_curve(std::span<const float> predictions, std::span<const float> labels, std::size_t points) {
  const auto positives =
      static_cast<double>(std::count_if(labels.begin(), labels.end(), [](float l) { return l > 0.5F; }));
  Curve curve;
  walk_down(predictions, labels, [&](double hits, double misses) {
    curve.x.push_back(positives > 0 ? hits / positives : 0);
    curve.y.push_back(hits / (hits + misses));
  });
  return thinned(std::move(curve), points);
}

Curve calibration_curve(std::span<const float> predictions, std::span<const float> labels, std::size_t bins) {
  const auto order = order_of(predictions);
  Curve curve;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    const auto begin = bin * order.size() / bins, end = (bin + 1) * order.size() / bins;
    if (begin == end) continue;
    double said = 0, was = 0;
    for (std::size_t i = begin; i < end; ++i) {
      said += predictions[order[i]];
      was += labels[order[i]] > 0.5F ? 1 : 0;
    }
    curve.x.push_back(said / static_cast<double>(end - begin));
    curve.y.push_back(was / static_cast<double>(end - begin));
  }
  return curve;
}

std::vector<Named> scores(Objective objective, std::span<const float> predictions, std::span<const float> labels,
                          std::size_t classes, std::span<const float> groups) {
  switch (objective) {
    case Objective::binary:
      return {{"auc", roc_auc(predictions, labels)},
              {"logloss", log_loss(predictions, labels, 1)},
              {"accuracy", accuracy(predictions, labels, 1)}};
    case Objective::multiclass:
      return {{"logloss", log_loss(predictions, labels, classes)},
              {"accuracy", accuracy(predictions, labels, classes)}};
    case Objective::regression:
      return {{"rmse", root_mean_squared_error(predictions, labels)},
              {"mae", mean_absolute_error(predictions, labels)}};
    case Objective::ranking:
      return {{"ndcg", ndcg(predictions, labels, groups)}};
  }
  return {};
}

// The two models saw the same rows, so what makes a row hard for both cancels out.
std::vector<Named> gains(Objective objective, std::span<const float> ours, std::span<const float> theirs,
                         std::span<const float> labels, std::size_t classes, std::span<const float> groups) {
  const auto losses = [&](std::size_t of) {
    return mean_of(labels.size(),
                   [&](std::size_t i) { return loss_of(theirs, labels, of, i) - loss_of(ours, labels, of, i); });
  };
  switch (objective) {
    case Objective::binary: {
      auto parts = placements(ours, labels);
      const auto other = placements(theirs, labels);
      for (std::size_t i = 0; i < parts.above.size(); ++i) parts.above[i] -= other.above[i];
      for (std::size_t i = 0; i < parts.below.size(); ++i) parts.below[i] -= other.below[i];
      return {{"auc", of_placements(parts)}, {"logloss", losses(1)}};
    }
    case Objective::multiclass:
      return {{"logloss", losses(classes)}};
    case Objective::regression:
      return {{"mae", mean_of(labels.size(), [&](std::size_t i) {
                 return std::abs(double{theirs[i]} - labels[i]) - std::abs(double{ours[i]} - labels[i]);
               })}};
    case Objective::ranking: {
      const auto mine = each_ndcg(ours, labels, groups), other = each_ndcg(theirs, labels, groups);
      return {{"ndcg", mean_of(mine.size(), [&](std::size_t i) { return mine[i] - other[i]; })}};
    }
  }
  return {};
}

// The mean square over bins less what chance adds to it (Kumar, Liang and Ma, "Verified uncertainty calibration",
// 2019), so that a model that is right has an error of about 0 however few rows there are.
Score calibration_error(std::span<const float> predictions, std::span<const float> labels, std::size_t bins) {
  const auto curve = calibration_curve(predictions, labels, bins);
  const auto many = static_cast<double>(curve.x.size());
  if (curve.x.empty() || labels.size() < 2 * bins) return {kNan, kNan, kNan};
  const double rows = static_cast<double>(labels.size()) / many;
  double squares = 0, variance = 0;
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    const double off = curve.y[i] - curve.x[i], noise = curve.y[i] * (1 - curve.y[i]) / (rows - 1);
    squares += off * off - noise;
    variance += 2 * noise * noise + 4 * noise * off * off;
  }
  const auto root = [](double square) { return std::sqrt(std::max(0.0, square)); };
  const double mean = squares / many, error = kTwoSided95 * std::sqrt(variance) / many;
  return {root(mean), root(mean - error), root(mean + error)};
}

bool higher_is_better(std::string_view metric) { return metric == "auc" || metric == "accuracy" || metric == "ndcg"; }

}  // namespace falaj::train
