// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "foundation/base/error.h"
#include "foundation/stats/distance.h"
#include "foundation/stats/drift.h"

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
  const Ordered all_in_order(whole);
  const auto ratio = [&](const Quantiles& piece) {
    const double gap = ks(all_in_order, piece);
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

namespace {

// Of marks, each with how often each block has it, the one that varies most at each length.
std::vector<BlockScale> worst_of(const std::vector<std::vector<double>>& marked, std::span<const double> counts) {
  std::vector<BlockScale> out;
  const auto sum = [](const BlockScale& scale) {
    return std::accumulate(scale.ratios.begin(), scale.ratios.end(), 0.0);
  };
  std::size_t marks = 0;
  for (const auto& mark : marked) {
    auto scales = block_scales(mark, counts);
    std::erase_if(scales, [](const BlockScale& scale) { return scale.ratios.size() < kMarkedMin; });
    marks += scales.empty() ? 0 : 1;
    out.resize(std::max(out.size(), scales.size()));
    for (std::size_t i = 0; i < scales.size(); ++i)
      if (out[i].ratios.empty() || sum(scales[i]) > sum(out[i])) out[i] = std::move(scales[i]);
  }
  for (auto& scale : out) scale.marks = marks;
  return out;
}

}  // namespace

std::vector<BlockScale> mark_scales(std::span<const Quantiles> blocks) {
  constexpr std::size_t kShares = 10;
  Quantiles whole(4'096);
  for (const auto& block : blocks) whole.merge(block);
  const auto cuts = edges(whole, kShares);
  std::vector<std::vector<double>> marked(cuts.size(), std::vector<double>(blocks.size()));
  std::vector<double> all(blocks.size());
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    all[b] = static_cast<double>(blocks[b].count());
    double below = 0;
    const auto between = counts(blocks[b], cuts);
    for (std::size_t i = 0; i < cuts.size(); ++i) marked[i][b] = below += between[i];
  }
  return worst_of(marked, all);
}

std::vector<BlockScale> mark_scales(std::span<const Frequent> blocks) {
  Frequent whole(4'096);
  for (const auto& block : blocks) whole.merge(block);
  std::vector<std::vector<double>> marked;
  std::vector<double> all;
  for (const auto& block : blocks) all.push_back(static_cast<double>(block.total()));
  for (const auto& [text, counted] : whole.top(kCategoriesMax)) {
    auto& mark = marked.emplace_back();
    for (const auto& block : blocks) mark.push_back(static_cast<double>(block.counted(text)));
  }
  return worst_of(marked, all);
}

double design_effect(std::span<const BlockScale> scales) {
  constexpr double kByChance = 0.001, kSure = 0.99;
  double most = 1;
  for (const auto& scale : scales) {
    const double n = static_cast<double>(scale.ratios.size());
    if (n < 2) continue;
    if (scale.marks > 0) {
      const double sum = std::accumulate(scale.ratios.begin(), scale.ratios.end(), 0.0);
      if (sum > chi_square_radius(n, kByChance / static_cast<double>(scale.marks)))
        most = std::max(most, sum / chi_square_radius(n, kSure));
      continue;
    }
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
