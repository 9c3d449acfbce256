// SPDX-License-Identifier: Apache-2.0
#include "compute/train/adam.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace falaj::train {
namespace {

struct World {
  std::vector<float> weights, gradient, first, second, decays;
  explicit World(std::size_t count) : weights(count), gradient(count), first(count), second(count), decays(count) {
    for (std::size_t i = 0; i < count; ++i) {
      weights[i] = std::sin(static_cast<float>(i));
      gradient[i] = std::cos(3 * static_cast<float>(i));
      decays[i] = i % 3 == 0 ? 0 : 1;
    }
  }
  AdamState state(std::size_t begin, std::size_t end) {
    const auto part = [&](std::vector<float>& of) { return std::span(of).subspan(begin, end - begin); };
    return {part(weights), part(gradient), part(first), part(second), part(decays)};
  }
};

TEST(Adam, IsWhatTheFormulaSays) {
  World world(37);
  std::vector<double> weights(world.weights.begin(), world.weights.end()), first(37, 0), second(37, 0);
  for (int steps = 1; steps <= 20; ++steps) {
    AdamStep step{0.01, 0.1, 0.5, 1 - std::pow(kAdamFirst, steps), 1 - std::pow(kAdamSecond, steps)};
    adam_step(step, world.state(0, 37));
    for (std::size_t i = 0; i < 37; ++i) {
      const double g = 0.5 * world.gradient[i];
      first[i] = kAdamFirst * first[i] + (1 - kAdamFirst) * g;
      second[i] = kAdamSecond * second[i] + (1 - kAdamSecond) * g * g;
      weights[i] *= 1 - 0.01 * 0.1 * world.decays[i];
      weights[i] -= 0.01 * (first[i] / step.first_left) / (std::sqrt(second[i] / step.second_left) + 1e-8);
      EXPECT_NEAR(world.weights[i], weights[i], 2e-6) << steps;
    }
  }
}

// Whoever makes a part of a step makes the same of it: ranks share it out.
TEST(Adam, PartsAreTheWhole) {
  World whole(1000), parts(1000);
  for (int steps = 1; steps <= 5; ++steps) {
    const AdamStep step{0.01, 0.1, 0.7, 1 - std::pow(kAdamFirst, steps), 1 - std::pow(kAdamSecond, steps)};
    adam_step(step, whole.state(0, 1000));
    for (const auto& [begin, end] : {std::pair(0, 3), {3, 500}, {500, 517}, {517, 1000}})
      adam_step(step, parts.state(static_cast<std::size_t>(begin), static_cast<std::size_t>(end)));
  }
  EXPECT_EQ(std::memcmp(whole.weights.data(), parts.weights.data(), 1000 * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(whole.second.data(), parts.second.data(), 1000 * sizeof(float)), 0);
}

}  // namespace
}  // namespace falaj::train
