// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/blocks.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace falaj::stats {
namespace {

std::vector<Quantiles> number_blocks(std::mt19937_64& random, double keeps, int rows) {
  std::normal_distribution<double> normal;
  std::vector<Quantiles> out(32, Quantiles(256));
  double at = normal(random);
  for (auto& block : out)
    for (int i = 0; i < rows; ++i) block.add(at = keeps * at + std::sqrt(1 - keeps * keeps) * normal(random));
  return out;
}

TEST(Blocks, IndependentRowsAreWorthOneEach) {
  std::mt19937_64 random(1);
  double mean = 0;
  for (int i = 0; i < 20; ++i) {
    const auto scales = block_scales(number_blocks(random, 0, 200));
    ASSERT_EQ(scales.size(), 3u);  // of 32, 16 and 8
    EXPECT_NEAR(scales[0].rows, 200, 1e-9);
    for (const double ratio : scales[0].ratios) mean += ratio / (20 * 32);
    EXPECT_LT(design_effect(scales), 4) << i;
  }
  EXPECT_NEAR(mean, 1, 0.1);
}

TEST(Blocks, NeighboursThatAreAlikeAreWorthLess) {
  // Of a mean, neighbours that keep k of the one before are worth (1 + k) / (1 - k) fewer; ranks about as much.
  std::mt19937_64 random(2);
  double mean = 0;
  for (int i = 0; i < 20; ++i) mean += design_effect(block_scales(number_blocks(random, 0.9, 400))) / 20;
  EXPECT_GT(mean, 10);
  EXPECT_LT(mean, 40);
}

TEST(Blocks, WhatIsAlikeForLongerThanABlockShowsInLongerOnes) {
  std::vector<Quantiles> blocks(32, Quantiles(256));
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  double level = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 4 == 0) level = normal(random);
    for (int n = 0; n < 100; ++n) blocks[i].add(level + normal(random));
  }
  const auto scales = block_scales(blocks);
  EXPECT_GT(design_effect(scales), 2 * design_effect(std::span(scales).first(1)));
}

TEST(Blocks, RepeatedValuesHaveSmallerGaps) {
  std::mt19937_64 random(4);
  double mean = 0;
  for (int i = 0; i < 10; ++i) {
    std::vector<Quantiles> coins(32, Quantiles(256));
    for (auto& block : coins)
      for (int n = 0; n < 200; ++n) block.add(static_cast<double>(random() % 2));
    const auto scales = block_scales(coins);
    for (const double ratio : scales[0].ratios) mean += ratio / (10 * 32);
  }
  EXPECT_NEAR(mean, 1, 0.15);
  Quantiles coin, constant;
  for (int i = 0; i < 100; ++i) coin.add(i % 2), constant.add(5);
  EXPECT_NEAR(gap_square_mean(coin), 0.25, 0.02);
  EXPECT_NEAR(gap_square_mean(constant), 0.822, 0.001);
}

TEST(Blocks, TextsAndShares) {
  std::mt19937_64 random(5);
  double texts = 0, shares = 0;
  for (int i = 0; i < 10; ++i) {
    std::vector<Frequent> blocks(32, Frequent(64));
    std::vector<double> marked(32, 0), counts(32, 200);
    for (std::size_t b = 0; b < 32; ++b)
      for (int n = 0; n < 200; ++n) {
        blocks[b].add(std::string(1, static_cast<char>('a' + random() % 5)));
        marked[b] += random() % 10 == 0;
      }
    const auto of_texts = block_scales(blocks), of_shares = block_scales(marked, counts);
    for (const double ratio : of_texts[0].ratios) texts += ratio / (10 * 32);
    for (const double ratio : of_shares[0].ratios) shares += ratio / (10 * 32);
  }
  EXPECT_NEAR(texts, 1, 0.15);
  EXPECT_NEAR(shares, 1, 0.2);
}

TEST(Blocks, CoarseNumbersForgetTheirLastDigits) {
  EXPECT_EQ(coarse(0.59015F), coarse(0.590150059));
  for (const double exact : {0.0, 1.0, -3.0, 4095.0, 0.5, -0.125}) EXPECT_EQ(coarse(exact), exact);
  EXPECT_NEAR(coarse(731.337), 731.337, 731.337 / 8192);
  EXPECT_NE(coarse(0.5901), coarse(0.5905));
  EXPECT_EQ(coarse(1.7976931348623157e308), 1.7976931348623157e308);
  EXPECT_TRUE(std::isnan(coarse(NAN)));
}

TEST(Blocks, TooFewSayNothing) {
  EXPECT_TRUE(block_scales(std::vector<Quantiles>(7, Quantiles(8))).empty());
  EXPECT_TRUE(block_scales(std::vector<double>(32, 0), std::vector<double>(32, 10)).empty());
  EXPECT_EQ(design_effect({}), 1);
}

}  // namespace
}  // namespace falaj::stats
