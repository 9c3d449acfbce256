// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/stats/together.h"

namespace falaj::stats {

// Whole rows of a stream, chosen by chance alone: those with the smallest keys, which follow from a seed and the row's
// number and never from what is in it. Every row below the bound was kept, so samples can be put together, and the
// result is as good a sample of all of it (a theta sketch: Dasgupta, Lang, Rhodes, Thaler, "A framework for estimating
// stream expression cardinalities", 2016). Rows stay in the order in which they came.
class RowSample {
 public:
  static constexpr std::size_t kWidthMax = 64;
  static constexpr std::uint32_t kRowsMax = 10'000;
  struct Column {
    std::string name;
    bool text = false;  // values are text_code()s
    friend bool operator==(const Column&, const Column&) = default;
  };

  RowSample() = default;  // of no columns: takes on those of what is merged into it
  // Requires: at most kWidthMax columns, 1 <= limit <= kRowsMax
  RowSample(std::vector<Column> columns, std::uint32_t limit);

  static std::uint64_t key(std::uint64_t seed, std::uint64_t number);
  void add(std::uint64_t key, std::span<const double> row);  // not-a-number: missing
  // Of other columns, what was there goes: halves of both would be neither.
  void merge(const RowSample& other);
  void set_limit(std::uint32_t limit);

  const std::vector<Column>& columns() const { return columns_; }
  std::uint64_t seen() const { return seen_; }
  std::size_t count() const { return keys_.size(); }  // about the limit; at most it after merge()
  Rows rows() const { return {values_, columns_.size()}; }

  void encode(ByteWriter& out) const;       // numbers to about seven digits
  static RowSample decode(ByteReader& in);  // throws corrupt

 private:
  void drop_beyond();

  std::vector<Column> columns_;
  std::uint32_t limit_ = 1;
  std::uint64_t bound_ = UINT64_MAX;  // rows with a key below it are here, all of them
  std::uint64_t seen_ = 0;
  std::vector<std::uint64_t> keys_;
  std::vector<double> values_;  // row by row
};

// A text as a number that a float holds exactly: the same wherever it is computed. Two texts share one with a chance of
// one in 16 million.
double text_code(std::string_view text);

}  // namespace falaj::stats
