// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "foundation/stats/quantiles.h"

// How far apart two distributions are. All are 0 for equal ones.
namespace falaj::stats {

// Of two sketches. Each error of a rank moves ks() by at most as much: together both sketches' rank_error_everywhere().
double ks(const Ordered& a, const Ordered& b);           // Kolmogorov-Smirnov: the largest gap of ranks, 0 to 1
double wasserstein(const Ordered& a, const Ordered& b);  // the mean distance values must be moved, in their unit
// Both are 0 when both are empty, and not-a-number when only one is.

// Up to `bins` - 1 edges that cut `reference` into bins of about equal counts; fewer where values repeat.
std::vector<double> edges(const Ordered& reference, std::size_t bins);
// The counts between edges: (-inf, e0], (e0, e1], ... (e_last, inf).
std::vector<double> counts(const Ordered& sketch, std::span<const double> edges);

// Of two histograms over the same bins; counts need not add up to one. Half a count is added to every bin, so that an
// empty one is not infinitely far. Requires: as many bins in both, at least one.
double population_stability_index(std::span<const double> a, std::span<const double> b);
double jensen_shannon(std::span<const double> a, std::span<const double> b);  // divergence in bits, 0 to 1

}  // namespace falaj::stats
