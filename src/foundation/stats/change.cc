// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/change.h"

#include <algorithm>
#include <cmath>

#include "foundation/stats/wire.h"

namespace falaj::stats {

std::optional<Adwin::Cut> Adwin::add(double value) {
  if (rows_.empty()) rows_.emplace_back();
  rows_[0].push_back({value, 0});
  ++count_;
  sum_ += value;
  compress();
  return ++added_ % kLooks == 0 ? look() : std::nullopt;
}

// The two oldest buckets of a row that is too long become one of the next.
void Adwin::compress() {
  for (std::size_t row = 0; row < rows_.size() && rows_[row].size() > kBuckets; ++row) {
    if (row + 1 == rows_.size()) rows_.emplace_back();
    auto& from = rows_[row];
    const double size = std::ldexp(1, static_cast<int>(row));
    const double apart = (from[0].sum - from[1].sum) / size;
    rows_[row + 1].push_back({from[0].sum + from[1].sum, from[0].squares + from[1].squares + apart * apart * size / 2});
    from.erase(from.begin(), from.begin() + 2);
  }
}

double Adwin::squares() const {
  double all = 0;
  const double middle = mean();
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const double size = std::ldexp(1, static_cast<int>(row));
    for (const Bucket& bucket : rows_[row]) {
      const double off = bucket.sum / size - middle;
      all += bucket.squares + off * off * size;
    }
  }
  return all;
}

void Adwin::drop_oldest() {
  auto& row = rows_.back();
  count_ -= std::uint64_t{1} << (rows_.size() - 1);
  sum_ -= row.front().sum;
  row.erase(row.begin());
  while (!rows_.empty() && rows_.back().empty()) rows_.pop_back();
}

std::optional<Adwin::Cut> Adwin::look() {
  std::optional<Cut> cut;
  for (bool again = true; again && count_ >= 2 * kShortest;) {
    again = false;
    const double all = static_cast<double>(count_), variance = squares() / all;
    const double spread = std::log(2 * std::log(std::max(all, 3.0)) / level_);
    double old_count = 0, old_sum = 0;
    for (std::size_t row = rows_.size(); row-- > 0 && !again;) {
      for (const Bucket& bucket : rows_[row]) {
        old_count += std::ldexp(1, static_cast<int>(row));
        old_sum += bucket.sum;
        const double new_count = all - old_count;
        if (old_count < static_cast<double>(kShortest)) continue;
        if (new_count < static_cast<double>(kShortest)) break;
        const double before = old_sum / old_count, after = (sum_ - old_sum) / new_count;
        const double weight =
            1 / (old_count - static_cast<double>(kShortest) + 1) + 1 / (new_count - static_cast<double>(kShortest) + 1);
        if (std::abs(before - after) <= std::sqrt(2 * weight * variance * spread) + 2.0 / 3 * weight * spread) continue;
        cut = Cut{before, after, (cut ? cut->dropped : 0) + (std::uint64_t{1} << (rows_.size() - 1)), 0};
        drop_oldest();
        again = true;
        break;
      }
    }
  }
  if (cut) cut->kept = count_;
  return cut;
}

std::optional<PageHinkley::Rise> PageHinkley::add(double value) {
  ++count_, ++rising_;
  mean_ += (value - mean_) / static_cast<double>(count_);
  sum_ += value - mean_ - slack_;
  if (sum_ < least_) least_ = sum_, rising_ = 0;
  if (rise() <= threshold_) return std::nullopt;
  // The mean has risen a little with the values that are above it.
  const double above = slack_ + rise() / static_cast<double>(rising_),
               share = static_cast<double>(rising_) / static_cast<double>(count_);
  const Rise out{mean_ - above * share, mean_ + above, rising_};
  *this = PageHinkley(slack_, threshold_);
  return out;
}

void Adwin::encode(ByteWriter& out) const {
  out.u64(added_);
  out.u32(static_cast<std::uint32_t>(rows_.size()));
  for (const auto& row : rows_) {
    out.u32(static_cast<std::uint32_t>(row.size()));
    for (const Bucket& bucket : row) {
      put_real(out, bucket.sum);
      put_real(out, bucket.squares);
    }
  }
}

void Adwin::decode(ByteReader& in) {
  *this = Adwin(level_);
  added_ = get_count(in);
  const auto rows = in.u32();
  must_be(rows <= 60, "rows of a window");
  for (std::uint32_t row = 0; row < rows; ++row) {
    const auto buckets = in.u32();
    must_be(buckets <= kBuckets, "buckets of a window");
    auto& into = rows_.emplace_back();
    for (std::uint32_t i = 0; i < buckets; ++i) {
      into.push_back({get_real(in), get_real(in)});
      count_ += std::uint64_t{1} << row;
      sum_ += into.back().sum;
    }
  }
  must_be(std::isfinite(sum_) && count_ <= added_ && (rows_.empty() || rows <= 1 || !rows_.back().empty()), "a window");
}

void PageHinkley::encode(ByteWriter& out) const {
  out.u64(count_);
  out.u64(rising_);
  for (const double value : {mean_, sum_, least_}) put_real(out, value);
}

void PageHinkley::decode(ByteReader& in) {
  count_ = get_count(in);
  rising_ = get_count(in);
  for (double* value : {&mean_, &sum_, &least_}) *value = get_real(in);
}

double page_hinkley_threshold(const Quantiles& of, double slack, double steps, double level) {
  const auto values = of.sorted();
  const double all = static_cast<double>(of.count());
  double mean = 0;
  for (const auto& [value, weight] : values) mean += value * static_cast<double>(weight) / all;
  // The logarithm of E exp(t (value - mean - slack)), which is 0 at 0, falls, and rises again.
  const auto grows = [&](double t) {
    double sum = 0;
    for (const auto& [value, weight] : values)
      sum += static_cast<double>(weight) / all * std::exp(std::min(700.0, t * (value - mean)));
    return std::log(sum) - t * slack;
  };
  if (of.count() == 0 || of.max() - mean <= slack) return slack;  // nothing ever rises
  double low = 0, high = 1 / slack;
  while (grows(high) < 0) low = high, high *= 2;
  while (high - low > 1e-3 * low) {  // the lower end errs on the side of silence
    const double middle = (low + high) / 2;
    (grows(middle) < 0 ? low : high) = middle;
  }
  return std::log(steps / level) / low;
}

}  // namespace falaj::stats
