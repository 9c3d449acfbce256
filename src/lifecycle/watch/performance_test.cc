// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/performance.h"

#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace falaj::watch {
namespace {

using testing::HasSubstr;

// Calibrated but for `lie`, the share of answers that mean nothing.
struct ScoredModel {
  std::mt19937_64 random;
  std::uniform_real_distribution<double> unit{};

  std::pair<double, double> one(double lie) {
    const double truth = unit(random) * unit(random);
    return {truth, unit(random) < truth * (1 - lie) + lie * 0.5 ? 1 : 0};
  }
  PerformanceReference reference(int rows) {
    std::vector<stats::Outcomes> blocks(32);
    for (int i = 0; i < rows; ++i) {
      const auto [score, label] = one(0);
      blocks[static_cast<std::size_t>(i * 32 / rows)].add({&score, 1}, label);
    }
    auto out = make_performance_reference(blocks, "before");
    out.is = "when it was tested";
    return out;
  }
};

struct Labelling {
  PerformanceReference reference;
  PerformanceState state{};
  std::int64_t windows = 0;
  std::vector<Finding> findings{};
  std::vector<MetricSeen> metrics{};

  void see(ScoredModel& model, int rows, double lie, double level = 0.05) {
    OutcomeWindow window{windows, 1'000 * windows, 1'000 * windows + 999, stats::Outcomes()};
    std::vector<double> losses;
    for (int i = 0; i < rows; ++i) {
      const auto [score, label] = model.one(lie);
      losses.push_back(*window.outcomes.add({&score, 1}, label));
    }
    auto looked = look(reference, 200, level, std::move(state), window, losses);
    state = std::move(looked.state);
    findings = std::move(looked.findings);
    metrics = std::move(looked.metrics);
    ++windows;
  }
  const Finding* found(std::string_view test, std::string_view column) const {
    for (const auto& one : findings)
      if (one.test == test && one.column == column) return &one;
    return nullptr;
  }
};

TEST(Performance, AModelThatGetsWorseIsFoundAndOneThatRecoversIsLetGo) {
  ScoredModel model{std::mt19937_64(1)};
  Labelling labelling{model.reference(8'000)};
  for (int i = 0; i < 40; ++i) labelling.see(model, 200, 0);
  EXPECT_TRUE(labelling.findings.empty()) << labelling.findings[0].text;
  for (int i = 0; i < 8; ++i) labelling.see(model, 200, 0.5);
  const auto* brier = labelling.found("metric", "brier");
  ASSERT_TRUE(brier);
  EXPECT_EQ(brier->kind, "performance");
  EXPECT_THAT(brier->text, HasSubstr("labelled predictions, and was 0."));
  EXPECT_THAT(brier->text, HasSubstr("when it was tested"));
  ASSERT_TRUE(brier->measured);
  EXPECT_GT(brier->measured->low, brier->measured->was_high);
  EXPECT_GE(brier->since_us, 32'000) << "not long before it changed";
  EXPECT_TRUE(labelling.found("metric", "auc"));
  const auto* rise = labelling.found("page_hinkley", "error");
  ASSERT_TRUE(rise);
  EXPECT_THAT(rise->text, HasSubstr("the mean error rose from 0."));
  EXPECT_GT(rise->score, 0) << "rules with a threshold must see it";
  EXPECT_GE(rise->since_us, 36'000);
  ASSERT_TRUE(labelling.found("adwin", "error"));
  EXPECT_GT(labelling.found("adwin", "error")->score, 0);
  for (int i = 0; i < 80 && !labelling.findings.empty(); ++i) labelling.see(model, 200, 0);
  EXPECT_TRUE(labelling.findings.empty()) << labelling.findings[0].text;
}

TEST(Performance, GettingBetterIsNoFinding) {
  ScoredModel model{std::mt19937_64(2)};
  Labelling labelling{model.reference(8'000)};
  for (auto i = 0; i < 8'000; ++i) {  // the reference is of a model that often lies
    const auto [score, label] = model.one(0.6);
    labelling.reference.outcomes.add({&score, 1}, label);
  }
  for (int i = 0; i < 60; ++i) {
    labelling.see(model, 200, 0);
    EXPECT_TRUE(labelling.findings.empty());
  }
}

// Everything but the blocks is kept between windows, and the blocks follow from the newest windows.
TEST(Performance, TheStateThatIsKeptIsEnough) {
  ScoredModel model{std::mt19937_64(3)};
  const auto reference = model.reference(4'000);
  PerformanceState whole, kept;
  std::vector<OutcomeWindow> seen;
  for (std::int64_t i = 0; i < 70; ++i) {
    OutcomeWindow window{i, i, i, stats::Outcomes()};
    std::vector<double> losses;
    for (int row = 0; row < 60; ++row) {
      const auto [score, label] = model.one(i > 50 ? 0.8 : 0);
      losses.push_back(*window.outcomes.add({&score, 1}, label));
    }
    auto a = look(reference, 200, 0.05, std::move(whole), window, losses);
    PerformanceState again;
    for (const auto& one : seen) remember(again, one);
    again.tests = kept.tests;
    again.rises = kept.rises;
    again.began_us = kept.began_us;
    again.errors = kept.errors;
    auto b = look(reference, 200, 0.05, std::move(again), window, losses);
    ASSERT_EQ(json::serialize(encode(a.findings)), json::serialize(encode(b.findings)));
    ASSERT_EQ(json::serialize(encode(a.metrics)), json::serialize(encode(b.metrics)));
    whole = std::move(a.state);
    kept = std::move(b.state);
    seen.push_back(window);
  }
  EXPECT_FALSE(kept.rises.empty());
}

TEST(Performance, FalseFindingsAreAsRareAsSaid) {
  int wrong = 0;
  constexpr int kStreams = 40;
  for (int s = 0; s < kStreams; ++s) {
    ScoredModel model{std::mt19937_64(100 + static_cast<unsigned>(s))};
    Labelling labelling{model.reference(3'000)};
    bool any = false;
    for (int i = 0; i < 100; ++i) {
      labelling.see(model, 50, 0, 0.1);
      any = any || !labelling.findings.empty();
    }
    wrong += any;
  }
  EXPECT_LE(wrong, 4);  // 0.1 within 200 windows; these are half as many
}

}  // namespace
}  // namespace falaj::watch
