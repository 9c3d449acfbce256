// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/points.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <tuple>

#include "foundation/base/testing.h"

namespace falaj::track {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

bool identical(const Point& a, const Point& b) {
  return a.unix_ms == b.unix_ms && a.step == b.step &&
         std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value);
}

testing::AssertionResult identical(std::span<const Point> a, std::span<const Point> b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " points against " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!identical(a[i], b[i]))
      return testing::AssertionFailure() << "point " << i << ": " << a[i].unix_ms << ' ' << a[i].step << ' '
                                         << a[i].value << " against " << b[i].unix_ms << ' ' << b[i].step << ' '
                                         << b[i].value;
  return testing::AssertionSuccess();
}

// Points with every kind of trouble, drawn from few values so that they collide.
class Troubles {
 public:
  explicit Troubles(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }

  std::vector<Point> points(std::size_t count) {
    std::vector<Point> points(count);
    for (Point& point : points) point = {integer(), integer(), value()};
    return points;
  }

 private:
  std::int64_t integer() {
    static constexpr std::int64_t kValues[] = {0, 1, 2, 3, -1, kLowest, kHighest, 1'700'000'000'000};
    return kValues[below(std::size(kValues))];
  }
  double value() {
    static constexpr double kValues[] = {0, -0.0, 1, -1, 0.1, 1e300, 5e-324, kInf, -kInf, kNan};
    return below(8) == 0 ? std::bit_cast<double>(random_()) : kValues[below(std::size(kValues))];
  }
  std::mt19937_64 random_;
};

// The order, written out as one comparable tuple.
auto rank(const Point& p) {
  return std::tuple(p.unix_ms, p.step, std::isnan(p.value), std::isnan(p.value) ? 0.0 : p.value);
}

TEST(Points, AreOrderedByTimeStepAndValueWithNanLast) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const auto points = Troubles(kSeed).points(120);
  for (const Point& a : points)
    for (const Point& b : points) {
      EXPECT_EQ(before(a, b), rank(a) < rank(b));
      EXPECT_EQ(same(a, b), rank(a) == rank(b));
    }
}

TEST(Points, TheNewestHasTheLargestStepThenTimeThenValue) {
  EXPECT_TRUE(newer({1, 2, 0}, {9, 1, 9}));
  EXPECT_TRUE(newer({2, 1, 0}, {1, 1, 9}));
  EXPECT_TRUE(newer({1, 1, 2}, {1, 1, 1}));
  EXPECT_FALSE(newer({1, 1, 1}, {1, 1, 1}));
  EXPECT_FALSE(newer({1, 1, kNan}, {1, 1, -kInf}));
  EXPECT_TRUE(newer({1, 1, -kInf}, {1, 1, kNan}));
  EXPECT_FALSE(newer({1, 1, kNan}, {1, 1, kNan}));
  EXPECT_TRUE(newer({1, 2, kNan}, {1, 1, 5}));
}

TEST(Points, TidyIsWhatASetWouldKeep) {
  constexpr std::uint64_t kSeed = 12;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Troubles troubles(kSeed);
  for (int round = 0; round < 300; ++round) {
    auto points = troubles.points(troubles.below(200));
    const auto less = [](const Point& a, const Point& b) { return rank(a) < rank(b); };
    const std::set<Point, decltype(less)> expected(points.begin(), points.end(), less);  // keeps the first of equals
    tidy(points);
    ASSERT_TRUE(identical(points, std::vector<Point>(expected.begin(), expected.end()))) << "round " << round;
  }
}

TEST(Points, SurvivePackingToTheLastBit) {
  constexpr std::uint64_t kSeed = 13;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Troubles troubles(kSeed);
  for (int round = 0; round < 300; ++round) {
    auto points = troubles.points(troubles.below(200));
    tidy(points);
    ASSERT_TRUE(identical(unpack(pack(points)), points)) << "round " << round;
  }
}

std::vector<Point> steady(std::size_t count, double (*value)(std::size_t)) {
  std::vector<Point> points(count);
  for (std::size_t i = 0; i < count; ++i)
    points[i] = {1'700'000'000'000 + 1000 * static_cast<std::int64_t>(i), static_cast<std::int64_t>(i), value(i)};
  return points;
}

// A number that looks random and is the same everywhere, which std::normal_distribution is not.
double noise(std::size_t i) {
  std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9;
  return static_cast<double>((x ^ (x >> 29)) >> 11) / 9007199254740992.0;
}

