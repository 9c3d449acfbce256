// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/drift.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "foundation/base/error.h"
#include "foundation/stats/distance.h"

namespace falaj::stats {

namespace {

// The upper incomplete gamma function over the whole one: by its series below, by its continued fraction above a + 1.
double gamma_above(double a, double x) {
  if (x <= 0) return 1;
  const double scale = std::exp(a * std::log(x) - x - std::lgamma(a));
  constexpr int kTermsMax = 10'000;
  constexpr double kEnough = 1e-15;
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < kTermsMax && term > sum * kEnough; ++n) sum += term *= x / (a + n);
    return std::clamp(1 - scale * sum, 0.0, 1.0);
  }
  constexpr double kTiny = 1e-300;  // Lentz: a denominator of 0 is moved away from it
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, fraction = d;
  for (int n = 1; n < kTermsMax; ++n) {
    const double step = -n * (n - a);
    b += 2;
    d = step * d + b;
    if (std::abs(d) < kTiny) d = kTiny;
    c = b + step / c;
    if (std::abs(c) < kTiny) c = kTiny;
    d = 1 / d;
    fraction *= d * c;
    if (std::abs(d * c - 1) < kEnough) break;
  }
  return std::clamp(scale * fraction, 0.0, 1.0);
}

// The incomplete beta function over the whole one, by its continued fraction.
double beta_below(double a, double b, double x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - beta_below(b, a, 1 - x);
  const double scale =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x)) / a;
  constexpr double kTiny = 1e-300, kEnough = 1e-15;
  const auto away = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / away(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int n = 1; n < 10'000; ++n) {
    const double m = n;
    double step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away(1 + step * d);
    c = away(1 + step / c);
    fraction *= d * c;
    step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away(1 + step * d);
    c = away(1 + step / c);
    fraction *= d * c;
    if (std::abs(d * c - 1) < kEnough) break;
  }
  return std::clamp(scale * fraction, 0.0, 1.0);
}

double total(std::span<const double> counts) { return std::accumulate(counts.begin(), counts.end(), 0.0); }

}  // namespace

double gap_p(double gap, double count) { return std::min(1.0, 2 * std::exp(-2 * count * gap * gap)); }

double gap_radius(double count, double level) {
  return count <= 0 ? 1 : std::min(1.0, std::sqrt(std::log(2 / level) / (2 * count)));
}

double chi_square_p(double statistic, double freedom) {
  return freedom <= 0 ? 1 : gamma_above(freedom / 2, statistic / 2);
}

double chi_square_radius(double freedom, double level) {
  if (freedom <= 0) return 0;
  double low = 0, high = freedom + 10;
  while (chi_square_p(high, freedom) > level) high *= 2;
  for (int i = 0; i < 100 && high - low > 1e-10 * high; ++i) {
    const double middle = (low + high) / 2;
    (chi_square_p(middle, freedom) > level ? low : high) = middle;
  }
  return high;
}

double normal_p(double z) { return std::erfc(std::abs(z) / std::sqrt(2.0)); }

double student_p(double t, double freedom) {
  return freedom <= 0 ? 1 : beta_below(freedom / 2, 0.5, freedom / (freedom + t * t));
}

Compared compare(const Quantiles& reference, const Quantiles& window, double level) {
  if (reference.count() == 0 || window.count() == 0) return {};
  const double known = static_cast<double>(reference.count()), seen = static_cast<double>(window.count());
  Compared out;
  out.distance = ks(reference, window);
  // A sketch that never had to compact is exact.
  const auto blur = [](const Quantiles& sketch) {
    return sketch.sorted().size() == sketch.count() ? 0 : sketch.rank_error_everywhere();
  };
  out.radius = gap_radius(known, level) + blur(reference) + blur(window);
  out.p = gap_p(std::max(0.0, out.distance - out.radius), seen);
  return out;
}

