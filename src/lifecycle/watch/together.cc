// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/together.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "foundation/stats/blocks.h"
#include "foundation/stats/drift.h"

namespace falaj::watch {
namespace {

constexpr std::size_t kPieces = 32, kPieceRowsMin = 20;
constexpr std::size_t kRestFactor = 4;  // a piece is compared with so many times as many others: more tell little more
constexpr std::uint64_t kSplitSeed = 1;
constexpr std::size_t kAspectsTold = 3;

double weakened(double z, double effect) { return stats::normal_above_p(z / std::sqrt(effect)); }

std::string told(const stats::Aspect& aspect, const std::vector<std::string>& names) {
  const auto& first = names[aspect.first];
  if (aspect.first != aspect.second)
    return fmt::format("how {} and {} go together ({:.2f}, now {:.2f})", first, names[aspect.second], aspect.in_a,
                       aspect.in_b);
  if (aspect.squared) return fmt::format("the spread of {}", first);
  return fmt::format("the mean of {} ({:+.2f} deviations)", first, aspect.in_b - aspect.in_a);
}

}  // namespace

ReferenceRows::ReferenceRows(const stats::RowSample& sample, const Wanted& wanted) {
  std::vector<std::size_t> from;
  bool texts = false;
  for (std::size_t i = 0; i < sample.columns().size(); ++i) {
    const auto& column = sample.columns()[i];
    if (!wanted(column.name)) continue;
    place_[column.name] = columns_.size();
    columns_.push_back(column);
    from.push_back(i);
    texts = texts || column.text;
  }
  shares_.resize(columns_.size());
  const auto all = sample.rows();
  const auto value = [&](std::size_t row, std::size_t column) { return all.values[row * all.width + from[column]]; };
  if (texts) {
    const double each = 1 / std::max(1.0, static_cast<double>(all.count() / 2));
    for (std::size_t row = 1; row < all.count(); row += 2)
      for (std::size_t c = 0; c < columns_.size(); ++c)
        if (columns_[c].text && !std::isnan(value(row, c))) shares_[c][value(row, c)] += each;
  }
  for (std::size_t row = 0; row < all.count() && !columns_.empty(); row += texts ? 2 : 1)
    for (std::size_t c = 0; c < columns_.size(); ++c) values_.push_back(encoded(c, value(row, c)));
  learn_effects();
}

double ReferenceRows::encoded(std::size_t column, double value) const {
  if (!columns_[column].text || std::isnan(value)) return value;
  const auto found = shares_[column].find(value);
  return found == shares_[column].end() ? 0 : found->second;
}

// How far pieces of consecutive rows can be told from the others, over what independent rows would show.
void ReferenceRows::learn_effects() {
  const auto all = rows();
  if (all.count() < kPieces * kPieceRowsMin) return;
  struct Piece {
    std::size_t from, until;
  };
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < kPieces; ++i)
    pieces.push_back({i * all.count() / kPieces, (i + 1) * all.count() / kPieces});
  const auto count = [](const Piece& piece) { return static_cast<double>(piece.until - piece.from); };
  const auto join = [](const Piece& a, const Piece& b) { return Piece{a.from, b.until}; };
  const auto effect_of = [&](const auto& test) {
    const auto ratio = [&](const Piece& piece) {
      const std::size_t many = piece.until - piece.from, rest = all.count() - many;
      const std::size_t step = std::max<std::size_t>(1, rest / (kRestFactor * many));
      std::vector<double> others;
      for (std::size_t i = 0; i < all.count(); i += step)
        if (i < piece.from || i >= piece.until)
          others.insert(others.end(), all.values.begin() + static_cast<std::ptrdiff_t>(i * all.width),
                        all.values.begin() + static_cast<std::ptrdiff_t>((i + 1) * all.width));
      const double z =
          test(stats::Rows{others, all.width},
               stats::Rows{all.values.subspan(piece.from * all.width, many * all.width), all.width}, kSplitSeed)
              .z;
      return z * z;
    };
    return stats::design_effect(stats::scales_of(pieces, join, ratio, count));
  };
  classifier_effect_ = effect_of(stats::classifier_test);
  kernel_effect_ = effect_of(stats::kernel_test);
}

ReferenceRows::Apart ReferenceRows::compare(const stats::RowSample& window, const Wanted& wanted) const {
  struct Both {
    std::size_t here, there;
  };
  std::vector<Both> both;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < window.columns().size(); ++i) {
    const auto& column = window.columns()[i];
    const auto found = place_.find(column.name);
    if (found == place_.end() || columns_[found->second].text != column.text || !wanted(column.name)) continue;
    both.push_back({found->second, i});
    names.push_back(column.name);
  }
  Apart out;
  out.columns = both.size();
  if (both.size() < 2) return out;  // one is looked at by itself
  const auto was = rows(), is = window.rows();
  std::vector<double> a, b;
  a.reserve(was.count() * both.size());
  for (std::size_t row = 0; row < was.count(); ++row)
    for (const auto& one : both) a.push_back(was.values[row * was.width + one.here]);
  for (std::size_t row = 0; row < is.count(); ++row)
    for (const auto& one : both) b.push_back(encoded(one.here, is.values[row * is.width + one.there]));
  // One split for each window, whoever looks at it how often.
  const auto seed = window.seen();
  const auto by_classifier = stats::classifier_test({a, both.size()}, {b, both.size()}, seed);
  const auto by_kernel = stats::kernel_test({a, both.size()}, {b, both.size()}, seed);
  out.classifier_p = weakened(by_classifier.z, classifier_effect_);
  out.kernel_p = weakened(by_kernel.z, kernel_effect_);
  out.area = by_classifier.statistic;
  for (std::size_t i = 0; i < std::min(kAspectsTold, by_classifier.aspects.size()); ++i)
    out.most += fmt::format("{}{}", i == 0 ? "" : ", ", told(by_classifier.aspects[i], names));
  return out;
}

}  // namespace falaj::watch
