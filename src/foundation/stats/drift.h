// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether what comes in still looks like what was seen before, with a stated chance of crying wolf: in any window and
// any column, however often one looks. The reference is a sample as well, and is held to be no better known than that.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "foundation/stats/quantiles.h"

namespace falaj::stats {

// The chance that a chi-square variable with so many degrees of freedom is at least this.
double chi_square_p(double statistic, double freedom);
double chi_square_radius(double freedom, double level);  // what it exceeds with chance `level`
// The chance that a standard normal variable is at least this far from 0.
double normal_p(double z);
double normal_above_p(double z);  // that it is at least this; and its inverse, for p above 0 and below 1
double normal_z(double p);
// And Student's with so many degrees of freedom: for a mean over a deviation that was itself estimated.
double student_p(double t, double freedom);

// The chance that two samples of one distribution differ as much. `weight`: how many independent values one value is
// worth, less than 1 where neighbours are alike. Numbers: by the largest gap of ranks, which sees shifts, and by counts
// between the reference's deciles, which see what is wider, narrower or twofold. What sketches blur counts as noise.
double differ_p(const Ordered& reference, const Ordered& window, double weight = 1);
// Categories, counted over the same ones.
double differ_p(std::span<const double> reference, std::span<const double> window, double weight = 1);

// The usual tests.
double ks_test_p(double gap, double count_a, double count_b);  // asymptotic, with Stephens' correction
double chi_square_test_p(std::span<const double> a, std::span<const double> b);
// Of distances that are about quadratic in the difference of shares, over so many bins: what chance alone exceeds with
// probability `level` when the samples have so many values each.
double psi_noise(double count_a, double count_b, std::size_t bins, double level);
double jensen_shannon_noise(double count_a, double count_b, std::size_t bins, double level);

// Several p-values at once. Each result is the smallest level at which its hypothesis is rejected.
std::vector<double> holm(std::span<const double> p);                // chance of any false one
std::vector<double> benjamini_hochberg(std::span<const double> p);  // share of false ones among the rejected

// Windows one by one, and the newest 2, 4, 8 ... of them together, every half such a block: a change too small to see
// in one window is seen in many. A Sample has merge().
template <class Sample>
class Blocks {
 public:
  static constexpr std::size_t kDoublings = 6;
  static constexpr std::uint64_t kWindowsMax = std::uint64_t{1} << kDoublings;

  // Calls look(sample, windows) for each block that ends with this window, the shortest first.
  template <class Look>
  void add(Sample window, Look look) {
    ++windows_;
    look(std::as_const(window), std::uint64_t{1});
    Sample ended = std::move(window);  // the newest 2^i windows
    for (std::size_t i = 0; i < kDoublings; ++i) {
      if (!before_[i]) {
        before_[i] = std::move(ended);
        return;
      }
      Sample both = *before_[i];
      both.merge(ended);
      look(std::as_const(both), std::uint64_t{2} << i);
      before_[i] = std::move(ended);
      if ((windows_ >> i) % 2 == 1) return;
      ended = std::move(both);
    }
  }
  std::uint64_t windows() const { return windows_; }

 private:
  std::array<std::optional<Sample>, kDoublings> before_;  // the 2^i windows before those of the next such block
  std::uint64_t windows_ = 0;
};

// The chance that any block of any of `family` columns shows by chance what this one of so many windows shows (p),
// within `horizon` windows. Half of it belongs to single windows, the rest to all longer blocks alike.
double chance_at_all(double p, std::uint64_t windows, std::uint64_t horizon, std::size_t family);

}  // namespace falaj::stats
