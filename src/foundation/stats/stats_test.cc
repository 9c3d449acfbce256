// SPDX-License-Identifier: Apache-2.0
// Every sketch against the exact answer on streams made from fixed seeds, whole and cut up and merged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "foundation/base/testing.h"
#include "foundation/stats/distance.h"
#include "foundation/stats/distinct.h"
#include "foundation/stats/frequent.h"
#include "foundation/stats/moments.h"

namespace falaj::stats {
namespace {

using Values = std::vector<double>;

Values normal(std::size_t n, std::uint64_t seed, double mean = 0, double deviation = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(mean, deviation);
  Values out(n);
  for (auto& v : out) v = draw(random);
  return out;
}

template <class Sketch>
Sketch through_bytes(const Sketch& sketch) {
  ByteWriter out;
  sketch.encode(out);
  ByteReader in(out.bytes());
  auto back = Sketch::decode(in);
  in.expect_end();
  return back;
}

// No prefix of a sketch is a sketch.
template <class Sketch>
void expect_prefixes_refused(const Sketch& sketch) {
  ByteWriter out;
  sketch.encode(out);
  for (std::size_t n = 0; n < out.bytes().size(); n += 1 + out.bytes().size() / 100) {
    ByteReader in(BytesView(out.bytes()).first(n));
    EXPECT_ERROR(Sketch::decode(in), Code::corrupt);
  }
}

Quantiles sketch_of(const Values& values, std::uint32_t k = Quantiles::kDefault) {
  Quantiles q(k);
  for (const double v : values) q.add(v);
  return q;
}

// The largest difference of ranks over all values.
double worst_rank(const Quantiles& q, Values values) {
  std::sort(values.begin(), values.end());
  const auto sketch = q.sorted();
  double worst = 0, below = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i + 1 < values.size() && values[i + 1] == values[i]) continue;
    while (at < sketch.size() && sketch[at].value <= values[i]) below += static_cast<double>(sketch[at++].weight);
    worst = std::max(worst, std::abs(below - static_cast<double>(i + 1)) / static_cast<double>(values.size()));
  }
  return worst;
}

