// SPDX-License-Identifier: Apache-2.0
// Private to compute/train, as tensors.h is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compute/train/gang.h"
#include "compute/train/squeeze.h"
#include "compute/train/tensors.h"

namespace falaj::train {

// Makes the gradients of all ranks one.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  virtual void begin() {}     // before the backward() that completes the gradient
  virtual void finish() = 0;  // after it: the gradient is everybody's, and the same everywhere
};

// Sums a gradient over all ranks while backward() is still making the rest of it: what belongs to the last layers is
// ready first, and is on its way while the first layers are worked on.
class GangGradients final : public GradientSum {
 public:
  // With `squeeze` each rank sends its own in fewer bytes, and all add up what they got. Requires: all outlive it, and
  // it outlives every backward().
  GangGradients(const Plan& plan, Weights& weights, Gang& gang, std::unique_ptr<Squeeze> squeeze);
  ~GangGradients() override;

  void begin() override;
  void finish() override;

 private:
  struct Piece {
    std::int64_t first = 0, count = 0;  // of the flat gradient
    std::size_t weights = 0, missing = 0;
    Bytes mine, all;  // squeezed
  };
  class Hook;
  void ready(std::size_t piece);
  void send_ready();
  std::span<float> floats(const Piece& piece);

  Weights& weights_;
  Gang& gang_;
  const std::unique_ptr<Squeeze> squeeze_;
  std::vector<Piece> pieces_;  // those of the last weights first
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::vector<std::uintptr_t> hooks_;
  std::size_t sent_ = 0;
  bool active_ = false;
};

}  // namespace falaj::train
