// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "foundation/base/error.h"
#include "foundation/stats/distance.h"

namespace falaj::stats {

namespace {

constexpr double kContinuous = 0.822467033424113;  // pi^2 / 12
constexpr std::size_t kDistinctFew = 64;           // beyond, gaps between values no longer matter
constexpr int kBridges = 2'000;
constexpr std::size_t kCategoriesMax = 32;
constexpr double kSureZ = 2.326;  // of a normal variable, 99 % lie below

// Standard normal numbers, always the same ones (splitmix64, Box and Muller).
class Normals {
 public:
  double next() {
    if (has_) {
      has_ = false;
      return kept_;
    }
    const double radius = std::sqrt(-2 * std::log(uniform())), angle = 2 * M_PI * uniform();
    kept_ = radius * std::sin(angle);
    has_ = true;
    return radius * std::cos(angle);
  }

 private:
  double uniform() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (static_cast<double>((z ^ (z >> 31)) >> 11) + 0.5) * 0x1.0p-53;
  }
  std::uint64_t state_ = 0;
  double kept_ = 0;
  bool has_ = false;
};

// Puts neighbours together, two at a time; one without a partner is left out.
template <class T, class Join>
std::vector<T> paired(const std::vector<T>& from, Join join) {
  std::vector<T> out;
  for (std::size_t i = 0; i + 1 < from.size(); i += 2) out.push_back(join(from[i], from[i + 1]));
  return out;
}

// Each scale in turn. `ratio` compares a piece with the whole; `count` says how many rows it has.
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
    pieces = paired(pieces, join);
  }
  return out;
}

// A piece is part of the whole that it is compared with, which makes it lie nearer.
double outside_of(double piece, double whole) { return std::max(1e-9, 1 - piece / whole); }

}  // namespace

double gap_square_mean(const Quantiles& whole) {
  if (whole.count() == 0) return kContinuous;
  std::vector<double> ranks;  // below each value but the last, where the gap is 0
  double below = 0, last = 0;
  for (const auto& [value, weight] : whole.sorted()) {
    if (below > 0 && value != last) ranks.push_back(below / static_cast<double>(whole.count()));
    if (ranks.size() > kDistinctFew) return kContinuous;
    below += static_cast<double>(weight);
    last = value;
  }
  if (ranks.empty()) return kContinuous;  // one value: there is no gap, and nothing to divide by it
  // Ranks of a sample wander about the true ones as a Brownian bridge does.
  Normals normals;
  std::vector<double> walk(ranks.size());
  double sum = 0;
  for (int i = 0; i < kBridges; ++i) {
    double at = 0, place = 0, most = 0;
    for (std::size_t j = 0; j < ranks.size(); ++j) {
      place += std::sqrt(ranks[j] - at) * normals.next();
      walk[j] = place;
      at = ranks[j];
    }
    const double end = place + std::sqrt(1 - at) * normals.next();
    for (std::size_t j = 0; j < ranks.size(); ++j) most = std::max(most, std::abs(walk[j] - ranks[j] * end));
    sum += most * most;
  }
  return sum / kBridges;
}

std::vector<BlockScale> block_scales(std::span<const Quantiles> blocks) {
  Quantiles whole(4'096);
  for (const auto& block : blocks) whole.merge(block);
  const double all = static_cast<double>(whole.count()), chance = gap_square_mean(whole);
  const auto count = [](const Quantiles& q) { return static_cast<double>(q.count()); };
  const auto join = [](Quantiles a, const Quantiles& b) {
    a.merge(b);
    return a;
  };
  const auto ratio = [&](const Quantiles& piece) {
    const double gap = ks(whole, piece);
    return gap * gap * count(piece) / (chance * outside_of(count(piece), all));
  };
  return scales_of(std::vector<Quantiles>(blocks.begin(), blocks.end()), join, ratio, count);
}

std::vector<BlockScale> block_scales(std::span<const Frequent> blocks) {
  Frequent whole(4'096);
  for (const auto& block : blocks) whole.merge(block);
  const auto top = whole.top(kCategoriesMax);
  if (top.size() < 2) return {};
  const double all = static_cast<double>(whole.total());
  const auto count = [](const Frequent& f) { return static_cast<double>(f.total()); };
  const auto join = [](Frequent a, const Frequent& b) {
    a.merge(b);
    return a;
  };
  const auto ratio = [&](const Frequent& piece) {
    double squares = 0, left = 1, left_here = 1;
    for (const auto& [text, counted] : top) {
      const double share = static_cast<double>(counted) / all;
      const double here = static_cast<double>(piece.counted(text)) / count(piece);
      squares += (here - share) * (here - share) / share;
      left -= share, left_here -= here;
    }
    double freedom = static_cast<double>(top.size()) - 1;
    if (left * all >= 1) squares += (left_here - left) * (left_here - left) / left, ++freedom;
    return squares * count(piece) / (freedom * outside_of(count(piece), all));
  };
  return scales_of(std::vector<Frequent>(blocks.begin(), blocks.end()), join, ratio, count);
}

std::vector<BlockScale> block_scales(std::span<const double> marked, std::span<const double> counts) {
  CHECK(marked.size() == counts.size(), "each block has both");
  struct Piece {
    double marked, rows;
  };
  std::vector<Piece> pieces;
  Piece whole{0, 0};
  for (std::size_t i = 0; i < marked.size(); ++i) {
    pieces.push_back({marked[i], counts[i]});
    whole.marked += marked[i], whole.rows += counts[i];
  }
  if (whole.marked <= 0 || whole.marked >= whole.rows) return {};
  const double share = whole.marked / whole.rows;
  const auto count = [](const Piece& piece) { return piece.rows; };
  const auto join = [](const Piece& a, const Piece& b) { return Piece{a.marked + b.marked, a.rows + b.rows}; };
  const auto ratio = [&](const Piece& piece) {
    const double difference = piece.marked / piece.rows - share;
    return difference * difference * piece.rows / (share * (1 - share) * outside_of(piece.rows, whole.rows));
  };
  return scales_of(std::move(pieces), join, ratio, count);
}

double design_effect(std::span<const BlockScale> scales) {
  double most = 1;
  for (const auto& scale : scales) {
    const double n = static_cast<double>(scale.ratios.size());
    if (n < 2) continue;
    double mean = 0, squares = 0;
    for (const double ratio : scale.ratios) mean += ratio / n;
    for (const double ratio : scale.ratios) squares += (ratio - mean) * (ratio - mean) / (n - 1);
    // Chance alone reaches so far above 1, too: only what is beyond says something of the stream.
    const double sure = mean + kSureZ * std::sqrt(squares / n);
    if (mean > 1) most = std::max(most, sure);
  }
  return most;
}

}  // namespace falaj::stats
