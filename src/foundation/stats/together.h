// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether rows of several numbers come from the same distribution: changes between columns, such as a correlation that
// turned, which no column shows by itself.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace falaj::stats {

// Rows of `width` numbers, one after the other. Not-a-number counts as the mean of its column.
struct Rows {
  std::span<const double> values;
  std::size_t width = 0;
  std::size_t count() const { return width == 0 ? 0 : values.size() / width; }
};

// In what two samples differ: the mean of a column (second == first), its spread, or how two columns go together; of
// columns with mean 0 and deviation 1 over both.
struct Aspect {
  std::size_t first = 0, second = 0;
  bool squared = false;  // the spread; of two columns always
  double in_a = 0, in_b = 0;
  double z = 0;  // how many deviations apart
};

struct TwoSample {
  double statistic = 0;
  double z = 0;  // a standard normal variable by chance; above 0 where they differ
  double p = 1;
  std::vector<Aspect> aspects{};  // what a classifier went by, the strongest first
};

// Whether a classifier that learned from half of the rows tells the other half of `a` from that of `b`: the area under
// its curve, 0.5 for equal ones, with the p-value of Mann and Whitney's test, which holds whatever the classifier
// learned (Lopez-Paz and Oquab, "Revisiting classifier two-sample tests", 2017). It goes by standardised columns, their
// squares and their products, that is means, variances and correlations: of all of them by those that differ by more
// than the largest of so many would by chance, each by itself, as a few hundred rows teach nothing about how thousands
// hang together (Fan and Fan, "High-dimensional classification using features annealed independence rules", 2008).
TwoSample classifier_test(Rows a, Rows b, std::uint64_t seed);

// The kernel maximum mean discrepancy of pairs in blocks, whose mean is normal by chance (Zaremba, Gretton and
// Blaschko, "B-tests", 2013); the kernel is Gaussian, as wide as the median distance. Time grows with count times the
// root of it.
TwoSample kernel_test(Rows a, Rows b, std::uint64_t seed);

}  // namespace falaj::stats
