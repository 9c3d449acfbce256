// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "foundation/base/bytes.h"

namespace falaj::stats {

// Count, mean, variance and range of numbers, in one pass and without cancellation (Welford; Chan et al. for merging).
// Not-a-number is not counted. Merging in any order gives the same up to rounding.
class Moments {
 public:
  void add(double value);
  void merge(const Moments& other);

  std::uint64_t count() const { return count_; }
  double mean() const { return mean_; }
  double variance() const;             // of the sample; 0 for fewer than two
  double min() const { return min_; }  // +infinity when empty
  double max() const { return max_; }  // -infinity when empty
  friend bool operator==(const Moments&, const Moments&) = default;

  void encode(ByteWriter& out) const;
  static Moments decode(ByteReader& in);  // throws corrupt

 private:
  std::uint64_t count_ = 0;
  double mean_ = 0;
  double m2_ = 0;  // sum of squared distances from the mean
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
};

}  // namespace falaj::stats