TEST(Moments, AgreesWithTwoPassesHoweverItIsCut) {
  const auto values = normal(10'000, 1, 1e9, 3);  // a large mean: the naive sum of squares loses all digits
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / 1e4;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  for (const std::size_t cut : {0UL, 1UL, 17UL, 5'000UL, 10'000UL}) {
    Moments a, b;
    for (std::size_t i = 0; i < values.size(); ++i) (i < cut ? a : b).add(values[i]);
    a.merge(b);
    EXPECT_EQ(a.count(), 10'000U);
    EXPECT_NEAR(a.mean(), mean, 1e-5);
    EXPECT_NEAR(a.variance() / (squares / 9'999), 1, 1e-7);
    EXPECT_EQ(a.min(), *std::min_element(values.begin(), values.end()));
    EXPECT_EQ(a.max(), *std::max_element(values.begin(), values.end()));
    EXPECT_EQ(through_bytes(a), a);
  }
}

TEST(Moments, LeavesOutWhatIsNotANumber) {
  Moments m;
  m.add(std::nan(""));
  EXPECT_EQ(m, Moments());
  m.add(3);
  m.add(std::nan(""));
  EXPECT_EQ(m.count(), 1U);
  EXPECT_EQ(m.mean(), 3);
  EXPECT_EQ(m.variance(), 0);
  expect_prefixes_refused(m);
}

TEST(Distinct, IsWithinThreeStandardErrorsAtEverySize) {
  for (const std::uint64_t n : {1ULL, 10ULL, 500ULL, 1'100ULL, 10'000ULL, 60'000ULL, repeats(1'000'000ULL)}) {
    double squares = 0;
    constexpr int kRounds = 8;
    for (int round = 0; round < kRounds; ++round) {
      Distinct d;
      for (std::uint64_t i = 0; i < n; ++i) {
        const auto text = std::to_string(round) + "/" + std::to_string(i);
        d.add(text);
        if (i % 3 == 0) d.add(text);  // again
      }
      const double off = d.estimate() / static_cast<double>(n) - 1;
      EXPECT_LT(std::abs(off), 3.5 * 0.0081) << n << " round " << round;
      squares += off * off;
    }
    EXPECT_LT(std::sqrt(squares / kRounds), 1.6 * 0.0081) << n;  // the root of a mean of eight
  }
  EXPECT_EQ(Distinct().estimate(), 0);
}

TEST(Distinct, MergesExactlyInAnyOrder) {
  for (const int n : {300, 1'500, 30'000}) {
    Distinct all, a, b, c;
    for (int i = 0; i < n; ++i) {
      const auto text = std::to_string(i);
      all.add(text);
      (i % 3 == 0 ? a : i % 3 == 1 ? b : c).add(text);
      if (i % 5 == 0) a.add(text);
    }
    Distinct left = a, right = c;
    left.merge(b);
    left.merge(c);
    right.merge(b);
    right.merge(a);
    EXPECT_EQ(left, all);
    EXPECT_EQ(right, all);
    EXPECT_EQ(through_bytes(all), all);
    expect_prefixes_refused(all);
  }
}

TEST(Hash64, IsTheSameForEver) {
  EXPECT_EQ(hash64(""), hash64(""));
  std::vector<std::uint64_t> seen;
  for (std::size_t n = 0; n < 40; ++n) seen.push_back(hash64(std::string(n, '\0')));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  EXPECT_EQ(hash64("falaj"), 3126907436108483175ULL);
  EXPECT_EQ(hash64("three thousand years"), 8185914662240263901ULL);
}

// Orders that hurt: sorted, reversed, in waves; few values; long tails.
std::map<std::string, Values> streams(std::size_t n) {
  std::map<std::string, Values> out;
  out["normal"] = normal(n, 2);
  auto& sorted = out["sorted"] = normal(n, 3);
  std::sort(sorted.begin(), sorted.end());
  out["reversed"] = Values(sorted.rbegin(), sorted.rend());
  auto& waves = out["waves"];
  auto& few = out["few"];
  auto& tail = out["tail"];
  for (std::size_t i = 0; i < n; ++i) {
    waves.push_back(std::sin(static_cast<double>(i) / 100));
    few.push_back(static_cast<double>(i * 7 % 5));
    tail.push_back(std::exp(5 * out["normal"][i]));
  }
  return out;
}

TEST(Quantiles, RanksAreWithinTheStatedErrorWholeAndMerged) {
  constexpr std::size_t kValues = repeats(100'000UL);
  for (const std::uint32_t k : {50U, 200U, Quantiles::kDefault}) {
    for (const auto& [name, values] : streams(kValues)) {
      SCOPED_TRACE(name + " k=" + std::to_string(k));
      EXPECT_LT(worst_rank(sketch_of(values, k), values), sketch_of(values, k).rank_error_everywhere());
      // In 64 parts, merged as a chain and as a tree.
      std::vector<Quantiles> parts;
      for (std::size_t at = 0; at < 64; ++at)
        parts.push_back(sketch_of(Values(values.begin() + static_cast<std::ptrdiff_t>(at * kValues / 64),
                                         values.begin() + static_cast<std::ptrdiff_t>((at + 1) * kValues / 64)),
                                  k));
      Quantiles chain(k);
      for (const auto& part : parts) chain.merge(part);
      EXPECT_EQ(chain.count(), kValues);
      EXPECT_LT(worst_rank(chain, values), chain.rank_error_everywhere());
      for (std::size_t width = 1; width < parts.size(); width *= 2)
        for (std::size_t i = 0; i + width < parts.size(); i += 2 * width) parts[i].merge(parts[i + width]);
      EXPECT_LT(worst_rank(parts[0], values), parts[0].rank_error_everywhere());
      EXPECT_EQ(through_bytes(chain), chain);
    }
  }
}

TEST(Quantiles, StaysSmallAndIsExactForFew) {
  Quantiles q = sketch_of(normal(1'000'000, 5));
  EXPECT_LT(q.sorted().size(), 3 * Quantiles::kDefault + 200);
  std::uint64_t weight = 0;
  for (const auto& w : q.sorted()) weight += w.weight;
  EXPECT_EQ(weight, 1'000'000U);
  EXPECT_NEAR(q.quantile(0.5), 0, 0.03);
  EXPECT_NEAR(q.quantile(0.975), 1.96, 0.1);

  const Quantiles few = sketch_of({5, 1, 3, std::nan(""), 2, 4});
  EXPECT_EQ(few.count(), 5U);
  EXPECT_EQ(few.quantile(0), 1);
  EXPECT_EQ(few.quantile(0.2), 1);
  EXPECT_EQ(few.quantile(0.5), 3);
  EXPECT_EQ(few.quantile(1), 5);
  EXPECT_EQ(few.rank(2.5), 0.4);
  EXPECT_TRUE(std::isnan(Quantiles().quantile(0.5)));
  expect_prefixes_refused(few);
  EXPECT_EQ(through_bytes(Quantiles()), Quantiles());
}

TEST(Quantiles, MergedWithACoarserOneSaysTheLargerError) {
  Quantiles fine(400), coarse(50);
  fine.add(1);
  coarse.add(2);
  fine.merge(coarse);
  EXPECT_EQ(fine.rank_error(), coarse.rank_error());
  EXPECT_EQ(through_bytes(fine), fine);
}

TEST(Frequent, KeepsItsBoundOnSkewedStreamsWholeAndMerged) {
  std::mt19937_64 random(7);
  std::map<std::string, std::uint64_t> exact;
  Frequent whole(100), parts[4] = {Frequent(100), Frequent(100), Frequent(100), Frequent(100)};
  constexpr std::uint64_t kTotal = 200'000;
  for (std::uint64_t i = 0; i < kTotal; ++i) {
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    const auto text = std::to_string(static_cast<std::uint64_t>(1 / (u + 1e-5)));  // a few often, 100,000 rarely
    ++exact[text];
    whole.add(text);
    parts[i % 4].add(text);
  }
  Frequent merged = parts[0];
  for (int i = 1; i < 4; ++i) merged.merge(parts[i]);
  for (const auto* f : {&whole, &merged}) {
    EXPECT_EQ(f->total(), kTotal);
    EXPECT_LE(f->error(), 2 * kTotal / 100);
    EXPECT_LE(f->top(1'000).size(), 100U);
    for (const auto& [text, count] : exact) {
      EXPECT_LE(f->counted(text), count);
      EXPECT_GE(f->counted(text) + f->error(), count) << text;
    }
    EXPECT_EQ(f->top(1)[0].text, "1");
    EXPECT_EQ(through_bytes(*f), *f);
  }
  expect_prefixes_refused(merged);
}

TEST(Frequent, IsExactWhileCountersLast) {
  Frequent f(4);
  f.add("a", 3);
  f.add("b");
  f.add("b");
  f.add("c", 2);
  f.add("none", 0);
  EXPECT_EQ(f.top(2), (std::vector<Frequent::Entry>{{"a", 3}, {"b", 2}}));
  EXPECT_EQ(f.error(), 0U);
  const std::string long_text(Frequent::kTextMax + 1, 'x');
  f.add(long_text);
  EXPECT_EQ(f.counted(long_text.substr(1)), 1U);
}

double exact_ks(Values a, Values b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  double gap = 0;
  for (const auto* side : {&a, &b})
    for (const double v : *side) {
      const auto rank = [&](const Values& in) {
        return static_cast<double>(std::upper_bound(in.begin(), in.end(), v) - in.begin()) /
               static_cast<double>(in.size());
      };
      gap = std::max(gap, std::abs(rank(a) - rank(b)));
    }
  return gap;
}

TEST(Distance, KsAndWassersteinAgreeWithTheExactOnes) {
  for (const double shift : {0.0, 0.1, 0.5, 3.0}) {
    const auto a = normal(20'000, 11), b = normal(20'000, 12, shift);
    const auto qa = sketch_of(a), qb = sketch_of(b);
    EXPECT_NEAR(ks(qa, qb), exact_ks(a, b), qa.rank_error_everywhere() + qb.rank_error_everywhere()) << shift;
    EXPECT_NEAR(wasserstein(qa, qb), shift, 0.06) << shift;
    EXPECT_EQ(ks(qa, qb), ks(qb, qa));
    EXPECT_EQ(ks(qa, qa), 0);
    EXPECT_EQ(wasserstein(qb, qb), 0);
  }
  EXPECT_EQ(ks(sketch_of({1, 2}), sketch_of({3, 4})), 1);
  EXPECT_EQ(wasserstein(sketch_of({0, 1, 3}), sketch_of({5, 6, 8})), 5);
  EXPECT_EQ(ks(Quantiles(), Quantiles()), 0);
  EXPECT_TRUE(std::isnan(ks(Quantiles(), sketch_of({1}))));
}

TEST(Distance, BinsHoldEqualSharesOfTheReference) {
  const auto q = sketch_of(normal(100'000, 13));
  const auto cut = edges(q, 10);
  ASSERT_EQ(cut.size(), 9U);
  for (const double n : counts(q, cut)) EXPECT_NEAR(n / 100'000, 0.1, 0.01);
  EXPECT_EQ(edges(sketch_of({1, 1, 1, 1}), 4), Values{});
  EXPECT_EQ(edges(sketch_of({1, 1, 1, 2}), 2), Values{1});
  EXPECT_EQ(counts(sketch_of({1, 1, 1, 2}), Values{1}), (Values{3, 1}));
  EXPECT_EQ(counts(Quantiles(), Values{1}), (Values{0, 0}));
}

TEST(Distance, HistogramDistancesHaveTheirKnownValues) {
  const Values a{1e6, 1e6}, b{1.5e6, 0.5e6};
  // By hand: (0.5-0.75) ln(0.5/0.75) + (0.5-0.25) ln(0.5/0.25)
  EXPECT_NEAR(population_stability_index(a, b), 0.25 * std::log(1.5) + 0.25 * std::log(2.0), 1e-5);
  EXPECT_NEAR(jensen_shannon(a, b), 0.04879494, 1e-5);
  EXPECT_EQ(population_stability_index(a, a), 0);
  EXPECT_EQ(jensen_shannon(a, a), 0);
  EXPECT_NEAR(jensen_shannon(Values{1e9, 0}, Values{0, 1e9}), 1, 1e-6);
  EXPECT_TRUE(std::isfinite(population_stability_index(Values{1e9, 0}, Values{0, 1e9})));
}

}  // namespace
}  // namespace falaj::stats
