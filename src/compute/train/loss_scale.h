// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "foundation/base/bytes.h"

namespace falaj::train {

// Numbers of fp16 end at 65504 and at 6e-8: small gradients are nothing in them. So the loss is multiplied by as much
// as the gradient bears: halved when it overflowed, doubled when it has not for long (Micikevicius and others, 2018,
// "Mixed Precision Training"). Pure.
class LossScale {
 public:
  static constexpr double kFirst = 65'536, kMost = 16'777'216;
  static constexpr std::uint64_t kGoodSteps = 2000;  // after which it is doubled

  LossScale() = default;  // of arithmetic that needs none: 1, always
  static LossScale dynamic() {
    LossScale out;
    out.on_ = true;
    out.value_ = kFirst;
    return out;
  }

  bool on() const { return on_; }
  double value() const { return value_; }

  // What a gradient of this length is to be multiplied by before a step is made of it. Nothing: it overflowed, and no
  // step is to be made of it.
  std::optional<double> take(double norm);

  void encode(ByteWriter& out) const;
  void decode(ByteReader& in);  // what encode() wrote; whether it is on stays

 private:
  bool on_ = false;
  double value_ = 1;
  std::uint64_t good_ = 0;  // steps since it was changed
};

}  // namespace falaj::train
