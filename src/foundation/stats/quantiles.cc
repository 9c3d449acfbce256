// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/quantiles.h"

#include <algorithm>
#include <cmath>

#include "foundation/stats/wire.h"

namespace falaj::stats {

namespace {

constexpr std::size_t kLevelMin = 8;  // no level is smaller: the error of tiny ones adds up
constexpr std::size_t kLevelsMax = 56;

bool coin(std::uint64_t n) {
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
  n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
  return (n >> 63) != 0;
}

}  // namespace

Quantiles::Quantiles(std::uint32_t k) : k_(k), k_error_(k) {
  CHECK(k >= kMin && k <= kMax, "k is between kMin and kMax");
  held_max_ = capacity_of_all();
}

// Fitted by the DataSketches project to measurements of this algorithm with the same smallest level.
double Quantiles::rank_error() const { return 2.296 / std::pow(k_error_, 0.9723); }
double Quantiles::rank_error_everywhere() const { return 2.446 / std::pow(k_error_, 0.9433); }

std::size_t Quantiles::capacity(std::size_t level) const {
  const auto depth = static_cast<double>(levels_.size() - 1 - level);
  return std::max(kLevelMin, static_cast<std::size_t>(std::ceil(k_ * std::pow(2.0 / 3, depth))));
}

std::size_t Quantiles::capacity_of_all() const {
  std::size_t all = 0;
  for (std::size_t i = 0; i < levels_.size(); ++i) all += capacity(i);
  return all;
}

void Quantiles::add(double value) {
  if (std::isnan(value)) return;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  ++count_;
  levels_[0].push_back(value);
  if (++held_ > held_max_) compact_one();
}

// Halves the lowest level that is full: sorts it and moves every other value up, where it stands for two.
void Quantiles::compact_one() {
  std::size_t level = 0;
  while (levels_[level].size() < capacity(level)) ++level;  // one is: all together are above their sum
  if (level + 1 == levels_.size()) {
    levels_.emplace_back();
    held_max_ = capacity_of_all();
  }
  auto& from = levels_[level];
  auto& to = levels_[level + 1];
  std::sort(from.begin(), from.end());
  const std::size_t odd = from.size() % 2;  // one without a partner stays
  for (std::size_t i = odd + (coin(count_ * kLevelsMax + level) ? 1 : 0); i < from.size(); i += 2)
    to.push_back(from[i]);
  held_ -= (from.size() - odd) / 2;
  from.resize(odd);
}

void Quantiles::sort() {
  for (auto& level : levels_) std::sort(level.begin(), level.end());
}

void Quantiles::merge(const Quantiles& other) {
  if (other.count_ == 0) return;
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  k_error_ = std::min(k_error_, other.k_error_);
  if (levels_.size() < other.levels_.size()) levels_.resize(other.levels_.size());
  for (std::size_t i = 0; i < other.levels_.size(); ++i) {
    auto& to = levels_[i];
    const auto& from = other.levels_[i];
    // What is in order stays so: windows are compared, put together and compared again.
    const bool in_order = std::is_sorted(to.begin(), to.end()) && std::is_sorted(from.begin(), from.end());
    const auto before = static_cast<std::ptrdiff_t>(to.size());
    to.insert(to.end(), from.begin(), from.end());
    if (in_order) std::inplace_merge(to.begin(), to.begin() + before, to.end());
  }
  held_ += other.held_;
  held_max_ = capacity_of_all();
  while (held_ > held_max_) compact_one();
}

std::vector<Quantiles::Weighted> Quantiles::sorted() const {
  const auto less = [](const Weighted& a, const Weighted& b) { return a.value < b.value; };
  std::vector<Weighted> all;
  all.reserve(held_);
  std::vector<double> values;
  for (std::size_t i = 0; i < levels_.size(); ++i) {  // each level by itself: plain numbers are sorted twice as fast
    values = levels_[i];
    if (!std::is_sorted(values.begin(), values.end())) std::sort(values.begin(), values.end());
    const auto before = static_cast<std::ptrdiff_t>(all.size());
    for (const double v : values) all.push_back({v, std::uint64_t{1} << i});
    std::inplace_merge(all.begin(), all.begin() + before, all.end(), less);
  }
  return all;
}

Ordered::Ordered(const Quantiles& sketch)
    : values(sketch.sorted()), count(sketch.count()), max(sketch.max()), rank_error(sketch.rank_error()) {}

double Quantiles::rank(double value) const {
  if (count_ == 0) return 0;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < levels_.size(); ++i)
    for (const double v : levels_[i]) below += v <= value ? std::uint64_t{1} << i : 0;
  return static_cast<double>(below) / static_cast<double>(count_);
}

double Quantiles::quantile(double share) const {
  CHECK(share >= 0 && share <= 1, "a share is between 0 and 1");
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  if (share == 0) return min_;
  if (share == 1) return max_;
  const double wanted = share * static_cast<double>(count_);
  double below = 0;
  for (const auto& [value, weight] : sorted())
    if ((below += static_cast<double>(weight)) >= wanted) return value;
  return max_;
}

void Quantiles::encode(ByteWriter& out) const {
  out.u32(k_);
  out.u32(k_error_);
  out.u64(count_);
  put_real(out, min_);
  put_real(out, max_);
  out.u8(static_cast<std::uint8_t>(levels_.size()));
  for (const auto& level : levels_) {
    out.u32(static_cast<std::uint32_t>(level.size()));
    for (const double v : level) put_real(out, v);
  }
}

Quantiles Quantiles::decode(ByteReader& in) {
  const auto k = in.u32();
  must_be(k >= kMin && k <= kMax, "k");
  Quantiles q(k);
  q.k_error_ = in.u32();
  must_be(q.k_error_ >= kMin && q.k_error_ <= k, "k");
  q.count_ = get_count(in);
  q.min_ = get_real(in);
  q.max_ = get_real(in);
  const std::size_t levels = in.u8();
  must_be(levels >= 1 && levels <= kLevelsMax, "its levels");
  q.levels_.resize(levels);
  q.held_max_ = q.capacity_of_all();
  std::uint64_t weight = 0;
  for (std::size_t i = 0; i < levels; ++i) {
    const std::size_t size = in.u32();
    must_be(size <= in.left() / 8 && (q.held_ += size) <= q.held_max_, "its size");
    must_be(size <= (kCountMax >> i) && (weight += std::uint64_t{size} << i) <= kCountMax, "its weight");
    q.levels_[i].reserve(size);
    for (std::size_t n = 0; n < size; ++n) {
      const double v = get_real(in);
      must_be(v >= q.min_ && v <= q.max_, "a value out of its range");
      q.levels_[i].push_back(v);
    }
  }
  must_be(weight == q.count_, "its weight");
  must_be(q.count_ > 0 || (std::isinf(q.min_) && std::isinf(q.max_) && q.min_ > q.max_), "its range");
  return q;
}

}  // namespace falaj::stats
