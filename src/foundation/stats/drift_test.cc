// SPDX-License-Identifier: Apache-2.0
// Tests of change: against closed forms, against naive versions, and by how often they cry wolf.
#include "foundation/stats/drift.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "foundation/base/testing.h"
#include "foundation/stats/calibration.h"
#include "foundation/stats/change.h"
#include "foundation/stats/distance.h"
#include "foundation/stats/together.h"

namespace falaj::stats {
namespace {

std::vector<double> draw(std::size_t n, std::mt19937_64& random, double mean = 0, double deviation = 1) {
  std::normal_distribution<double> one(mean, deviation);
  std::vector<double> out(n);
  for (double& value : out) value = one(random);
  return out;
}

Quantiles sketch(const std::vector<double>& values, std::uint32_t k = Quantiles::kDefault) {
  Quantiles out(k);
  for (const double value : values) out.add(value);
  return out;
}

// Figures of tables that every book of statistics has.
TEST(Drift, TailsAreThoseOfTheTables) {
  EXPECT_NEAR(chi_square_p(3.841458820694124, 1), 0.05, 1e-12);
  EXPECT_NEAR(chi_square_p(18.307038053275146, 10), 0.05, 1e-12);
  EXPECT_NEAR(chi_square_p(149.44925277903882, 100), 0.001, 1e-10);
  EXPECT_NEAR(chi_square_p(0.5, 2), std::exp(-0.25), 1e-14);
  EXPECT_NEAR(chi_square_radius(10, 0.05), 18.307038053275146, 1e-6);
  EXPECT_NEAR(normal_p(1.959963984540054), 0.05, 1e-14);
  EXPECT_NEAR(student_p(2.2281388519649385, 10), 0.05, 1e-11);
  EXPECT_NEAR(student_p(1, 1), 0.5, 1e-14);  // Cauchy's
  EXPECT_NEAR(student_p(4.587, 10), 0.001, 1e-6);
  EXPECT_NEAR(ks_test_p(1.3581015157406195 / (std::sqrt(5e7) + 0.12), 1e8, 1e8), 0.05, 1e-6);
  EXPECT_EQ(chi_square_p(0, 3), 1);
  EXPECT_EQ(chi_square_p(5, 0), 1);
}

TEST(Drift, SeveralAtOnceAsByDefinition) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005, 1};
  const auto strict = holm(p), lenient = benjamini_hochberg(p);
  const std::vector<double> want_strict = {0.04, 0.09, 0.09, 0.025, 1}, want_lenient = {0.025, 0.05, 0.05, 0.025, 1};
  for (std::size_t i = 0; i < p.size(); ++i) {
    EXPECT_NEAR(strict[i], want_strict[i], 1e-12) << i;
    EXPECT_NEAR(lenient[i], want_lenient[i], 1e-12) << i;
  }
  EXPECT_TRUE(holm({}).empty());
}

struct Numbers {
  std::vector<double> values;
  void merge(const Numbers& other) { values.insert(values.end(), other.values.begin(), other.values.end()); }
};

// Every block is the newest so many windows, and comes each time half of it is new.
TEST(Drift, BlocksAreTheNewestWindows) {
  Blocks<Numbers> blocks;
  std::map<std::uint64_t, int> seen;
  constexpr int kWindows = 256;
  for (int window = 1; window <= kWindows; ++window) {
    std::uint64_t before = 0;
    blocks.add({{static_cast<double>(window)}}, [&](const Numbers& block, std::uint64_t windows) {
      ++seen[windows];
      ASSERT_GT(windows, before);
      before = windows;
      ASSERT_EQ(block.values.size(), windows);
      for (std::size_t i = 0; i < windows; ++i)
        ASSERT_EQ(block.values[i], window - static_cast<int>(windows) + 1 + static_cast<int>(i));
    });
  }
  EXPECT_EQ(seen[1], kWindows);
  for (std::uint64_t windows = 2; windows <= Blocks<Numbers>::kWindowsMax; windows *= 2)
    EXPECT_EQ(seen[windows], 2 * kWindows / static_cast<int>(windows) - 1) << windows;
  EXPECT_EQ(seen.size(), Blocks<Numbers>::kDoublings + 1);
}

// Together all looks within the horizon take no more than the level.
TEST(Drift, ChancesAddUpToTheLevel) {
  constexpr std::uint64_t kHorizon = 1000;
  constexpr std::size_t kFamily = 7;
  constexpr double kLevel = 0.01;
  double spent = 0;
  for (std::uint64_t windows = 1; windows <= Blocks<Numbers>::kWindowsMax; windows *= 2) {
    double low = 0, high = 1;  // the p below which such a block alarms
    for (int i = 0; i < 200; ++i) {
      const double middle = (low + high) / 2;
      (chance_at_all(middle, windows, kHorizon, kFamily) < kLevel ? low : high) = middle;
    }
    const double looks = windows == 1 ? kHorizon : 2.0 * kHorizon / static_cast<double>(windows);
    spent += low * looks * kFamily;
  }
  EXPECT_NEAR(spent, kLevel, 1e-9);
}

