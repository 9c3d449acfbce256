// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/moments.h"

#include <algorithm>
#include <cmath>

#include "foundation/stats/wire.h"

namespace falaj::stats {

void Moments::add(double value) {
  if (std::isnan(value)) return;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  ++count_;
  const double away = value - mean_;
  mean_ += away / static_cast<double>(count_);
  m2_ += away * (value - mean_);
}

void Moments::merge(const Moments& other) {
  if (other.count_ == 0) return;
  const double a = static_cast<double>(count_), b = static_cast<double>(other.count_);
  const double apart = other.mean_ - mean_;
  count_ += other.count_;
  mean_ += apart * (b / (a + b));
  m2_ += other.m2_ + apart * apart * (a * b / (a + b));
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

double Moments::variance() const { return count_ < 2 ? 0 : m2_ / static_cast<double>(count_ - 1); }

void Moments::encode(ByteWriter& out) const {
  out.u64(count_);
  for (const double v : {mean_, m2_, min_, max_}) out.u64(std::bit_cast<std::uint64_t>(v));
}

Moments Moments::decode(ByteReader& in) {
  Moments m;
  m.count_ = get_count(in);
  // An infinity among the values makes these two not-a-number: that is how it was written.
  m.mean_ = std::bit_cast<double>(in.u64());
  m.m2_ = std::bit_cast<double>(in.u64());
  m.min_ = get_real(in);
  m.max_ = get_real(in);
  must_be(m.count_ == 0 ? m.min_ > m.max_ && m.mean_ == 0 && m.m2_ == 0 : m.min_ <= m.max_ && !(m.m2_ < 0),
          "its range");
  return m;
}

}  // namespace falaj::stats
