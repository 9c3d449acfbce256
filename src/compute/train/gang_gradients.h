// SPDX-License-Identifier: Apache-2.0
// Private to compute/train, as tensors.h is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compute/train/gang.h"
#include "compute/train/tensors.h"

namespace falaj::train {

// Sums a gradient over all ranks while backward() is still making the rest of it: what belongs to the last layers is
// ready first, and is on its way while the first layers are worked on.
class GangGradients {
 public:
  // Requires: both outlive it, and it outlives every backward().
  GangGradients(const Plan& plan, Weights& weights, Gang& gang);
  ~GangGradients();

  void begin();   // before the backward() that completes the gradient
  void finish();  // after it: the gradient is everybody's

 private:
  struct Piece {
    std::int64_t first = 0, count = 0;  // of the flat gradient
    std::size_t weights = 0, missing = 0;
  };
  class Hook;
  void ready(std::size_t piece);
  void send_ready();

  Weights& weights_;
  Gang& gang_;
  std::vector<Piece> pieces_;  // those of the last weights first
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::vector<std::uintptr_t> hooks_;
  std::size_t sent_ = 0;
  bool active_ = false;
};

}  // namespace falaj::train