double least_chance(Blocks<Quantiles>& blocks, const Quantiles& reference, const Quantiles& window,
                    std::uint64_t horizon, std::size_t family) {
  double out = 1;
  blocks.add(window, [&](const Quantiles& block, std::uint64_t windows) {
    out = std::min(out, chance_at_all(differ_p(reference, block), windows, horizon, family));
  });
  return out;
}

// Streams in which nothing changes, each with a reference of its own, over many windows and columns.
TEST(Drift, RarelyCriesWolf) {
  constexpr double kLevel = 0.05;
  constexpr std::size_t kColumns = 10, kWindows = 30, kReference = 2000, kWindow = 200;
  const int streams = repeats(60);
  int alarms = 0;
  for (int stream = 0; stream < streams; ++stream) {
    std::mt19937_64 random(static_cast<std::uint64_t>(stream) + 1);
    bool alarmed = false;
    for (std::size_t column = 0; column < kColumns; ++column) {
      const Quantiles reference = sketch(draw(kReference, random));
      Blocks<Quantiles> blocks;
      for (std::size_t window = 0; window < kWindows; ++window)
        alarmed =
            alarmed || least_chance(blocks, reference, sketch(draw(kWindow, random)), kWindows, kColumns) < kLevel;
    }
    alarms += alarmed ? 1 : 0;
  }
  // At most 5 %; more than so many of 60 would have a chance below one in a thousand even then.
  EXPECT_LE(alarms, static_cast<int>(std::ceil(streams * 0.05 + 3.1 * std::sqrt(streams * 0.05 * 0.95))));
}

