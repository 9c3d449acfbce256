// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/points.h"

#include <algorithm>
#include <cmath>

#include "foundation/base/error.h"

namespace falaj::track {
namespace {

// NaN as the largest of all values; the compiler's < on doubles is no order when one is among them.
bool value_before(double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); }

}  // namespace

bool before(const Point& a, const Point& b) {
  if (a.unix_ms != b.unix_ms) return a.unix_ms < b.unix_ms;
  if (a.step != b.step) return a.step < b.step;
  return value_before(a.value, b.value);
}

bool same(const Point& a, const Point& b) {
  return a.unix_ms == b.unix_ms && a.step == b.step &&
         (a.value == b.value || (std::isnan(a.value) && std::isnan(b.value)));
}

bool newer(const Point& a, const Point& b) {
  if (a.step != b.step) return a.step > b.step;
  if (a.unix_ms != b.unix_ms) return a.unix_ms > b.unix_ms;
  return a.value > b.value || (std::isnan(b.value) && !std::isnan(a.value));
}

void tidy(std::vector<Point>& points) {
  // A client logs in order, so most of what comes here is sorted already.
  if (!std::is_sorted(points.begin(), points.end(), before)) std::stable_sort(points.begin(), points.end(), before);
  points.erase(std::unique(points.begin(), points.end(), same), points.end());
}

std::vector<Point> thin(std::span<const Point> tidy, std::size_t most) {
  CHECK(most >= 4, "too few points to draw a line");
  if (tidy.size() <= most) return {tidy.begin(), tidy.end()};
  const std::size_t stretches = (most - 2) / 2;
  const std::size_t between = tidy.size() - 2;
  std::vector<Point> kept;
  kept.reserve(most);
  kept.push_back(tidy.front());
  for (std::size_t i = 0; i < stretches; ++i) {
    const std::size_t first = 1 + i * between / stretches;
    const std::size_t end = 1 + (i + 1) * between / stretches;
    std::size_t lowest = first;
    std::size_t highest = first;
    for (std::size_t at = first + 1; at < end; ++at) {
      const double value = tidy[at].value;
      if (std::isnan(value)) continue;
      if (value < tidy[lowest].value || std::isnan(tidy[lowest].value)) lowest = at;
      if (value > tidy[highest].value || std::isnan(tidy[highest].value)) highest = at;
    }
    kept.push_back(tidy[std::min(lowest, highest)]);
    if (lowest != highest) kept.push_back(tidy[std::max(lowest, highest)]);
  }
  kept.push_back(tidy.back());
  return kept;
}

std::vector<Point> sample_evenly(std::span<const Point> tidy, std::size_t most) {
  if (tidy.size() <= most) return {tidy.begin(), tidy.end()};
  if (most == 0) return {};
  if (most == 1) return {tidy.back()};
  std::vector<Point> kept;
  kept.reserve(most);
  for (std::size_t i = 0; i < most; ++i) kept.push_back(tidy[i * (tidy.size() - 1) / (most - 1)]);
  return kept;
}

}  // namespace falaj::track
