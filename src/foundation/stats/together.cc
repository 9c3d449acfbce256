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

// Both samples in one table, each column with mean 0 and deviation 1 over both.
class Table {
 public:
  Table(Rows a, Rows b) : width(a.width), count_a(a.count()), count_b(b.count()) {
    CHECK(a.width == b.width && a.width > 0, "both have the same columns");
    values.reserve(a.values.size() + b.values.size());
    values.insert(values.end(), a.values.begin(), a.values.end());
    values.insert(values.end(), b.values.begin(), b.values.end());
    standardise();
  }
  std::span<const double> row(std::size_t at) const { return std::span(values).subspan(at * width, width); }
  std::size_t count() const { return count_a + count_b; }

  std::size_t width, count_a, count_b;
  std::vector<double> values;

 private:
  void standardise() {
    std::vector<double> seen(width), mean(width), squares(width), scale(width);
    const auto each = [&](const auto& use) {  // in the order in which they lie in memory
      for (std::size_t at = 0; at < values.size(); at += width)
        for (std::size_t k = 0; k < width; ++k) use(values[at + k], k);
    };
    each([&](double value, std::size_t k) {
      if (std::isfinite(value)) ++seen[k], mean[k] += value;
    });
    for (std::size_t k = 0; k < width; ++k) mean[k] = seen[k] > 0 ? mean[k] / seen[k] : 0;
    each([&](double value, std::size_t k) {
      if (std::isfinite(value)) squares[k] += (value - mean[k]) * (value - mean[k]);
    });
    for (std::size_t k = 0; k < width; ++k)
      scale[k] = seen[k] > 1 && squares[k] > 0 ? 1 / std::sqrt(squares[k] / (seen[k] - 1)) : 0;
    each([&](double& value, std::size_t k) {
      const double moved = (value - mean[k]) * scale[k];
      value = std::isfinite(moved) ? moved : 0;
    });
  }
};

// A few large values must not decide alone.
double tame(double value) { return std::min(4.0, std::max(-4.0, value)); }

// All aspects of a row: of n columns 2n + n (n - 1) / 2.
void expand(std::span<const double> row, std::vector<double>& out) {
  double* to = out.data();
  for (const double value : row) *to++ = tame(value);
  for (const double value : row) *to++ = tame(value * value - 1);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double first = row[i];
    const double* others = row.data() + i + 1;
    const std::size_t many = row.size() - i - 1;
    for (std::size_t j = 0; j < many; ++j) to[j] = tame(first * others[j]);
    to += many;
  }
}

std::vector<Aspect> aspects_of(std::size_t width) {
  std::vector<Aspect> out;
  for (std::size_t i = 0; i < width; ++i) out.push_back({i, i, false});
  for (std::size_t i = 0; i < width; ++i) out.push_back({i, i, true});
  for (std::size_t i = 0; i < width; ++i)
    for (std::size_t j = i + 1; j < width; ++j) out.push_back({i, j, true});
  return out;
}

double aspect_of(std::span<const double> row, const Aspect& aspect) {
  if (aspect.first != aspect.second) return tame(row[aspect.first] * row[aspect.second]);
  const double value = row[aspect.first];
  return tame(aspect.squared ? value * value - 1 : value);
}

struct Sums {
  std::vector<double> sum, squares;
  double count = 0;
  explicit Sums(std::size_t aspects) : sum(aspects), squares(aspects) {}
  void add(const std::vector<double>& row) {
    ++count;
    double *sums = sum.data(), *squared = squares.data();
    const double* from = row.data();
    for (std::size_t k = 0, many = row.size(); k < many; ++k) {
      sums[k] += from[k];
      squared[k] += from[k] * from[k];
    }
  }
  double mean(std::size_t k) const { return sum[k] / count; }
  double variance(std::size_t k) const { return std::max(0.0, squares[k] / count - mean(k) * mean(k)); }
};