TEST(Drift, FindsSmallChangesInManyWindows) {
  std::mt19937_64 random(7);
  const Quantiles reference = sketch(draw(20'000, random), 2048);
  Blocks<Quantiles> blocks;
  std::uint64_t at = 0;
  for (std::uint64_t window = 0; window < 60; ++window) {
    const auto values = sketch(draw(1000, random, window >= 20 ? 0.08 : 0), 1024);
    if (window == 21) {
      EXPECT_GT(differ_p(reference, values), 1e-5);  // not one window by itself
    }
    if (least_chance(blocks, reference, values, 1000, 50) < 0.01 && at == 0) at = window;
  }
  EXPECT_GE(at, 20u);
  EXPECT_LE(at, 55u);
}

TEST(Drift, NeighboursThatAreAlikeWeighLess) {
  std::mt19937_64 random(5);
  const auto reference = sketch(draw(5000, random)), window = sketch(draw(500, random, 0.3));
  EXPECT_LT(differ_p(reference, window), 1e-5);
  EXPECT_GT(differ_p(reference, window, 0.05), 0.05);
  const std::vector<double> counted = {500, 500}, other = {70, 30};
  EXPECT_LT(differ_p(counted, other), 1e-3);
  EXPECT_GT(differ_p(counted, other, 0.05), 0.05);
}

TEST(Drift, CategoriesThatWereNeverSeenAreNotInfinitelyFar) {
  const std::vector<double> reference = {500, 500, 0}, same = {52, 48, 0}, other = {50, 20, 30};
  EXPECT_GT(differ_p(reference, same), 0.05);
  EXPECT_LT(differ_p(reference, other), 1e-6);
  const std::vector<double> one = {10.0}, none = {0.0, 0.0, 0.0};
  EXPECT_EQ(differ_p(one, one), 1);
  EXPECT_EQ(differ_p(reference, none), 1);
  EXPECT_EQ(differ_p(Quantiles(), sketch({1, 2, 3})), 1);
}

// Shares of tests that reject at 5 % and at 0.5 % when nothing differs.
template <class Test>
std::pair<double, double> rejected(int times, Test test) {
  int some = 0, few = 0;
  for (int i = 0; i < times; ++i) {
    const double p = test(static_cast<std::uint64_t>(i) + 1);
    some += p < 0.05 ? 1 : 0;
    few += p < 0.005 ? 1 : 0;
  }
  return {some / static_cast<double>(times), few / static_cast<double>(times)};
}

TEST(Drift, TwoSampleTestsKeepTheirLevel) {
  const int times = repeats(400);
  const auto distance = [](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto a = sketch(draw(300, random)), b = sketch(draw(250, random));  // few enough to be exact
    return ks_test_p(ks(a, b), 300, 250);
  };
  const auto shares = [](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<double> a(6), b(6);
    for (int i = 0; i < 600; ++i) ++a[random() % 6], ++b[random() % 6];
    return chi_square_test_p(a, b);
  };
  const auto stability = [](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<double> a(10), b(10);
    for (int i = 0; i < 2000; ++i) ++a[random() % 10], ++b[random() % 10];
    return population_stability_index(a, b) > psi_noise(2000, 2000, 10, 0.05)           ? 0.01
           : jensen_shannon(a, b) > jensen_shannon_noise(2000, 2000, 10, 0.05) * 1.0001 ? 0.02
                                                                                        : 1;
  };
  for (const auto& [some, few] : {rejected(times, distance), rejected(times, shares)}) {
    EXPECT_LE(some, 0.05 + 4 * std::sqrt(0.05 * 0.95 / times));
    EXPECT_GE(some, 0.01);
    EXPECT_LE(few, 0.005 + 4 * std::sqrt(0.005 / times));
  }
  EXPECT_LE(rejected(times, stability).first, 0.06 + 4 * std::sqrt(0.05 * 0.95 / times));
}

std::vector<double> pairs(std::size_t n, std::mt19937_64& random, double correlation) {
  std::vector<double> out;
  std::normal_distribution<double> one;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = one(random);
    out.push_back(x);
    out.push_back(correlation * x + std::sqrt(1 - correlation * correlation) * one(random));
  }
  return out;
}

TEST(Drift, SeesAcrossColumnsWhatNoColumnShows) {
  std::mt19937_64 random(3);
  const auto before = pairs(1500, random, 0.6), after = pairs(1500, random, -0.6), same = pairs(1500, random, 0.6);
  EXPECT_LT(classifier_test({before, 2}, {after, 2}, 1).p, 1e-6);
  EXPECT_GT(classifier_test({before, 2}, {after, 2}, 1).statistic, 0.6);
  EXPECT_LT(kernel_test({before, 2}, {after, 2}, 1).p, 1e-6);
  EXPECT_GT(classifier_test({before, 2}, {same, 2}, 1).p, 0.001);
  EXPECT_GT(kernel_test({before, 2}, {same, 2}, 1).p, 0.001);
  const std::vector<double> few = {1, 2, 3, 4};
  EXPECT_EQ(classifier_test({few, 2}, {before, 2}, 1).p, 1);
  EXPECT_EQ(kernel_test({few, 2}, {before, 2}, 1).p, 1);
}

// Of forty columns, two that go together otherwise are found among eight hundred pairs, and named.
TEST(Drift, NamesWhatDiffers) {
  std::mt19937_64 random(8);
  std::normal_distribution<double> one;
  constexpr std::size_t kWidth = 40;
  const auto rows = [&](std::size_t n, double correlation) {
    std::vector<double> out;
    for (std::size_t i = 0; i < n; ++i) {
      const auto first = out.size();
      for (std::size_t k = 0; k < kWidth; ++k) out.push_back(one(random));
      out[first + 7] = correlation * out[first + 3] + std::sqrt(1 - correlation * correlation) * out[first + 7];
    }
    return out;
  };
  const auto before = rows(2000, 0.6), after = rows(1000, 0), same = rows(1000, 0.6);
  const auto told = classifier_test({before, kWidth}, {after, kWidth}, 1);
  EXPECT_LT(told.p, 1e-6);
  ASSERT_FALSE(told.aspects.empty());
  EXPECT_EQ(told.aspects[0].first, 3u);
  EXPECT_EQ(told.aspects[0].second, 7u);
  EXPECT_NEAR(told.aspects[0].in_a, 0.6, 0.15);
  EXPECT_NEAR(told.aspects[0].in_b, 0, 0.15);
  EXPECT_GT(classifier_test({before, kWidth}, {same, kWidth}, 1).p, 0.001);
}

TEST(Drift, TestsAcrossColumnsKeepTheirLevel) {
  const int times = repeats(200);
  const auto by_classifier = [](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto a = pairs(150, random, 0.3), b = pairs(200, random, 0.3);
    return classifier_test({a, 2}, {b, 2}, seed).p;
  };
  const auto by_kernel = [](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto a = pairs(300, random, 0.3), b = pairs(300, random, 0.3);
    return kernel_test({a, 2}, {b, 2}, seed).p;
  };
  for (const auto& [some, few] : {rejected(times, by_classifier), rejected(times, by_kernel)}) {
    EXPECT_LE(some, 0.05 + 4 * std::sqrt(0.05 * 0.95 / times));
    EXPECT_LE(few, 0.005 + 4 * std::sqrt(0.005 / times));
  }
}

TEST(Change, AdaptiveWindowKeepsWhatIsSteadyAndDropsWhatIsOld) {
  std::mt19937_64 random(5);
  Adwin steady;
  int cuts = 0;
  for (int i = 0; i < 20'000; ++i) cuts += steady.add(random() % 10 < 2 ? 1 : 0) ? 1 : 0;
  EXPECT_LE(cuts, 2);
  EXPECT_NEAR(steady.mean(), 0.2, 0.02);
  EXPECT_TRUE(cuts > 0 || steady.count() == 20'000u);

  Adwin changed;
  for (int i = 0; i < 5000; ++i) changed.add(random() % 10 < 2 ? 1 : 0);
  int noticed = -1;
  for (int i = 0; i < 2000 && noticed < 0; ++i) {
    const auto cut = changed.add(random() % 10 < 4 ? 1 : 0);
    if (!cut) continue;
    EXPECT_GT(cut->after, cut->before);
    noticed = i;
  }
  EXPECT_GE(noticed, 0);
  EXPECT_LE(noticed, 400);
  for (int i = 0; i < 2000; ++i) changed.add(random() % 10 < 4 ? 1 : 0);
  EXPECT_NEAR(changed.mean(), 0.4, 0.05);
}

// Every value kept, every place tried: what the buckets stand for.
TEST(Change, AdaptiveWindowHoldsTheNewestValues) {
  std::mt19937_64 random(11);
  Adwin window;
  std::vector<double> all;
  for (int i = 0; i < 3000; ++i) {
    all.push_back(static_cast<double>(random() % 1000) / 1000 * (i < 1500 ? 0.3 : 1));
    window.add(all.back());
    ASSERT_LE(window.count(), all.size());
    const auto kept = static_cast<std::ptrdiff_t>(window.count());
    const double sum = std::accumulate(all.end() - kept, all.end(), 0.0);
    ASSERT_NEAR(window.mean(), sum / static_cast<double>(kept), 1e-9) << i;
  }
  EXPECT_LT(window.count(), 2000u);
}

TEST(Change, PageHinkleyAlarmsOnARise) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> noise(0, 0.1);
  PageHinkley watch(0.05, 5);
  for (int i = 0; i < 5000; ++i) EXPECT_FALSE(watch.add(noise(random)));
  int noticed = -1;
  for (int i = 0; i < 200 && noticed < 0; ++i) noticed = watch.add(0.5 + noise(random)) ? i : -1;
  EXPECT_GE(noticed, 0);
  EXPECT_LE(noticed, 30);
  EXPECT_EQ(watch.rise(), 0);
}

TEST(Calibration, TellsHowWellAModelDoesWithoutLabels) {
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> uniform;
  const auto truth = [](double score) { return score * score; };  // its scores are too high
  std::vector<std::pair<double, bool>> known;
  for (int i = 0; i < 20'000; ++i) {
    const double score = uniform(random);
    known.emplace_back(score, uniform(random) < truth(score));
  }
  const Calibration calibration = Calibration::learn(known);
  for (const double score : {0.1, 0.5, 0.9}) EXPECT_NEAR(calibration.of(score), truth(score), 0.05) << score;
  ByteWriter bytes;
  calibration.encode(bytes);
  ByteReader in(bytes.bytes());
  const Calibration back = Calibration::decode(in);
  in.expect_end();
  EXPECT_EQ(back.of(0.37), calibration.of(0.37));

  // Other inputs, of which the model is less sure.
  Quantiles scores;
  double right = 0, positives = 0, ordered = 0, seen_positives = 0, seen_negatives = 0;
  std::vector<std::pair<double, bool>> asked;
  for (int i = 0; i < 20'000; ++i) {
    const double score = 0.4 + 0.4 * uniform(random);
    const bool label = uniform(random) < truth(score);
    scores.add(score);
    asked.emplace_back(score, label);
    right += label == (truth(score) > 0.5) ? 1 : 0;
    positives += label ? 1 : 0;
  }
  std::sort(asked.begin(), asked.end());
  for (const auto& [score, label] : asked) {
    if (label)
      ordered += seen_negatives, ++seen_positives;
    else
      ++seen_negatives;
  }
  const Expected guess = expected(calibration, scores);
  EXPECT_NEAR(guess.positives, positives / 20'000, 0.02);
  EXPECT_NEAR(guess.accuracy, right / 20'000, 0.02);
  EXPECT_NEAR(guess.auc, ordered / (seen_positives * seen_negatives), 0.02);
  EXPECT_EQ(expected(calibration, Quantiles()).auc, 0.5);
  EXPECT_EQ(Calibration::learn({}).of(1), 0.5);
}

}  // namespace
}  // namespace falaj::stats
