// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "foundation/base/bytes.h"

namespace falaj::stats {

// The distribution of numbers in a few kilobytes: a KLL sketch (Karnin, Lang, Liberty: "Optimal quantile approximation
// in streams", 2016). A rank is off by at most rank_error() of the count, with 99 % confidence, however long the stream
// and however it was cut up and merged. Exact up to about k values. Not-a-number is not counted. The coins of the
// compactions come from the count, so the same stream gives the same sketch.
class Quantiles {
 public:
  static constexpr std::uint32_t kMin = 8, kDefault = 400, kMax = 65'536;
  explicit Quantiles(std::uint32_t k = kDefault);  // Requires: kMin <= k <= kMax

  void add(double value);
  void merge(const Quantiles& other);  // of any k; the smaller one decides the error
  void sort();                         // changes nothing but how soon it is compared, and what it is merged into

  std::uint64_t count() const { return count_; }
  double rank_error() const;             // of one rank or quantile
  double rank_error_everywhere() const;  // of the worst of all of them at once
  double min() const { return min_; }
  double max() const { return max_; }

  // Values in order, each with how many it stands for. The weights add up to count().
  struct Weighted {
    double value;
    std::uint64_t weight;
  };
  std::vector<Weighted> sorted() const;
  double rank(double value) const;      // the share of values <= value; 0 when empty
  double quantile(double share) const;  // Requires: 0 <= share <= 1; not-a-number when empty
  friend bool operator==(const Quantiles&, const Quantiles&) = default;

  void encode(ByteWriter& out) const;
  static Quantiles decode(ByteReader& in);  // throws corrupt

 private:
  std::size_t capacity(std::size_t level) const;
  std::size_t capacity_of_all() const;
  void compact_one();

  std::uint32_t k_;
  std::uint32_t k_error_;  // the smallest k among those merged in
  std::uint64_t count_ = 0;
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  std::size_t held_ = 0;                        // values in all levels
  std::size_t held_max_ = 0;                    // kept beside it: asked at every add
  std::vector<std::vector<double>> levels_{1};  // a value of level i stands for 2^i
};

// A sketch in order. Sorting is most of what comparing costs: who compares one often, keeps it so.
struct Ordered {
  Ordered() = default;
  Ordered(const Quantiles& sketch);  // anything that compares takes both

  std::vector<Quantiles::Weighted> values;
  std::uint64_t count = 0;
  double max = -std::numeric_limits<double>::infinity();
  double rank_error = 0;
  bool is_exact() const { return values.size() == count; }
};

}  // namespace falaj::stats
