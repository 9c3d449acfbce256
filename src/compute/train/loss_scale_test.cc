// SPDX-License-Identifier: Apache-2.0
#include "compute/train/loss_scale.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace falaj::train {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(LossScale, ChangesNothingWhereItIsNotNeeded) {
  LossScale scale;
  EXPECT_FALSE(scale.on());
  EXPECT_EQ(scale.take(3), 1);
  EXPECT_EQ(scale.take(kInfinite), 1);  // whoever has fp32 sees a loss that is no number
  EXPECT_EQ(scale.value(), 1);
}

TEST(LossScale, IsHalvedUntilTheGradientFits) {
  auto scale = LossScale::dynamic();
  // As a gradient of 3 would look in numbers that end at 65504.
  const auto scaled = [&] { return 3 * scale.value() > 65'504 ? kInfinite : 3 * scale.value(); };
  int left_out = 0;
  while (!scale.take(scaled())) ++left_out;
  EXPECT_EQ(left_out, 2);
  EXPECT_EQ(scale.value(), LossScale::kFirst / 4);
  const auto factor = scale.take(scaled());
  ASSERT_TRUE(factor);
  EXPECT_EQ(*factor * scaled(), 3);  // powers of two: nothing is rounded
  EXPECT_FALSE(scale.take(std::nan("")));
}

TEST(LossScale, GrowsAfterManyGoodStepsAndHasEnds) {
  auto scale = LossScale::dynamic();
  for (std::uint64_t step = 1; step < LossScale::kGoodSteps; ++step) scale.take(1);
  EXPECT_EQ(scale.value(), LossScale::kFirst);
  EXPECT_EQ(scale.take(1), 1 / LossScale::kFirst);  // of this step it was that
  EXPECT_EQ(scale.value(), 2 * LossScale::kFirst);
  for (std::uint64_t step = 0; step < 100 * LossScale::kGoodSteps; ++step) scale.take(1);
  EXPECT_EQ(scale.value(), LossScale::kMost);
  for (int i = 0; i < 100; ++i) scale.take(kInfinite);
  EXPECT_EQ(scale.value(), 1);
}

TEST(LossScale, GoesOnFromACheckpoint) {
  auto scale = LossScale::dynamic();
  scale.take(kInfinite);
  for (std::uint64_t step = 1; step < LossScale::kGoodSteps; ++step) scale.take(1);
  ByteWriter out;
  scale.encode(out);
  const auto bytes = out.take();
  ByteReader in(bytes);
  auto again = LossScale::dynamic();
  again.decode(in);
  EXPECT_EQ(again.value(), scale.value());
  again.take(1);
  EXPECT_EQ(again.value(), LossScale::kFirst);  // it was one good step from being doubled
}

}  // namespace
}  // namespace falaj::train
