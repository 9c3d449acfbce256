// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/outcomes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/stats/change.h"

namespace falaj::stats {
namespace {

struct Drawn {
  std::vector<double> scores;
  std::vector<int> labels;
};
// Calibrated: a score of 0.3 is right in three of ten.
Drawn draw(std::mt19937_64& random, int rows, double lie = 0) {
  Drawn out;
  std::uniform_real_distribution<double> unit;
  for (int i = 0; i < rows; ++i) {
    const double truth = unit(random) * unit(random);
    out.scores.push_back(std::round(truth * 500) / 500);  // some are equal
    out.labels.push_back(unit(random) < truth * (1 - lie) + lie * 0.5 ? 1 : 0);
  }
  return out;
}
Outcomes outcomes_of(const Drawn& drawn) {
  Outcomes out;
  for (std::size_t i = 0; i < drawn.scores.size(); ++i) EXPECT_TRUE(out.add({&drawn.scores[i], 1}, drawn.labels[i]));
  return out;
}
const Metric& named(const std::vector<Metric>& in, std::string_view name) {
  for (const auto& one : in)
    if (one.name == name) return one;
  throw std::out_of_range(std::string(name));
}

TEST(Outcomes, MetricsAreWhatTheirDefinitionsSay) {
  std::mt19937_64 random(1);
  const auto drawn = draw(random, 900);
  double right = 0, brier = 0, log_loss = 0, above = 0, pairs = 0;
  for (std::size_t i = 0; i < drawn.scores.size(); ++i) {
    const double p = drawn.scores[i], y = drawn.labels[i];
    right += (p >= 0.5) == (y == 1);
    brier += (p - y) * (p - y);
    log_loss -= std::log(std::clamp(y == 1 ? p : 1 - p, 1e-7, 1.0));
    for (std::size_t j = 0; j < drawn.scores.size(); ++j) {
      if (drawn.labels[i] != 1 || drawn.labels[j] != 0) continue;
      ++pairs;
      above += p > drawn.scores[j] ? 1 : p == drawn.scores[j] ? 0.5 : 0;
    }
  }
  const auto seen = metrics(outcomes_of(drawn), {});
  EXPECT_NEAR(named(seen, "accuracy").value, right / 900, 1e-12);
  EXPECT_NEAR(named(seen, "brier").value, brier / 900, 1e-12);
  EXPECT_NEAR(named(seen, "log_loss").value, log_loss / 900, 1e-9);
  EXPECT_NEAR(named(seen, "auc").value, above / pairs, 1e-12);
  for (const auto& one : seen) {
    EXPECT_LT(one.low, one.value) << one.name;
    EXPECT_GT(one.high, one.value) << one.name;
  }
}

TEST(Outcomes, ClassesAndNumbers) {
  Outcomes classes(Task::classes);
  const double sure[] = {0.1, 0.7, 0.2}, list[] = {0.5, 0.5};
  EXPECT_NEAR(*classes.add(sure, 1), (0.01 + 0.09 + 0.04) / 2, 1e-12);
  EXPECT_TRUE(classes.add(sure, 2));
  EXPECT_FALSE(classes.add(sure, 3)) << "there is no such class";
  EXPECT_FALSE(classes.add(sure, 0.5));
  EXPECT_FALSE(classes.add({list, 1}, 0)) << "half of what is possible is missing";
  EXPECT_DOUBLE_EQ(named(metrics(classes, {}), "accuracy").value, 0.5);
  Outcomes numbers(Task::regression);
  const double three = 3, five = 5, nothing = NAN;
  numbers.add({&three, 1}, 4);
  numbers.add({&five, 1}, 8);
  EXPECT_FALSE(numbers.add({&nothing, 1}, 8));
  EXPECT_DOUBLE_EQ(named(metrics(numbers, {}), "mae").value, 2);
  EXPECT_DOUBLE_EQ(named(metrics(numbers, {}), "rmse").value, std::sqrt(5));
  Outcomes binary;
  const double far = 1.5;
  EXPECT_FALSE(binary.add({&far, 1}, 1)) << "no probability";
  EXPECT_FALSE(binary.add({&three, 0}, 1));
}

TEST(Outcomes, PiecesTogetherAreTheWholeAndTravel) {
  std::mt19937_64 random(2);
  const auto drawn = draw(random, 800);
  Outcomes whole, together;
  for (std::size_t from = 0; from < 800; from += 100) {
    Outcomes piece;
    for (std::size_t i = from; i < from + 100; ++i) piece.add({&drawn.scores[i], 1}, drawn.labels[i]);
    together.merge(piece);
  }
  whole = outcomes_of(drawn);
  const auto a = metrics(whole, {}), b = metrics(together, {});
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].value, b[i].value, 1e-9) << a[i].name;
    EXPECT_NEAR(a[i].low, b[i].low, 1e-9) << a[i].name;
  }
  ByteWriter out;
  whole.encode(out);
  ByteReader in(out.bytes());
  EXPECT_EQ(Outcomes::decode(in), whole);
  in.expect_end();
  auto broken = out.take();
  broken[0] = std::byte{9};
  ByteReader bad(broken);
  EXPECT_ERROR(Outcomes::decode(bad), Code::corrupt);
}

