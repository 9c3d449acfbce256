// SPDX-License-Identifier: Apache-2.0
// Private to compute/train: what is made of libtorch. Its headers take a compiler twenty seconds: few files include
// this one, and no other header does.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compute/recipe/recipe.h"
#include "compute/train/adam.h"
#include "compute/train/gang.h"
#include "compute/train/layers.h"
#include "compute/train/loss_scale.h"
#include "compute/train/model.h"

namespace falaj::train {

using torch::Tensor;

// Where the tensors of a training are: on its task's GPU when it asked for one, which is the first that is visible.
torch::Device device_of(const recipe::Training& training);

// All weights of a plan in one piece of memory, and each as a part of it. One piece is what an optimiser steps over,
// what ranks exchange and what a checkpoint holds.
class Weights {
 public:
  Weights(const Plan& plan, std::uint64_t seed, torch::Device device = torch::kCPU);

  const Tensor& operator[](std::size_t i) const { return parts_[i]; }
  Tensor& flat() { return flat_; }
  Tensor& gradient() { return gradient_; }  // backward() adds to it
  torch::Device device() const { return flat_.device(); }
  std::vector<std::vector<float>> values() const;

 private:
  Tensor flat_, gradient_;
  std::vector<Tensor> parts_;
};

// What a step gives back is kept for the next one. Else the system takes the pages of every large tensor, and clears
// and gives them again at the next step: a third of the time of a small convolutional network.
void keep_memory();
void release_memory();  // after the last step: others need it now

// Rows as tensors; on a processor they lie in the block. Images are numbers from 0 to 1.
struct Inputs {
  Tensor numbers, ids, labels, weights, groups;

  Inputs part(std::int64_t first, std::int64_t count) const;
};
Inputs inputs_of(const RowBlock& block, const loader::Layout& layout, torch::Device device = torch::kCPU);

// The most bytes of tensors that there are at once while `work` runs, beyond those that were there before it.
std::int64_t most_bytes_of(const std::function<void()>& work);
// Whether an exception means that there is no more memory.
bool is_out_of_memory(const std::exception& e);

// For a network of which this process has a part: what passes between layers that are split, and a chance that depends
// on the layer alone, wherever it is.
struct Apart {
  Gang& gang;
  std::uint64_t seed = 0;
  std::size_t first_layer = 0;  // of the whole network
};
// `numbers`: of the rows, or what the layers before made of them. Requires: layers are split only when `apart` is
// there.
Tensor forward(const Plan& plan, const Weights& weights, const Tensor& numbers, const Tensor& ids, bool training,
               const Apart* apart = nullptr);
// While training, with arithmetic of this precision; what comes out is fp32.
Tensor forward_at_precision(const Plan& plan, const Weights& weights, const Inputs& in, const std::string& precision);
Tensor linked(const Tensor& out, Objective objective);  // predictions of what forward() gave
// Mean over the rows by their weights, or of a ranking over the groups, which are runs of equal numbers; `deviation`:
// of the label of a regression. With `weight`, that of all rows of a step of which these are some, it is their share of
// the mean.
// Rows that all weigh nothing have a loss of 0 and no gradient.
inline constexpr double kWeightMin = 1e-30;  // what a mean is divided by at least
Tensor loss_of(const Tensor& out, const Inputs& rows, Objective objective, double deviation,
               std::optional<double> weight = {});

// What backward() is called of: a share of the loss where several make one step.
Tensor scaled(const Tensor& loss, std::int64_t accumulate, const LossScale& scale);

// Steps over all weights at once, or over those of the flat ones from `first` on.
class Optimiser {
 public:
  Optimiser(const recipe::Network& network, const Plan& plan) : Optimiser(network, plan, 0, plan.parameters()) {}
  Optimiser(const recipe::Network& network, const Plan& plan, std::int64_t first, std::int64_t count);
  // Clips the gradient first, by its length, or by that of the whole gradient of which it is a part. `scale`: what it
  // is to be multiplied by before that (loss_scale.h).
  void step(Tensor& weights, Tensor& gradient, double rate, std::optional<double> norm = {}, double scale = 1);

  Tensor& first() { return first_; }
  Tensor& second() { return second_; }
  std::uint64_t& steps() { return steps_; }

 private:
  const recipe::Network& network_;
  Tensor first_, second_, decays_;
  std::uint64_t steps_ = 0;
};

// As adam_step() of spans, made of a library's usual pieces: for weights that lie where our loop cannot go.
void adam_step(const AdamStep& step, Tensor& weights, const Tensor& gradient, Tensor& first, Tensor& second,
               const Tensor& decays);

}  // namespace falaj::train
