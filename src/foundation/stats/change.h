// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether the mean of a stream, such as a model's errors as labels come in, has changed.

#include <cstdint>
#include <optional>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/stats/quantiles.h"

namespace falaj::stats {

// A window that grows while its mean stays the same and drops its old part when it does not (Bifet and Gavalda,
// "Learning from time-changing data with adaptive windowing", 2007). Values lie between 0 and 1. A cut is wrong with a
// chance of at most `level` at each look. Takes memory and time that grow with the logarithm of the window.
class Adwin {
 public:
  explicit Adwin(double level = 0.002) : level_(level) {}

  struct Cut {
    double before = 0, after = 0;  // means
    std::uint64_t dropped = 0, kept = 0;
  };
  std::optional<Cut> add(double value);  // the last cut that it led to
  std::uint64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  static constexpr std::uint64_t kLooks = 32;  // values between looks for a cut

  void encode(ByteWriter& out) const;  // all but the level
  void decode(ByteReader& in);         // throws corrupt

 private:
  static constexpr std::size_t kBuckets = 5;      // of each size
  static constexpr std::uint64_t kShortest = 10;  // values on either side of one
  struct Bucket {
    double sum = 0, squares = 0;  // squares: of the distances from its mean
  };
  void compress();
  std::optional<Cut> look();
  void drop_oldest();
  double squares() const;  // of the distances of all from the mean

  double level_;
  std::uint64_t count_ = 0, added_ = 0;
  double sum_ = 0;
  std::vector<std::vector<Bucket>> rows_;  // a bucket of row i stands for 2^i values; oldest first
};

// Adds up how far values lie above their mean so far, less a slack; alarms when that is more than `threshold` above its
// least (Page, 1954; Hinkley, 1971). For rises; give negative values for falls.
class PageHinkley {
 public:
  PageHinkley(double slack, double threshold) : slack_(slack), threshold_(threshold) {}
  struct Rise {
    double before = 0, after = 0;  // means
    std::uint64_t steps = 0;       // since it began, about
  };
  std::optional<Rise> add(double value);  // what it alarms for; begins anew then
  double rise() const { return sum_ - least_; }

  void encode(ByteWriter& out) const;  // all but the slack and the threshold
  void decode(ByteReader& in);         // throws corrupt

 private:
  double slack_, threshold_;
  std::uint64_t count_ = 0, rising_ = 0;  // rising: since sum_ was least
  double mean_ = 0, sum_ = 0, least_ = 0;
};

// The threshold that values of one distribution exceed within so many steps with a chance of at most `level`
// (Lundberg's inequality, over all steps at which a rise may begin). Requires: slack > 0
double page_hinkley_threshold(const Quantiles& of, double slack, double steps, double level);

}  // namespace falaj::stats
