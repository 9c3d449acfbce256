// SPDX-License-Identifier: Apache-2.0
#include "compute/train/tensors.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace falaj::train {
namespace {

// Two layers, and a loss of what comes out of some rows.
struct World {
  Plan plan;
  recipe::Network network;
  Inputs in;

  World() {
    plan.weights = {{"a", {8, 4}, Weight::Init::uniform, 0.5},
                    {"b", {8}, Weight::Init::zeros, 0, false},
                    {"c", {1, 8}, Weight::Init::uniform, 0.5},
                    {"d", {1}, Weight::Init::zeros, 0, false}};
    Layer first{Layer::Op::linear, 4, 8, {0, 1}}, relu{Layer::Op::relu}, last{Layer::Op::linear, 8, 1, {2, 3}};
    plan.layers = {first, relu, last};
    torch::manual_seed(5);
    in.numbers = torch::randn({64, 4});
    in.labels = (in.numbers.sum(1) > 0).to(torch::kFloat32);
    in.weights = torch::ones({64});
  }

  Tensor loss(const Weights& weights) const {
    return loss_of(forward(plan, weights, in.numbers, in.ids, true), in, Objective::binary, 1);
  }
};

// The loop over spans and the library's own pieces are the same step.
TEST(Tensors, AdamIsTheSameWhereverWeightsLie) {
  torch::manual_seed(7);
  auto weights = torch::randn({1000}), gradient = torch::randn({1000}), first = torch::zeros({1000}),
       second = torch::zeros({1000});
  const auto decays = (torch::randn({1000}) > 0).to(torch::kFloat32);
  auto other_weights = weights.clone(), other_first = first.clone(), other_second = second.clone();
  const auto floats = [](const Tensor& t) {
    return std::span(t.data_ptr<float>(), static_cast<std::size_t>(t.numel()));
  };
  for (int steps = 1; steps <= 10; ++steps) {
    const AdamStep step{0.01, 0.1, 0.5, 1 - std::pow(kAdamFirst, steps), 1 - std::pow(kAdamSecond, steps)};
    adam_step(step, {floats(weights), floats(gradient), floats(first), floats(second), floats(decays)});
    adam_step(step, other_weights, gradient, other_first, other_second, decays);
  }
  EXPECT_LT((weights - other_weights).abs().max().item<float>(), 2e-6);
  EXPECT_GT((weights - gradient).abs().max().item<float>(), 0.1);  // they moved at all
}

// A scaled loss makes the same weights, bit by bit: the scale is a power of two. A step that overflows is left out.
TEST(Tensors, AScaledLossTeachesTheSame) {
  const World world;
  for (const auto* optimiser : {"adamw", "sgd"}) {
    auto network = world.network;
    network.optimiser = optimiser;
    Weights plain(world.plan, 3), weights(world.plan, 3);
    Optimiser plain_step(network, world.plan), step(network, world.plan);
    auto scale = LossScale::dynamic();
    for (int i = 0; i < 20; ++i) {
      scaled(world.loss(plain), 1, {}).backward();
      plain_step.step(plain.flat(), plain.gradient(), 0.05);
      plain.gradient().zero_();
      for (const bool overflows : {i == 4, false}) {
        scaled(world.loss(weights), 1, scale).backward();
        if (overflows) weights.gradient()[2] = std::numeric_limits<float>::infinity();
        const double norm = weights.gradient().norm().item<float>();
        if (const auto factor = scale.take(norm)) step.step(weights.flat(), weights.gradient(), 0.05, norm, *factor);
        weights.gradient().zero_();
        if (!overflows) break;
      }
    }
    EXPECT_EQ(scale.value(), LossScale::kFirst / 2);
    EXPECT_TRUE(torch::equal(plain.flat(), weights.flat())) << optimiser;
    EXPECT_LT(world.loss(weights).item<float>(), 0.5);
  }
}

TEST(Tensors, AScaledLossIsAShareWhereSeveralMakeOneStep) {
  const auto loss = torch::full({1}, 6.0F);
  EXPECT_EQ(scaled(loss, 3, {}).item<float>(), 2);
  EXPECT_EQ(scaled(loss, 3, LossScale::dynamic()).item<float>(), 2 * LossScale::kFirst);
}

}  // namespace
}  // namespace falaj::train
