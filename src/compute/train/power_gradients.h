// SPDX-License-Identifier: Apache-2.0
// Private to compute/train, as tensors.h is.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/train/gang_gradients.h"

namespace falaj::train {

// Sends of each large matrix of the gradient only what a product of two thin ones can say, one step of a power
// iteration towards the best such product; what it cannot say is added to the next gradient (Vogels and others, 2019,
// "PowerSGD"). The rest is summed as it is.
class PowerGradients final : public GradientSum {
 public:
  // Requires: both outlive it.
  PowerGradients(const Plan& plan, Weights& weights, Gang& gang, std::int64_t rank, std::uint64_t seed);

  void finish() override;

 private:
  struct Matrix {
    Tensor gradient, left;  // [rows, columns]; left: unsaid so far
    Tensor p, q;            // [rows, rank], [columns, rank]; parts of one piece of memory each
  };
  Gang& gang_;
  std::vector<Matrix> matrices_;
  std::vector<Tensor> others_;  // parts of the gradient
  Tensor p_, q_, plain_;
};

}  // namespace falaj::train
