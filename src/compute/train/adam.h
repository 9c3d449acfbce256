// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

namespace falaj::train {

inline constexpr double kAdamFirst = 0.9, kAdamSecond = 0.999;  // what moments keep of what was

// One step of Adam over so many weights, each read and written once: a step that a library makes of its usual pieces
// goes through all of them eight times, which is as long as all else where batches are small.
struct AdamStep {
  double rate = 0;
  double decay = 0;        // of weights; 0 = none (Loshchilov and Hutter, 2019, "Decoupled Weight Decay")
  double scale = 1;        // of the gradient
  double first_left = 1;   // what the bias of the first moment leaves: 1 - 0.9^steps
  double second_left = 1;  // and of the second: 1 - 0.999^steps
};
struct AdamState {
  std::span<float> weights;
  std::span<const float> gradient;
  std::span<float> first, second;
  std::span<const float> decays;  // 1 where weights decay, else 0
};
// Requires: all are of one length.
void adam_step(const AdamStep& step, const AdamState& state);

}  // namespace falaj::train