Compared compare(std::span<const double> reference, std::span<const double> window, double level) {
  CHECK(reference.size() == window.size(), "both count the same categories");
  const double known = total(reference), seen = total(window);
  Compared out;
  if (known <= 0 || seen <= 0) return out;
  double squares = 0, freedom = -1;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    if (reference[i] <= 0 && window[i] <= 0) continue;
    ++freedom;
    const double share = std::max(reference[i], 0.5) / known, difference = window[i] / seen - share;
    squares += difference * difference / share;
  }
  if (freedom < 1) return out;
  out.distance = std::sqrt(squares);
  out.radius = std::sqrt(chi_square_radius(freedom, level) / known);
  const double left = std::max(0.0, out.distance - out.radius);
  out.p = chi_square_p(left * left * seen, freedom);
  return out;
}

double ks_test_p(double gap, double count_a, double count_b) {
  if (count_a <= 0 || count_b <= 0) return 1;
  const double root = std::sqrt(count_a * count_b / (count_a + count_b));
  const double x = (root + 0.12 + 0.11 / root) * gap;
  if (x < 0.2) return 1;  // the series is 1 to more digits than there are
  double p = 0, sign = 1;
  for (int k = 1; k <= 100; ++k, sign = -sign) {
    const double term = std::exp(-2.0 * k * k * x * x);
    p += 2 * sign * term;
    if (term < 1e-16) break;
  }
  return std::clamp(p, 0.0, 1.0);
}

double chi_square_test_p(std::span<const double> a, std::span<const double> b) {
  CHECK(a.size() == b.size(), "both count the same categories");
  const double all_a = total(a), all_b = total(b);
  if (all_a <= 0 || all_b <= 0) return 1;
  double statistic = 0, freedom = -1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double both = a[i] + b[i];
    if (both <= 0) continue;
    ++freedom;
    const double difference = a[i] * std::sqrt(all_b / all_a) - b[i] * std::sqrt(all_a / all_b);
    statistic += difference * difference / both;
  }
  return chi_square_p(statistic, freedom);
}

double psi_noise(double count_a, double count_b, std::size_t bins, double level) {
  if (count_a <= 0 || count_b <= 0 || bins < 2) return 0;
  return (1 / count_a + 1 / count_b) * chi_square_radius(static_cast<double>(bins - 1), level);
}

double jensen_shannon_noise(double count_a, double count_b, std::size_t bins, double level) {
  return psi_noise(count_a, count_b, bins, level) / (8 * std::log(2.0));
}

namespace {

std::vector<std::size_t> ascending(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] < p[b]; });
  return order;
}

}  // namespace

std::vector<double> holm(std::span<const double> p) {
  std::vector<double> out(p.size());
  double least = 0;
  std::size_t left = p.size();
  for (const std::size_t i : ascending(p)) {
    least = std::max(least, std::min(1.0, p[i] * static_cast<double>(left--)));
    out[i] = least;
  }
  return out;
}

std::vector<double> benjamini_hochberg(std::span<const double> p) {
  std::vector<double> out(p.size());
  const auto order = ascending(p);
  double most = 1;
  for (std::size_t n = order.size(); n > 0; --n) {
    most = std::min(most, p[order[n - 1]] * static_cast<double>(p.size()) / static_cast<double>(n));
    out[order[n - 1]] = most;
  }
  return out;
}

double evidence_of(double p) {
  if (p >= 1) return 0.5;  // the limit
  const double l = std::log(std::max(p, 1e-300));
  const double q = std::exp(l);
  const double near = 1 - p;
  if (near < 1e-4) return 0.5 + near / 6;  // of the same series: the quotient loses its digits there
  return std::min(1e300, (1 - q + q * l) / (q * l * l));
}

void Evidence::add(double p) {
  const double e = evidence_of(p);
  if (best_ <= 1) {  // what was seen so far speaks against a change: one begins here at the earliest
    best_ = 1;
    since_ = windows_;
  }
  best_ = std::min(1e300, best_ * e);
  sum_ = std::min(1e300, (sum_ + 1) * e);
  ++windows_;
}

Evidence Evidence::of(double sum, std::uint64_t windows, std::uint64_t since, double best) {
  Evidence out;
  out.sum_ = sum;
  out.windows_ = windows;
  out.since_ = since;
  out.best_ = best;
  return out;
}

}  // namespace falaj::stats
