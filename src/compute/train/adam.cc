// SPDX-License-Identifier: Apache-2.0
#include "compute/train/adam.h"

#include <cmath>
#include <cstddef>

namespace falaj::train {
namespace {

struct Factors {
  float scale, decay, step, second_left, keep_first, add_first, keep_second, add_second, least;
};

// For each kind of processor: the loop is nothing but memory and a few instructions on vectors.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void step_over(std::size_t count, float* __restrict weights, const float* __restrict gradient, float* __restrict first,
               float* __restrict second, const float* __restrict decays, Factors f) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.scale;
    const float m = first[i] * f.keep_first + g * f.add_first;
    const float v = second[i] * f.keep_second + g * g * f.add_second;
    first[i] = m;
    second[i] = v;
    const float w = weights[i] - weights[i] * decays[i] * f.decay;
    weights[i] = w - f.step * m / (std::sqrt(v * f.second_left) + f.least);
  }
}

}  // namespace

void adam_step(const AdamStep& step, const AdamState& state) {
  const Factors factors{static_cast<float>(step.scale),
                        static_cast<float>(step.rate * step.decay),
                        static_cast<float>(step.rate / step.first_left),
                        static_cast<float>(1 / step.second_left),
                        static_cast<float>(kAdamFirst),
                        static_cast<float>(1 - kAdamFirst),
                        static_cast<float>(kAdamSecond),
                        static_cast<float>(1 - kAdamSecond),
                        1e-8F};
  step_over(state.weights.size(), state.weights.data(), state.gradient.data(), state.first.data(), state.second.data(),
            state.decays.data(), factors);
}

}  // namespace falaj::train
