// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/sequential.h"

#include <cmath>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

namespace falaj::stats {
namespace {

struct Peeked {
  int called = 0;  // experiments in which a difference was claimed
  int missed = 0;  // in which the bounds missed the truth at some look
  double mean_count = 0;
};

// Looks after every batch of 50 a side and stops at the first claim, as impatient people do.
Peeked peek(int experiments, double rate_a, double rate_b, double effect) {
  Peeked out;
  std::mt19937_64 random(4711);
  for (int e = 0; e < experiments; ++e) {
    SequentialTest test(effect, 0.95);
    Sample a, b;
    bool called = false, missed = false;
    for (int batch = 0; batch < 200 && !called; ++batch) {
      for (int i = 0; i < 50; ++i) {
        a.add(std::bernoulli_distribution(rate_a)(random) ? 1 : 0);
        b.add(std::bernoulli_distribution(rate_b)(random) ? 1 : 0);
      }
      const auto seen = test.look(a, b);
      called = seen.p < 0.05;
      missed |= seen.bounded && (rate_b - rate_a < seen.low || rate_b - rate_a > seen.high);
    }
    out.called += called;
    out.missed += missed;
    out.mean_count += static_cast<double>(a.count) / experiments;
  }
  return out;
}

int experiments() {
  const char* given = std::getenv("FALAJ_CASES");
  return given ? std::atoi(given) : 300;
}

TEST(SequentialTest, ClaimsNoDifferenceThatIsNotThereHoweverOftenItIsLookedAt) {
  const int n = experiments();
  const auto seen = peek(n, 0.2, 0.2, 0.02);
  RecordProperty("false_positives", seen.called);
  std::printf("no difference: %d of %d claimed one (%.1f %%), bounds missed in %d\n", seen.called, n,
              100.0 * seen.called / n, seen.missed);
  const double most = 0.05 * n + 3 * std::sqrt(0.05 * 0.95 * n);
  EXPECT_LE(seen.called, most);
  EXPECT_LE(seen.missed, most);
}

TEST(SequentialTest, FindsADifferenceAndSoonerALargerOne) {
  const int n = experiments() / 3;
  const auto small = peek(n, 0.2, 0.22, 0.02), large = peek(n, 0.2, 0.26, 0.02);
  std::printf("0.20 against 0.22: found in %.0f %%, after %.0f a side; 0.26: %.0f %%, after %.0f\n",
              100.0 * small.called / n, small.mean_count, 100.0 * large.called / n, large.mean_count);
  EXPECT_GT(large.called, 0.98 * n);
  EXPECT_GT(small.called, 0.5 * n);
  EXPECT_LT(large.mean_count, small.mean_count);
}

TEST(SequentialTest, SaysNothingOfFewValuesOrConstants) {
  SequentialTest test(0.1, 0.95);
  Sample a, b;
  for (std::uint64_t i = 0; i < SequentialTest::kCountMin - 1; ++i) a.add(0), b.add(1);
  EXPECT_EQ(test.look(a, b).p, 1);
  for (int i = 0; i < 100; ++i) a.add(0), b.add(1);
  const auto seen = test.look(a, b);
  EXPECT_EQ(seen.p, 1);
  EXPECT_FALSE(seen.bounded);
  EXPECT_EQ(seen.difference, 1);
}

}  // namespace
}  // namespace falaj::stats
