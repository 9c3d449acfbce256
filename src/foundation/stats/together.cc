// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/together.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "foundation/base/error.h"
#include "foundation/stats/drift.h"

namespace falaj::stats {

namespace {

constexpr std::size_t kProductsMax = 512;  // more columns than that has are tested by themselves and their squares

// Both samples in one table, each column with mean 0 and deviation 1 over both.
class Table {
 public:
  Table(Rows a, Rows b) : width(a.width), count_a(a.count()), count_b(b.count()) {
    CHECK(a.width == b.width && a.width > 0, "both have the same columns");
    values.reserve(a.values.size() + b.values.size());
    values.insert(values.end(), a.values.begin(), a.values.end());
    values.insert(values.end(), b.values.begin(), b.values.end());
    for (std::size_t column = 0; column < width; ++column) standardise(column);
  }
  std::span<const double> row(std::size_t at) const { return std::span(values).subspan(at * width, width); }
  std::size_t count() const { return count_a + count_b; }

  std::size_t width, count_a, count_b;
  std::vector<double> values;

 private:
  void standardise(std::size_t column) {
    double sum = 0, squares = 0, seen = 0;
    for (std::size_t at = column; at < values.size(); at += width) {
      if (!std::isfinite(values[at])) continue;
      ++seen;
      const double off = values[at] - sum;  // the mean so far
      sum += off / seen;
      squares += off * (values[at] - sum);
    }
    const double deviation = seen < 2 ? 0 : std::sqrt(squares / (seen - 1));
    for (std::size_t at = column; at < values.size(); at += width)
      values[at] = std::isfinite(values[at]) && deviation > 0 ? (values[at] - sum) / deviation : 0;
  }
};

// A few large values must not decide alone.
double tame(double value) { return std::clamp(value, -4.0, 4.0); }

void expand(std::span<const double> row, bool products, std::vector<double>& out) {
  out.clear();
  out.push_back(1);
  for (const double value : row) {
    out.push_back(tame(value));
    out.push_back(tame(value * value - 1));
  }
  if (!products) return;
  for (std::size_t i = 0; i < row.size(); ++i)
    for (std::size_t j = i + 1; j < row.size(); ++j) out.push_back(tame(row[i] * row[j]));
}

std::vector<std::size_t> shuffled(std::size_t count, std::mt19937_64& random) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

// Mann and Whitney's test of scores, ties counting half.
TwoSample rank_test(std::vector<std::pair<double, bool>>& scored) {
  std::sort(scored.begin(), scored.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
  double ranks = 0, ones = 0, ties = 0;
  const double all = static_cast<double>(scored.size());
  for (std::size_t i = 0; i < scored.size();) {
    std::size_t end = i;
    while (end < scored.size() && scored[end].first == scored[i].first) ++end;
    const double same = static_cast<double>(end - i), rank = (static_cast<double>(i + end) + 1) / 2;
    ties += same * (same * same - 1);
    for (; i < end; ++i) {
      if (!scored[i].second) continue;
      ++ones;
      ranks += rank;
    }
  }
  const double zeros = all - ones;
  if (ones < 1 || zeros < 1) return {0.5, 1};
  const double u = ranks - ones * (ones + 1) / 2;
  const double variance = ones * zeros / 12 * (all + 1 - ties / (all * (all - 1)));
  TwoSample out;
  out.statistic = u / (ones * zeros);
  // Only a classifier that tells them apart the right way round speaks for a difference.
  const double z = variance > 0 ? (u - ones * zeros / 2) / std::sqrt(variance) : 0;
  out.p = z > 0 ? normal_p(z) / 2 : 1 - normal_p(z) / 2;
  return out;
}

double kernel(std::span<const double> x, std::span<const double> y, double scale) {
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  return std::exp(-squares * scale);
}

}  // namespace

TwoSample classifier_test(Rows a, Rows b, std::uint64_t seed) {
  constexpr std::size_t kRowsMin = 20;
  if (a.count() < kRowsMin || b.count() < kRowsMin) return {0.5, 1};
  const Table table(a, b);
  const bool products = table.width * (table.width - 1) / 2 <= kProductsMax;
  std::mt19937_64 random(seed);
  const auto order = shuffled(table.count(), random);
  const std::size_t half = order.size() / 2;
  // Both samples weigh the same, whatever their counts.
  const double weight_a = 0.5 / static_cast<double>(table.count_a), weight_b = 0.5 / static_cast<double>(table.count_b);
  std::vector<double> features, weights, slopes;
  expand(table.row(0), products, features);
  weights.assign(features.size(), 0);
  slopes.assign(features.size(), 1e-8);
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < half; ++i) {
      const bool is_b = order[i] >= table.count_a;
      expand(table.row(order[i]), products, features);
      const double sum = std::inner_product(features.begin(), features.end(), weights.begin(), 0.0);
      const double weight = (is_b ? weight_b : weight_a) * static_cast<double>(table.count());
      const double error = weight * (1 / (1 + std::exp(-sum)) - (is_b ? 1 : 0));
      for (std::size_t k = 0; k < features.size(); ++k) {  // AdaGrad: no rate to be chosen for each kind of data
        const double slope = error * features[k];
        slopes[k] += slope * slope;
        weights[k] -= 0.1 * slope / std::sqrt(slopes[k]);
      }
    }
  }
  std::vector<std::pair<double, bool>> scored;
  for (std::size_t i = half; i < order.size(); ++i) {
    expand(table.row(order[i]), products, features);
    scored.emplace_back(std::inner_product(features.begin(), features.end(), weights.begin(), 0.0),
                        order[i] >= table.count_a);
  }
  return rank_test(scored);
}

