// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether what comes in still looks like what was seen before, with a stated chance of crying wolf.
//
// A reference is itself a sample, and every window is compared with the same one: its own error does not average out
// over windows. So each distance is first made smaller by a radius within which the reference lies around the truth
// (up to a stated chance), and what is left is held against the window's noise alone. The p-values of windows are then
// independent given the reference, and evidence may be added up over time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "foundation/stats/quantiles.h"

namespace falaj::stats {

// The chance that a sample of so many lies at least so far from its distribution, for any distribution: twice
// exp(-2 count gap^2) (Dvoretzky, Kiefer and Wolfowitz; the constant is Massart's).
double gap_p(double gap, double count);
// The gap that a sample of so many exceeds with chance `level`.
double gap_radius(double count, double level);
// The chance that a chi-square variable with so many degrees of freedom is at least this.
double chi_square_p(double statistic, double freedom);
double chi_square_radius(double freedom, double level);  // what it exceeds with chance `level`
// The chance that a standard normal variable is at least this far from 0.
double normal_p(double z);
// And Student's with so many degrees of freedom: for a mean over a deviation that was itself estimated.
double student_p(double t, double freedom);

// What one window says of one column.
struct Compared {
  double distance = 0;  // in the unit of the test
  double radius = 0;    // of it, the part that is the reference's own error
  double p = 1;         // chance of the rest, were nothing different
};

// Numbers: the largest gap of ranks. `level`: chance that the reference is worse than its radius says.
Compared compare(const Quantiles& reference, const Quantiles& window, double level);
// Categories, counted over the same ones: the distance of shares, each in units of its own deviation. A window that has
// what the reference never had is compared with half a case of it.
Compared compare(std::span<const double> reference, std::span<const double> window, double level);

// Two samples as equals, neither being the reference of many: the usual tests.
double ks_test_p(double gap, double count_a, double count_b);  // asymptotic, with Stephens' correction
double chi_square_test_p(std::span<const double> a, std::span<const double> b);
// Of distances that are about quadratic in the difference of shares, over so many bins: what chance alone exceeds with
// probability `level` when the samples have so many values each.
double psi_noise(double count_a, double count_b, std::size_t bins, double level);
double jensen_shannon_noise(double count_a, double count_b, std::size_t bins, double level);

// Several p-values at once. Each result is the smallest level at which its hypothesis is rejected.
std::vector<double> holm(std::span<const double> p);                // chance of any false one
std::vector<double> benjamini_hochberg(std::span<const double> p);  // share of false ones among the rejected

// Adds up what windows say: evidence is multiplied from the moment that fits best, all moments weighing the same
// (Shiryaev and Roberts, with e-values in place of likelihood ratios; Shin, Ramdas and Rinaldo, "E-detectors", 2022).
// While nothing changes the chance that sum() reaches windows/level within that many windows is at most `level`.
class Evidence {
 public:
  void add(double p);
  double sum() const { return sum_; }
  std::uint64_t since() const { return since_; }  // the window, counted from 0, from which on the evidence is strongest
  std::uint64_t windows() const { return windows_; }
  // Whether so much is not chance: a false alarm within `horizon` windows has at most the chance `level`, when `family`
  // such are kept side by side for any of them.
  bool alarming(double level, std::uint64_t horizon, std::size_t family) const {
    return sum_ >= static_cast<double>(horizon) * static_cast<double>(family) / level;
  }
  static Evidence of(double sum, std::uint64_t windows, std::uint64_t since, double best);
  double best() const { return best_; }

 private:
  double sum_ = 0, best_ = 0;
  std::uint64_t windows_ = 0, since_ = 0;
};

// How many times more likely such a p-value is when something changed than by chance; its mean is 1 by chance, whatever
// the change (the mixture of all powers of p; Vovk and Wang, "E-values", 2021). At most 1e300.
double evidence_of(double p);

}  // namespace falaj::stats
