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

double normal_above_p(double z) { return z > 0 ? normal_p(z) / 2 : 1 - normal_p(z) / 2; }

double normal_z(double p) {
  const double far = std::sqrt(chi_square_radius(1, 2 * std::min(p, 1 - p)));
  return p < 0.5 ? far : -far;
}

double student_p(double t, double freedom) {
  return freedom <= 0 ? 1 : beta_below(freedom / 2, 0.5, freedom / (freedom + t * t));
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

namespace {

constexpr std::size_t kBins = 10;

// How many independent values a sketch is worth: an error of ranks adds to the variance of a share as fewer values
// would. rank_error() is 2.58 deviations; a bin of a tenth has a variance of 0.09 by the count.
double worth(const Ordered& sketch, double weight) {
  const double deviation = sketch.rank_error / 2.58;
  const double count = static_cast<double>(sketch.count) * weight;
  return 1 / (1 / count + (sketch.is_exact() ? 0 : deviation * deviation / 0.09));
}

std::vector<double> scaled(std::vector<double> counts, double to) {
  const double factor = to / total(counts);
  for (double& count : counts) count *= factor;
  return counts;
}

}  // namespace

double differ_p(const Ordered& reference, const Ordered& window, double weight) {
  if (reference.count == 0 || window.count == 0) return 1;
  const double known = worth(reference, weight), seen = worth(window, weight);
  const auto cuts = edges(reference, kBins);
  const double by_rank = ks_test_p(ks(reference, window), known, seen),
               by_bins = chi_square_test_p(scaled(counts(reference, cuts), known), scaled(counts(window, cuts), seen));
  return std::min(1.0, 2 * std::min(by_rank, by_bins));
}

double differ_p(std::span<const double> reference, std::span<const double> window, double weight) {
  CHECK(reference.size() == window.size(), "both count the same categories");
  const double known = total(reference) * weight, seen = total(window) * weight;
  if (known <= 0 || seen <= 0) return 1;
  // Far out, where one in a million is judged, chi-square is not the law of counts that are small: the rare ones are
  // counted as one.
  constexpr double kFew = 10;
  std::vector<double> a{0}, b{0};
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double of_a = reference[i] * weight, of_b = window[i] * weight;
    if ((of_a + of_b) * std::min(known, seen) / (known + seen) < kFew) {
      a[0] += of_a;
      b[0] += of_b;
    } else {
      a.push_back(of_a);
      b.push_back(of_b);
    }
  }
  return chi_square_test_p(a, b);
}

double chance_at_all(double p, std::uint64_t windows, std::uint64_t horizon, std::size_t family) {
  const double span = static_cast<double>(std::max<std::uint64_t>(1, horizon)), length = static_cast<double>(windows);
  const double looks =
      windows <= 1 ? 2 * span : 2 * static_cast<double>(Blocks<Quantiles>::kDoublings) * 2 * span / length;
  return std::min(1.0, p * looks * static_cast<double>(family));
}

}  // namespace falaj::stats
