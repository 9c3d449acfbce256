// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much more the pieces of a stream differ from one another than chance alone would let them: weather, weekdays and
// busy customers make rows that come one after the other alike. Whoever compares a window of such a stream with all of
// it must not take every row for news of its own.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "foundation/stats/frequent.h"
#include "foundation/stats/quantiles.h"

namespace falaj::stats {

// A number to about four digits (twelve bits). What two programs compute of one row differs in the last digits, and
// where a model has few answers that would part all of them from one another.
inline double coarse(double value) {
  constexpr unsigned kDropped = 52 - 12;
  const auto bits = std::bit_cast<std::uint64_t>(value) + (std::uint64_t{1} << (kDropped - 1));
  const double out = std::bit_cast<double>(bits >> kDropped << kDropped);
  return std::isfinite(value) && std::isfinite(out) ? out : value;
}

// At one length: how far each piece lies from the whole, squared, over what is expected of independent rows; 1 by
// chance.
struct BlockScale {
  double rows = 0;  // in a piece, about
  std::vector<double> ratios;
  std::size_t marks = 0;  // of mark_scales: the one that varies most, of so many
};

// Of consecutive blocks, of about as many rows each: of single ones, of pairs, of fours, while there are at least
// kGroupsMin pieces. Blocks without rows are left out; nothing when there are fewer than kGroupsMin.
inline constexpr std::size_t kGroupsMin = 8;
std::vector<BlockScale> block_scales(std::span<const Quantiles> blocks);
std::vector<BlockScale> block_scales(std::span<const Frequent> blocks);
// Shares: how many of `counts` rows of each block have some mark.
std::vector<BlockScale> block_scales(std::span<const double> marked, std::span<const double> counts);

// The same of single marks: whether a number lies below one of the deciles, whether a text is this one. What makes
// neighbours alike seldom moves everything: the mean of all hides a share that varies ten times as much, and by that a
// window would be told from the others. At each length with at least kMarkedMin pieces, the mark that varies most.
inline constexpr std::size_t kMarkedMin = 16;
std::vector<BlockScale> mark_scales(std::span<const Quantiles> blocks);
std::vector<BlockScale> mark_scales(std::span<const Frequent> blocks);

// The same of any pieces: `ratio` compares one with the whole, `count` says how many rows it has, `join` puts
// neighbours together; one without a partner is left out.
template <class T, class Join, class Ratio, class Count>
std::vector<BlockScale> scales_of(std::vector<T> pieces, Join join, Ratio ratio, Count count) {
  std::erase_if(pieces, [&](const T& piece) { return count(piece) <= 0; });
  std::vector<BlockScale> out;
  while (pieces.size() >= kGroupsMin) {
    BlockScale scale;
    for (const auto& piece : pieces) {
      scale.rows += count(piece) / static_cast<double>(pieces.size());
      scale.ratios.push_back(ratio(piece));
    }
    out.push_back(std::move(scale));
    std::vector<T> pairs;
    for (std::size_t i = 0; i + 1 < pieces.size(); i += 2) pairs.push_back(join(pieces[i], pieces[i + 1]));
    pieces = std::move(pairs);
  }
  return out;
}
// A piece is part of the whole that it is compared with, which makes it lie nearer.
inline double outside_of(double piece, double whole) { return std::max(1e-9, 1 - piece / whole); }

// By how much the number of rows is to be divided, so that what independent rows would do holds: the largest over the
// scales, as what is alike for longer than a block shows only in longer ones; each at the upper end of what the spread
// of its pieces allows (about 99 %). A mark counts when the worst of so many would not vary as much by chance (one in a
// thousand), and then as one normal variable does, which is the most that it can. At least 1.
double design_effect(std::span<const BlockScale> scales);

// The mean of count times the squared largest gap of ranks of independent rows: pi^2/12 for values that never repeat,
// less where they do.
double gap_square_mean(const Quantiles& whole);

}  // namespace falaj::stats
