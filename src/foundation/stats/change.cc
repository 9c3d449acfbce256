// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/change.h"

#include <algorithm>
#include <cmath>

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

bool PageHinkley::add(double value) {
  ++count_;
  mean_ += (value - mean_) / static_cast<double>(count_);
  sum_ += value - mean_ - slack_;
  least_ = std::min(least_, sum_);
  if (rise() <= threshold_) return false;
  *this = PageHinkley(slack_, threshold_);
  return true;
}

}  // namespace falaj::stats