TwoSample kernel_test(Rows a, Rows b, std::uint64_t seed) {
  const std::size_t count = std::min(a.count(), b.count());
  const auto block = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  const std::size_t blocks = block < 4 ? 0 : count / block;
  if (blocks < 4) return {0, 1};
  const Table table(a, b);
  std::mt19937_64 random(seed);
  const auto order_a = shuffled(table.count_a, random), order_b = shuffled(table.count_b, random);
  const auto from_a = [&](std::size_t i) { return table.row(order_a[i]); };
  const auto from_b = [&](std::size_t i) { return table.row(table.count_a + order_b[i]); };

  std::vector<double> distances;
  for (std::size_t i = 0; i + 1 < std::min<std::size_t>(count, 1000); ++i) {
    double squares = 0;
    const auto x = from_a(i), y = from_b(i + 1);
    for (std::size_t k = 0; k < x.size(); ++k) squares += (x[k] - y[k]) * (x[k] - y[k]);
    distances.push_back(squares);
  }
  std::nth_element(distances.begin(), distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2),
                   distances.end());
  const double median = distances[distances.size() / 2], scale = median > 0 ? 1 / median : 1;

  double sum = 0, squares = 0;
  for (std::size_t at = 0; at < blocks; ++at) {
    double one = 0;
    for (std::size_t i = 0; i < block; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const auto xi = from_a(at * block + i), xj = from_a(at * block + j);
        const auto yi = from_b(at * block + i), yj = from_b(at * block + j);
        one += kernel(xi, xj, scale) + kernel(yi, yj, scale) - kernel(xi, yj, scale) - kernel(xj, yi, scale);
      }
    }
    one /= static_cast<double>(block * (block - 1)) / 2;
    sum += one;
    squares += one * one;
  }
  const double n = static_cast<double>(blocks), mean = sum / n, variance = (squares - n * mean * mean) / (n - 1);
  if (!(variance > 0)) return {mean, 1};
  const double t = mean / std::sqrt(variance / n), both = student_p(t, n - 1);
  return {mean, t > 0 ? both / 2 : 1 - both / 2};
}

}  // namespace falaj::stats
