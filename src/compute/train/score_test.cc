// SPDX-License-Identifier: Apache-2.0
#include "compute/train/score.h"

#include <cmath>

#include <gtest/gtest.h>

#include "foundation/sys/random.h"

namespace falaj::train {
namespace {

struct Sample {
  std::vector<float> predictions, labels;
};

// Predictions with many ties, and labels that follow them more or less.
Sample sample(std::size_t n, std::uint64_t seed) {
  sys::SimRandom random(seed);
  Sample out;
  for (std::size_t i = 0; i < n; ++i) {
    const auto p = static_cast<float>(random.below(20)) / 20.0F;
    out.predictions.push_back(p);
    out.labels.push_back(static_cast<float>(random.below(100)) / 100.0F < p ? 1.0F : 0.0F);
  }
  return out;
}

double auc_of_all_pairs(const Sample& s) {
  double sum = 0, pairs = 0;
  for (std::size_t i = 0; i < s.labels.size(); ++i)
    for (std::size_t j = 0; j < s.labels.size(); ++j)
      if (s.labels[i] > s.labels[j]) {
        pairs += 1;
        sum += s.predictions[i] > s.predictions[j] ? 1 : s.predictions[i] == s.predictions[j] ? 0.5 : 0;
      }
  return sum / pairs;
}

TEST(Score, AucIsTheShareOfPairsInOrder) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto s = sample(300, seed);
    EXPECT_NEAR(roc_auc(s.predictions, s.labels).value, auc_of_all_pairs(s), 1e-12) << "seed " << seed;
  }
}

TEST(Score, NineteenOfTwentyIntervalsHoldTheTruth) {
  const double truth = roc_auc(sample(2'000'000, 7).predictions, sample(2'000'000, 7).labels).value;
  int held = 0;
  constexpr int kTries = 400;
  for (int i = 0; i < kTries; ++i) {
    const auto s = sample(400, 1000 + static_cast<std::uint64_t>(i));
    const auto auc = roc_auc(s.predictions, s.labels);
    held += auc.low <= truth && truth <= auc.high;
  }
  EXPECT_GT(held, kTries * 92 / 100);
  EXPECT_LT(held, kTries * 98 / 100);
}

TEST(Score, OneClassHasNoAuc) {
  const std::vector<float> p{0.1F, 0.9F}, ones{1, 1};
  EXPECT_TRUE(std::isnan(roc_auc(p, ones).value));
  EXPECT_TRUE(std::isnan(roc_auc({}, {}).value));
}

TEST(Score, ErrorsOfNumbers) {
  const std::vector<float> said{1, 2, 3}, was{2, 2, 5};
  EXPECT_DOUBLE_EQ(mean_absolute_error(said, was).value, 1);
  EXPECT_DOUBLE_EQ(root_mean_squared_error(said, was).value, std::sqrt(5.0 / 3));
}

TEST(Score, ManyClasses) {
  const std::vector<float> said{0.7F, 0.2F, 0.1F, 0.1F, 0.1F, 0.8F}, was{0, 1};
  EXPECT_DOUBLE_EQ(accuracy(said, was, 3).value, 0.5);
  EXPECT_NEAR(log_loss(said, was, 3).value, -(std::log(0.7) + std::log(0.1)) / 2, 1e-6);
  const std::vector<float> sure{1, 0, 0}, wrong{1};
  EXPECT_TRUE(std::isfinite(log_loss(sure, wrong, 3).value));
}

TEST(Score, RankingByGroup) {
  const std::vector<float> said{3, 2, 1, 1, 2}, was{2, 1, 0, 1, 0}, groups{1, 1, 1, 2, 2};
  const double second = (1 / std::log2(3.0)) / 1.0;
  EXPECT_NEAR(ndcg(said, was, groups).value, (1 + second) / 2, 1e-12);
}

TEST(Score, Curves) {
  const auto s = sample(5000, 3);
  const auto roc = roc_curve(s.predictions, s.labels);
  EXPECT_EQ(roc.x.front(), 0);
  EXPECT_EQ(roc.x.back(), 1);
  EXPECT_EQ(roc.y.back(), 1);
  double area = 0;
  for (std::size_t i = 1; i < roc.x.size(); ++i) area += (roc.x[i] - roc.x[i - 1]) * (roc.y[i] + roc.y[i - 1]) / 2;
  EXPECT_NEAR(area, roc_auc(s.predictions, s.labels).value, 1e-9);  // 20 values: no point was left out
  const auto calibration = calibration_curve(s.predictions, s.labels, 5);
  for (std::size_t i = 0; i < calibration.x.size(); ++i) EXPECT_NEAR(calibration.x[i], calibration.y[i], 0.06);
}

TEST(Score, CalibrationIsNotBlamedForChance) {
  sys::SimRandom random(7);
  const auto uniform = [&] { return static_cast<float>(random.below(1 << 20)) / (1 << 20); };
  std::vector<float> said, twice, was;
  for (int i = 0; i < 2000; ++i) {
    said.push_back(0.05F + 0.4F * uniform());
    twice.push_back(std::min(1.0F, 2 * said.back()));
    was.push_back(uniform() < said.back() ? 1.0F : 0.0F);
  }
  const auto right = calibration_error(said, was), wrong = calibration_error(twice, was);
  EXPECT_LT(right.value, 0.03);
  EXPECT_EQ(right.low, 0);
  EXPECT_NEAR(wrong.value, 0.28, 0.04);
  EXPECT_GT(wrong.low, 0.2);
  EXPECT_LT(wrong.high, 0.36);
  EXPECT_TRUE(std::isnan(calibration_error({}, {}).value));
}

TEST(Score, GainsOnTheSameRowsAreSurerThanTwoScores) {
  const auto s = sample(3000, 5);
  std::vector<float> blurred = s.predictions;
  sys::SimRandom random(6);
  for (auto& p : blurred) p = std::clamp(p + 0.1F * (static_cast<float>(random.below(2001)) / 1000 - 1), 0.01F, 0.99F);
  const auto gain = gains(Objective::binary, s.predictions, blurred, s.labels, 1);
  ASSERT_EQ(gain.size(), 2u);
  const auto ours = roc_auc(s.predictions, s.labels), theirs = roc_auc(blurred, s.labels);
  EXPECT_EQ(gain[0].name, "auc");
  EXPECT_NEAR(gain[0].score.value, ours.value - theirs.value, 1e-12);
  EXPECT_LT(gain[0].score.high - gain[0].score.low, (ours.high - ours.low) / 2);
  EXPECT_NEAR(gain[1].score.value, log_loss(blurred, s.labels, 1).value - log_loss(s.predictions, s.labels, 1).value,
              1e-9);
  const auto none = gains(Objective::binary, s.predictions, s.predictions, s.labels, 1);
  EXPECT_EQ(none[0].score.low, 0);
  EXPECT_EQ(none[0].score.high, 0);
  const std::vector<float> near{1, 2}, far{3, 2}, truth{1, 2};
  EXPECT_DOUBLE_EQ(gains(Objective::regression, near, far, truth, 1)[0].score.value, 1);
}

}  // namespace
}  // namespace falaj::train