// The aspects in which rows of a and b differ by more than the largest of so many would by chance (Donoho and
// Johnstone's universal threshold), at least one; the strongest first.
struct Learned {
  std::vector<Aspect> aspects;
  std::vector<double> weights;
};
Learned learn(const Table& table, std::span<const std::size_t> rows) {
  auto all = aspects_of(table.width);
  Sums of_a(all.size()), of_b(all.size());
  std::vector<double> row(all.size());
  for (const auto at : rows) {
    expand(table.row(at), row);
    (at < table.count_a ? of_a : of_b).add(row);
  }
  Learned out;
  if (of_a.count < 2 || of_b.count < 2) return out;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const double error = of_a.variance(k) / of_a.count + of_b.variance(k) / of_b.count;
    all[k].in_a = of_a.mean(k), all[k].in_b = of_b.mean(k);
    all[k].z = error > 0 ? (all[k].in_b - all[k].in_a) / std::sqrt(error) : 0;
  }
  const double threshold = std::sqrt(2 * std::log(static_cast<double>(all.size())));
  std::stable_sort(all.begin(), all.end(),
                   [](const Aspect& x, const Aspect& y) { return std::abs(x.z) > std::abs(y.z); });
  while (all.size() > 1 && std::abs(all.back().z) < threshold) all.pop_back();
  for (const auto& aspect : all) {
    // Difference over variance, from what is at hand: the error is the variance over about the smaller count.
    const double difference = aspect.in_b - aspect.in_a;
    out.weights.push_back(difference == 0 ? 0 : aspect.z * aspect.z / difference);
  }
  out.aspects = std::move(all);
  return out;
}

std::vector<std::size_t> shuffled(std::size_t count, std::mt19937_64& random) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

// So many rows in an order of chance.
std::vector<double> chosen(Rows rows, std::size_t count, std::mt19937_64& random) {
  std::vector<double> out;
  out.reserve(count * rows.width);
  const auto order = shuffled(rows.count(), random);
  for (const auto at : std::span(order).first(count)) {
    const auto row = rows.values.subspan(at * rows.width, rows.width);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
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
  if (ones < 1 || zeros < 1) return {0.5};
  const double u = ranks - ones * (ones + 1) / 2;
  const double variance = ones * zeros / 12 * (all + 1 - ties / (all * (all - 1)));
  TwoSample out;
  out.statistic = u / (ones * zeros);
  // Only a classifier that tells them apart the right way round speaks for a difference.
  out.z = variance > 0 ? (u - ones * zeros / 2) / std::sqrt(variance) : 0;
  out.p = normal_above_p(out.z);
  return out;
}

double squared_distance(std::span<const double> x, std::span<const double> y) {
  constexpr std::size_t kLanes = 4;  // sums of their own: each need not wait for the one before
  double sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double off = x[i + lane] - y[i + lane];
      sums[lane] += off * off;
    }
  for (; i < x.size(); ++i) sums[0] += (x[i] - y[i]) * (x[i] - y[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

double kernel(std::span<const double> x, std::span<const double> y, double scale) {
  return std::exp(-scale * squared_distance(x, y));
}

}  // namespace

TwoSample classifier_test(Rows a, Rows b, std::uint64_t seed) {
  constexpr std::size_t kRowsMin = 20;
  if (a.count() < kRowsMin || b.count() < kRowsMin) return {0.5};
  const Table table(a, b);
  std::mt19937_64 random(seed);
  const auto order = shuffled(table.count(), random);
  const std::size_t half = order.size() / 2;
  auto learned = learn(table, std::span(order).first(half));
  std::vector<std::pair<double, bool>> scored;
  for (const auto at : std::span(order).subspan(half)) {
    double score = 0;
    for (std::size_t k = 0; k < learned.aspects.size(); ++k)
      score += learned.weights[k] * aspect_of(table.row(at), learned.aspects[k]);
    scored.emplace_back(score, at >= table.count_a);
  }
  auto out = rank_test(scored);
  out.aspects = std::move(learned.aspects);
  return out;
}

TwoSample kernel_test(Rows a, Rows b, std::uint64_t seed) {
  const std::size_t count = std::min(a.count(), b.count());
  const auto block = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  const std::size_t blocks = block < 4 ? 0 : count / block;
  if (blocks < 4) return {};
  std::mt19937_64 random(seed);
  const auto chosen_a = chosen(a, count, random), chosen_b = chosen(b, count, random);
  const Table table({chosen_a, a.width}, {chosen_b, b.width});
  const auto from_a = [&](std::size_t i) { return table.row(i); };
  const auto from_b = [&](std::size_t i) { return table.row(count + i); };

  std::vector<double> distances;
  for (std::size_t i = 0; i + 1 < std::min<std::size_t>(count, 1000); ++i) {
    distances.push_back(squared_distance(from_a(i), from_b(i + 1)));
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
  if (!(variance > 0)) return {mean};
  const double t = mean / std::sqrt(variance / n), both = student_p(t, n - 1);
  const double p = t > 0 ? both / 2 : 1 - both / 2;
  return {mean, normal_z(p), p};
}

}  // namespace falaj::stats