TEST(Points, PackIntoFewBytes) {
  struct Case {
    const char* what;
    double (*value)(std::size_t);
    double bytes_a_point_max;
  };
  const Case cases[] = {
      {"one value", [](std::size_t) { return 0.5; }, 0.02},
      {"integers", [](std::size_t i) { return static_cast<double>(32 * i); }, 0.02},
      {"decimals", [](std::size_t i) { return std::round(noise(i) * 1e4) / 1e4; }, 2.1},
      {"single precision", [](std::size_t i) -> double { return static_cast<float>(noise(i)); }, 3.6},
      {"double precision", [](std::size_t i) { return noise(i); }, 7.3},
      {"a smooth curve", [](std::size_t i) { return 2.3 * std::exp(-static_cast<double>(i) / 2500) + 0.05; }, 4.4},
  };
  for (const Case& c : cases) {
    const auto points = steady(10'000, c.value);
    const auto block = pack(points);
    EXPECT_LE(static_cast<double>(block.size()) / 10'000, c.bytes_a_point_max) << c.what;
    EXPECT_TRUE(identical(unpack(block), points)) << c.what;
  }
}

TEST(Points, DecimalsThatOutgrowTheirPlacesStillSurvive) {
  // The second needs places that push the first above 2^53.
  for (const double large : {9007199254740991.0, 9007199254740992.0, 9007199254740994.0, 900719925474099.1}) {
    const std::vector<Point> points = {{1, 1, large}, {2, 2, 0.123456789}, {3, 3, -0.1}};
    EXPECT_TRUE(identical(unpack(pack(points)), points)) << large;
  }
}

// Values of one kind, so that each form of a block is used, and now and then one that does not fit it.
TEST(Points, SurvivePackingInEveryForm) {
  constexpr std::uint64_t kSeed = 15;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Troubles troubles(kSeed);
  static constexpr double kOdd[] = {-0.0, 0.0, kNan, kInf, 1e22, 0.1F, 1.0 / 3, 9007199254740993e3};
  for (int round = 0; round < 2000; ++round) {
    const bool single = troubles.below(3) == 0;
    const double scale = std::pow(10, static_cast<double>(troubles.below(10)));
    std::vector<Point> points(troubles.below(30));
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double value = (static_cast<double>(troubles.below(20'001)) - 10'000) / scale;
      points[i] = {static_cast<std::int64_t>(i), 0, single ? static_cast<double>(static_cast<float>(value)) : value};
      if (troubles.below(60) == 0) points[i].value = kOdd[troubles.below(std::size(kOdd))];
    }
    ASSERT_TRUE(identical(unpack(pack(points)), points)) << "round " << round;
  }
}

TEST(Points, ABlockHoldsItsLimitAndNothing) {
  EXPECT_TRUE(unpack(pack({})).empty());
  const auto full = steady(kPointsPerBlockMax, noise);
  EXPECT_TRUE(identical(unpack(pack(full)), full));
  const auto over = steady(kPointsPerBlockMax + 1, noise);
  EXPECT_DEATH(pack(over), "more points than a block holds");
}

Bytes with_checksum(Bytes bytes) {
  ByteWriter out;
  out.raw(bytes);
  out.u32(static_cast<std::uint32_t>(crc32_z(crc32_z(0, nullptr, 0), raw(bytes), bytes.size())));
  return out.take();
}

TEST(Points, AnyAlteredByteIsFound) {
  const auto block = pack(steady(300, noise));
  for (std::size_t i = 0; i < block.size(); ++i) {
    auto altered = block;
    altered[i] ^= std::byte{static_cast<unsigned char>(1 + i % 255)};
    EXPECT_ERROR(unpack(altered), Code::corrupt);
    EXPECT_ERROR(unpack(BytesView(block).first(i)), Code::corrupt);
  }
}

TEST(Points, BytesThatPackNeverMakesAreRefusedThoughTheirChecksumHolds) {
  struct Case {
    const char* why;
    const char* hex;  // without the checksum
  };
  // Version 1, decimals of no places, then count and columns. "0600" is a column of one byte, repeated: 00.
  const Case cases[] = {
      {"of another version", "0202010600060006"},
      {"no known form", "010c01060006000600"},
      {"more points than a block holds", "01008180040600"},
      {"a number does not end", "0100ff"},
      {"more than 64 bits", "0100ffffffffffffffffff02"},
      {"shortest form", "01028100060006000600"},
      {"a number does not end", "01020106000600"},
      {"cut off", "0102010600060004"},
      {"a size that its points cannot have", "01020106002e000600"},
      {"a size that its points cannot have", "010201060002000600"},
      {"no known kind", "0102010700060006"},
      {"no zstd frame", "010201050006000600"},
      {"more numbers than points", "01020108000006000600"},
      {"something follows its end", "01020106000600060000"},
      {"out of order", "0102020a000a000a00"},  // the same point twice
  };
  for (const Case& c : cases) {
    try {
      unpack(with_checksum(from_hex(c.hex)));
      ADD_FAILURE() << "accepted: " << c.why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt);
      EXPECT_NE(std::string(error.what()).find(c.why), std::string::npos) << error.what() << ", expected: " << c.why;
    }
  }
  const auto one = unpack(with_checksum(from_hex("010201060006000600")));  // what all of the above is near to
  EXPECT_TRUE(identical(one, std::vector<Point>{{0, 0, 0}}));
}

// Blocks that were written once must be read for ever. A new version adds a file here.
TEST(Points, BlocksOfVersionOneAreStillRead) {
  const auto golden = [](const char* file) {
    std::ifstream in(std::string(FALAJ_TESTDATA) + "/points/" + file);
    std::string hex;
    in >> hex;
    return from_hex(hex);
  };
  const std::vector<Point> doubles = {
      {1'700'000'000'000, -1, kNan}, {1'700'000'001'000, 0, 1.0 / 3}, {1'700'000'002'003, 1, -kInf}};
  const std::vector<Point> singles = {{0, 0, static_cast<double>(0.1F)}, {1, 7, -0.0}, {2, 14, 0.75}};
  EXPECT_TRUE(identical(unpack(golden("v1_doubles.hex")), doubles));
  EXPECT_TRUE(identical(unpack(golden("v1_singles.hex")), singles));
  EXPECT_TRUE(identical(unpack(golden("v1_decimals_zstd.hex")),
                        steady(200, [](std::size_t i) { return static_cast<double>(i % 7) / 100; })));
}

// Thinning by its definition, with no cleverness.
std::vector<Point> naively_thinned(std::span<const Point> points, std::size_t most) {
  if (points.size() <= most) return {points.begin(), points.end()};
  const std::size_t stretches = (most - 2) / 2;
  std::vector<bool> keep(points.size());
  keep.front() = keep.back() = true;
  for (std::size_t s = 0; s < stretches; ++s) {
    std::vector<std::size_t> numbers, all;
    for (std::size_t i = 1; i + 1 < points.size(); ++i)
      if (i - 1 >= s * (points.size() - 2) / stretches && i - 1 < (s + 1) * (points.size() - 2) / stretches) {
        all.push_back(i);
        if (!std::isnan(points[i].value)) numbers.push_back(i);
      }
    const auto less = [&](std::size_t a, std::size_t b) { return points[a].value < points[b].value; };
    const auto more = [&](std::size_t a, std::size_t b) { return points[a].value > points[b].value; };
    keep[numbers.empty() ? all[0] : *std::min_element(numbers.begin(), numbers.end(), less)] = true;
    if (!numbers.empty()) keep[*std::min_element(numbers.begin(), numbers.end(), more)] = true;
  }
  std::vector<Point> kept;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (keep[i]) kept.push_back(points[i]);
  return kept;
}

TEST(Points, ThinningKeepsTheEndsAndTheExtremesOfEachStretch) {
  constexpr std::uint64_t kSeed = 14;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Troubles troubles(kSeed);
  for (int round = 0; round < 500; ++round) {
    auto points = troubles.points(troubles.below(400));
    tidy(points);
    const std::size_t most = 4 + troubles.below(60);
    const auto kept = thin(points, most);
    ASSERT_LE(kept.size(), most) << "round " << round;
    ASSERT_TRUE(identical(kept, naively_thinned(points, most))) << "round " << round << ", most " << most;
  }
}

TEST(Points, ThinningKeepsTheHighestAndTheLowestOfAll) {
  const auto points = steady(50'000, noise);
  const auto kept = thin(points, 100);
  const auto by_value = [](const Point& a, const Point& b) { return a.value < b.value; };
  const auto [low, high] = std::minmax_element(points.begin(), points.end(), by_value);
  const auto [kept_low, kept_high] = std::minmax_element(kept.begin(), kept.end(), by_value);
  EXPECT_TRUE(identical(*low, *kept_low));
  EXPECT_TRUE(identical(*high, *kept_high));
}

TEST(Points, SamplingIsEvenAndKeepsTheEnds) {
  for (std::size_t count = 0; count < 60; ++count) {
    const auto points = steady(count, noise);
    EXPECT_TRUE(sample_evenly(points, 0).empty());
    for (std::size_t most = 1; most < 70; ++most) {
      const auto kept = sample_evenly(points, most);
      ASSERT_EQ(kept.size(), std::min(count, most));
      if (kept.empty()) continue;
      EXPECT_TRUE(identical(kept.back(), points.back()));
      if (kept.size() == 1) continue;
      EXPECT_TRUE(identical(kept.front(), points.front()));
      std::int64_t nearest = kHighest;
      std::int64_t farthest = 0;
      for (std::size_t i = 1; i < kept.size(); ++i) {
        nearest = std::min(nearest, kept[i].step - kept[i - 1].step);
        farthest = std::max(farthest, kept[i].step - kept[i - 1].step);
      }
      EXPECT_GE(nearest, 1);
      EXPECT_LE(farthest - nearest, 1) << "count " << count << ", most " << most;
    }
  }
}

}  // namespace
}  // namespace falaj::track