// Nineteen of twenty intervals hold what is true.
TEST(Outcomes, BoundsHoldWhatIsTrue) {
  std::mt19937_64 random(3);
  const auto truth = metrics(outcomes_of(draw(random, 200'000)), {});
  std::map<std::string_view, int> held;
  constexpr int kTries = 400;
  for (int i = 0; i < kTries; ++i)
    for (const auto& one : metrics(outcomes_of(draw(random, 250)), {}))
      if (const double value = named(truth, one.name).value; one.low <= value && value <= one.high) ++held[one.name];
  for (const auto& [name, times] : held) {
    EXPECT_GT(times, kTries * 0.91) << name;
    EXPECT_LE(times, kTries * 0.99) << name;
  }
}

TEST(Outcomes, TheChanceOfBeingAsBadIsNeverLessThanSaid) {
  std::mt19937_64 random(4);
  const auto was = outcomes_of(draw(random, 5'000));
  std::map<std::string, int> below;
  constexpr int kTries = 2'000;
  for (int i = 0; i < kTries; ++i) {
    const auto is = outcomes_of(draw(random, 200));
    for (const auto* name : {"accuracy", "auc", "brier"})
      if (const auto p = worse_p(name, was, is, {}, 0.001); p && *p < 0.02) ++below[name];
  }
  for (const auto& [name, times] : below) EXPECT_LE(times, kTries * 0.02 + 12) << name;
  const auto worse = outcomes_of(draw(random, 1'000, 0.5)), better = outcomes_of(draw(random, 1'000));
  for (const auto* name : {"accuracy", "auc", "brier"}) EXPECT_LT(*worse_p(name, was, worse, {}, 0.001), 1e-4) << name;
  EXPECT_EQ(worse_p("brier", worse, better, {}, 0.001), 1) << "getting better is no fault";
  EXPECT_FALSE(worse_p("log_loss", was, worse, {}, 0.001));
  Outcomes few;
  const double p = 0.5;
  few.add({&p, 1}, 1);
  EXPECT_FALSE(worse_p("auc", was, few, {}, 0.001)) << "too few to say";
}

TEST(Outcomes, NeighboursThatAreAlikeAreWorthLess) {
  std::mt19937_64 random(5);
  std::vector<Outcomes> alone, alike;
  std::uniform_real_distribution<double> unit;
  for (int block = 0; block < 32; ++block) {
    alone.push_back(outcomes_of(draw(random, 200)));
    alike.push_back(outcomes_of(draw(random, 200, 0.6 * unit(random))));  // a bad afternoon
  }
  EXPECT_LT(effects_of(alone).loss, 2.2);
  EXPECT_GT(effects_of(alike).loss, 3);
  EXPECT_GT(effects_of(alike).auc, 3);
}

TEST(MeanAbove, BoundsTheTailFarOut) {
  // Ten coins that fall on the rare side in one of ten: P(at least 5) = 0.0016349.
  Quantiles coin;
  for (int i = 0; i < 100; ++i) coin.add(i < 10 ? 1 : 0);
  const double p = mean_above_p(coin, 0.5, 10);
  EXPECT_GT(p, 0.0016349);
  EXPECT_LT(p, 0.02);
  EXPECT_EQ(mean_above_p(coin, 0.05, 10), 1);
  EXPECT_NEAR(mean_above_p(coin, 1, 10), 1e-10, 1e-12) << "all of them";
  EXPECT_EQ(mean_above_p(coin, 1.5, 10), 0);
}

TEST(PageHinkley, ThresholdsKeepTheirLevelAndRisesAreFound) {
  std::mt19937_64 random(6);
  std::exponential_distribution<double> skewed(5);
  const auto draw_one = [&] { return std::min(1.0, skewed(random)); };
  Quantiles known(4'096);
  for (int i = 0; i < 20'000; ++i) known.add(draw_one());
  constexpr double kSlack = 0.02, kLevel = 0.05;
  constexpr int kSteps = 5'000, kStreams = 300;
  const double threshold = page_hinkley_threshold(known, kSlack, kSteps, kLevel);
  int false_ones = 0, found = 0;
  for (int s = 0; s < kStreams; ++s) {
    PageHinkley test(kSlack, threshold);
    bool alarmed = false;
    for (int i = 0; i < kSteps; ++i) alarmed = test.add(draw_one()).has_value() || alarmed;
    false_ones += alarmed;
    PageHinkley other(kSlack, threshold);
    std::optional<PageHinkley::Rise> rise;
    for (int i = 0; i < 1'000 && !rise; ++i) rise = other.add(draw_one());
    for (int i = 0; i < 2'000 && !rise; ++i) rise = other.add(0.1 + draw_one());
    found += rise && std::abs(rise->after - rise->before - 0.1) < 0.06;
  }
  EXPECT_LE(false_ones, kStreams * kLevel + 12);
  EXPECT_GT(found, kStreams * 0.9);
}

TEST(Change, DetectorsGoOnWhereTheyWere) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> unit;
  Adwin one(0.01), other(0.01);
  PageHinkley a(0.01, 20), b(0.01, 20);
  for (int i = 0; i < 3'000; ++i) {
    const double value = unit(random) * (i > 2'000 ? 1 : 0.5);
    const auto cut = one.add(value), cut_too = other.add(value);
    EXPECT_EQ(cut.has_value(), cut_too.has_value());
    EXPECT_EQ(a.add(value).has_value(), b.add(value).has_value());
    if (i % 37 != 0) continue;
    ByteWriter out;
    one.encode(out);
    a.encode(out);
    ByteReader in(out.bytes());
    other = Adwin(0.01);
    other.decode(in);
    b = PageHinkley(0.01, 20);
    b.decode(in);
    in.expect_end();
    EXPECT_EQ(one.count(), other.count());
    EXPECT_NEAR(one.mean(), other.mean(), 1e-9);
  }
}

}  // namespace
}  // namespace falaj::stats
