// SPDX-License-Identifier: Apache-2.0
#include "compute/train/squeeze.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace falaj::train {
namespace {

std::vector<float> there_and_back(Squeeze& squeeze, std::vector<float> numbers, std::size_t first = 0) {
  Bytes packed(squeeze.bytes(numbers.size()));
  squeeze.pack(numbers, first, packed);
  std::vector<float> out(numbers.size(), 0.0F);
  squeeze.add(packed, out);
  return out;
}

TEST(Squeeze, HalvesAreClose) {
  const std::vector<float> numbers{0, 1, -2.5F, 1e-3F, 3.14159F, -1234.5F};
  for (const auto& [kind, error] : {std::pair("fp16", 1e-3), std::pair("bf16", 8e-3)}) {
    const auto squeeze = make_squeeze(kind, 0, 6);
    EXPECT_EQ(squeeze->bytes(6), 12U);
    const auto back = there_and_back(*squeeze, numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      EXPECT_NEAR(back[i], numbers[i], std::abs(numbers[i]) * error) << kind;
  }
}

// What is too small to be sent comes later: the sum over time is that of what was put in.
TEST(Squeeze, TheLargestComeFirstAndTheRestLater) {
  const auto squeeze = make_squeeze("topk", 0.25, 8);
  EXPECT_EQ(squeeze->bytes(4), 8U);
  EXPECT_EQ(there_and_back(*squeeze, {1, -9, 2, 3}, 4), (std::vector<float>{0, -9, 0, 0}));
  EXPECT_EQ(there_and_back(*squeeze, {1, 0, 0, 1}, 4), (std::vector<float>{0, 0, 0, 4}));
  EXPECT_EQ(there_and_back(*squeeze, {5, 0, 0, 0}, 0), (std::vector<float>{5, 0, 0, 0}));  // others are not mixed in
  EXPECT_EQ(there_and_back(*squeeze, {0, 0, 0, 0}, 4), (std::vector<float>{2, 0, 0, 0}));
  EXPECT_EQ(there_and_back(*squeeze, {0, 0, 0, 0}, 4), (std::vector<float>{0, 0, 2, 0}));
  EXPECT_EQ(there_and_back(*squeeze, {0, 0, 0, 0}, 4), (std::vector<float>{0, 0, 0, 0}));
}

TEST(Squeeze, NoneIsNone) { EXPECT_EQ(make_squeeze("none", 0, 8), nullptr); }

}  // namespace
}  // namespace falaj::train
