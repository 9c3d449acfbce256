// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/sequential.h"

#include <algorithm>
#include <cmath>

namespace falaj::stats {

double Sample::variance() const {
  if (count < 2) return 0;
  const auto n = static_cast<double>(count);
  return std::max(0.0, (sum_of_squares - sum * sum / n) / (n - 1));
}

SequentialTest::SequentialTest(double effect, double confidence)
    : prior_variance_(effect * effect), confidence_(confidence) {}

SequentialTest::Seen SequentialTest::look(const Sample& a, const Sample& b) {
  Seen seen;
  seen.difference = b.mean() - a.mean();
  seen.p = p_;
  if (std::min(a.count, b.count) < kCountMin || prior_variance_ <= 0) return seen;
  const double noise = a.variance() / static_cast<double>(a.count) + b.variance() / static_cast<double>(b.count);
  if (noise <= 0) return seen;  // constants: nothing can be said of their noise
  // The likelihood of the difference, averaged over what it might be, against none.
  const double total = noise + prior_variance_;
  const double log_ratio =
      0.5 * std::log(noise / total) + prior_variance_ * seen.difference * seen.difference / (2 * noise * total);
  p_ = std::min(p_, std::exp(-std::max(0.0, log_ratio)));
  const double half =
      std::sqrt(noise * total / prior_variance_ * (std::log(total / noise) - 2 * std::log(1 - confidence_)));
  seen.p = p_;
  seen.low = seen.difference - half;
  seen.high = seen.difference + half;
  seen.bounded = true;
  return seen;
}

}  // namespace falaj::stats
