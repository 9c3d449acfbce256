// SPDX-License-Identifier: Apache-2.0
#include "compute/train/loss_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace falaj::train {

std::optional<double> LossScale::take(double norm) {
  if (!on_) return 1;
  if (!std::isfinite(norm)) {
    value_ = std::max(value_ / 2, 1.0);
    good_ = 0;
    return std::nullopt;
  }
  const double factor = 1 / value_;
  if (++good_ == kGoodSteps) {
    value_ = std::min(value_ * 2, kMost);
    good_ = 0;
  }
  return factor;
}

void LossScale::encode(ByteWriter& out) const {
  out.u64(std::bit_cast<std::uint64_t>(value_));
  out.u64(good_);
}

void LossScale::decode(ByteReader& in) {
  value_ = std::bit_cast<double>(in.u64());
  good_ = in.u64();
}

}  // namespace falaj::train
