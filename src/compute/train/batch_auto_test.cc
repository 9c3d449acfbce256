// SPDX-License-Identifier: Apache-2.0
#include "compute/train/batch_auto.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace falaj::train {
namespace {

TEST(BatchAuto, TakesWhatFits) {
  constexpr std::int64_t kMiB = 1 << 20;
  const auto largest = [](std::int64_t memory, std::size_t rows) {
    return largest_batch({64, 20 * kMiB}, {128, 36 * kMiB}, 1000, memory, rows);  // a quarter MiB a row
  };
  EXPECT_EQ(largest(1024 * kMiB, 1'000'000), 1024U);
  EXPECT_EQ(largest(4096 * kMiB, 1'000'000), 4096U);
  EXPECT_EQ(largest(64 * kMiB, 1'000'000), 64U);
  EXPECT_EQ(largest(1 * kMiB, 1'000'000), 1U);   // less than none is tried, and says what is missing
  EXPECT_EQ(largest(1024 * kMiB, 5'000), 128U);  // an epoch has steps
  EXPECT_EQ(largest_batch({64, 0}, {128, 0}, 10, std::int64_t{1} << 50, 1'000'000'000), 65'536U);
}

// Gradients drawn around a known mean with a known deviation: the scale is noise / signal.
TEST(BatchAuto, NoiseScaleIsThatOfTheGradients) {
  std::mt19937_64 random(7);
  constexpr std::size_t kSize = 100, kRows = 256;
  constexpr double kMean = 0.1, kDeviation = 4;  // of each number and row: 16 / 0.01 = 1600
  NoiseScale noise;
  std::normal_distribution<double> of_half(kMean, kDeviation / std::sqrt(kRows / 2.0));
  for (int step = 0; step < 400; ++step) {
    double whole = 0, halves = 0;
    for (std::size_t i = 0; i < kSize; ++i) {
      const double a = of_half(random), b = of_half(random);
      whole += (a + b) * (a + b) / 4;
      halves += (a * a + b * b) / 2;
    }
    if (step < 9) {
      EXPECT_FALSE(noise.rows()) << step;
    }
    noise.add(whole, halves, kRows);
  }
  ASSERT_TRUE(noise.rows());
  EXPECT_NEAR(*noise.rows(), 1600, 400);
  EXPECT_EQ(next_batch(512, noise, 65'536), 1024U);
  EXPECT_EQ(next_batch(1024, noise, 65'536), 1024U);
  EXPECT_EQ(next_batch(512, noise, 512), 512U);

  ByteWriter out;
  noise.encode(out);
  const auto bytes = out.take();
  ByteReader in(bytes);
  EXPECT_EQ(NoiseScale::decode(in).rows(), noise.rows());
}

TEST(BatchAuto, RatesRiseWithTheBatch) {
  EXPECT_EQ(rate_factor("adamw", 4096), 2);
  EXPECT_EQ(rate_factor("sgd", 4096), 4);
  EXPECT_EQ(rate_factor("adamw", 1024), 1);
}

}  // namespace
}  // namespace falaj::train
