// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/distance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "foundation/base/error.h"

namespace falaj::stats {

namespace {

// Walks both distributions from the smallest value up: each(value, next value, rank in a, rank in b).
template <class Each>
void walk(const Ordered& a, const Ordered& b, Each each) {
  const auto &left = a.values, &right = b.values;
  const double na = static_cast<double>(a.count), nb = static_cast<double>(b.count);
  std::size_t i = 0, j = 0;
  double below_a = 0, below_b = 0;
  const auto value = [&] {
    if (i == left.size()) return right[j].value;
    return j == right.size() ? left[i].value : std::min(left[i].value, right[j].value);
  };
  while (i < left.size() || j < right.size()) {
    const double here = value();
    while (i < left.size() && left[i].value <= here) below_a += static_cast<double>(left[i++].weight);
    while (j < right.size() && right[j].value <= here) below_b += static_cast<double>(right[j++].weight);
    const bool more = i < left.size() || j < right.size();
    each(here, more ? value() : here, below_a / na, below_b / nb);
  }
}

// The one answer when a sketch is empty, else none.
bool is_empty(const Ordered& a, const Ordered& b) { return a.count == 0 || b.count == 0; }
double of_empty(const Ordered& a, const Ordered& b) {
  return a.count == b.count ? 0 : std::numeric_limits<double>::quiet_NaN();
}

std::vector<double> shares(std::span<const double> counts) {
  double total = 0;
  for (const double n : counts) total += n + 0.5;
  std::vector<double> out;
  out.reserve(counts.size());
  for (const double n : counts) out.push_back((n + 0.5) / total);
  return out;
}

}  // namespace

double ks(const Ordered& a, const Ordered& b) {
  if (is_empty(a, b)) return of_empty(a, b);
  double gap = 0;
  walk(a, b, [&](double, double, double ra, double rb) { gap = std::max(gap, std::abs(ra - rb)); });
  return gap;
}

double wasserstein(const Ordered& a, const Ordered& b) {
  if (is_empty(a, b)) return of_empty(a, b);
  double moved = 0;
  walk(a, b, [&](double here, double next, double ra, double rb) {
    if (ra != rb) moved += std::abs(ra - rb) * (next - here);  // 0 times infinity is not what is meant
  });
  return moved;
}

std::vector<double> edges(const Ordered& reference, std::size_t bins) {
  CHECK(bins >= 1, "there is at least one bin");
  std::vector<double> out;
  if (reference.count == 0) return out;
  const double all = static_cast<double>(reference.count), step = all / static_cast<double>(bins);
  double below = 0;
  for (const auto& [value, weight] : reference.values) {
    const double before = below;
    below += static_cast<double>(weight);
    // The value at which one of the wanted ranks is reached; the last bin ends where all ends.
    if (std::floor(below / step) > std::floor(before / step) && below < all && value < reference.max &&
        (out.empty() || out.back() < value))
      out.push_back(value);
  }
  return out;
}

std::vector<double> counts(const Ordered& sketch, std::span<const double> edges) {
  std::vector<double> out(edges.size() + 1, 0);
  std::size_t bin = 0;
  for (const auto& [value, weight] : sketch.values) {
    while (bin < edges.size() && edges[bin] < value) ++bin;
    out[bin] += static_cast<double>(weight);
  }
  return out;
}

double population_stability_index(std::span<const double> a, std::span<const double> b) {
  CHECK(a.size() == b.size() && !a.empty(), "both histograms have the same bins");
  const auto p = shares(a), q = shares(b);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += (p[i] - q[i]) * std::log(p[i] / q[i]);
  return sum;
}

double jensen_shannon(std::span<const double> a, std::span<const double> b) {
  CHECK(a.size() == b.size() && !a.empty(), "both histograms have the same bins");
  const auto p = shares(a), q = shares(b);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double m = (p[i] + q[i]) / 2;
    sum += (p[i] * std::log2(p[i] / m) + q[i] * std::log2(q[i] / m)) / 2;
  }
  return std::max(0.0, sum);
}

}  // namespace falaj::stats
