// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/alerts/windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "foundation/base/testing.h"
#include "foundation/sys/random.h"
#include "lifecycle/alerts/exposition.h"

namespace falaj::alerts {
namespace {

TEST(WindowsOf, CountsSayHowMuchTheyGrew) {
  Windows windows;
  EXPECT_EQ(windows.see("a", 1000, 50, 0).by, 0) << "what was before is not known";
  EXPECT_EQ(windows.see("a", 1000, 60, 500).by, 10);
  EXPECT_EQ(windows.see("a", 1000, 65, 1000).by, 15);
  const auto later = windows.see("a", 1000, 65, 1500);
  EXPECT_EQ(later.by, 5);
  EXPECT_EQ(later.over_us, 1000);
  EXPECT_EQ(windows.see("a", 1000, 3, 1600).by, 8) << "it was started anew: 3 came since";
  EXPECT_EQ(windows.see("a", 1000, 4, 1605).by, 9);
  EXPECT_EQ(windows.see("a", 1000, 6, 9000).by, 2) << "after a silence only what came in it";
  EXPECT_EQ(windows.see("b", 1000, 7, 9000).by, 0);
  EXPECT_EQ(windows.size(), 2U);
  windows.forget(9001);
  EXPECT_EQ(windows.size(), 0U);
}

// A window begins at most a part of it too early.
TEST(WindowsOf, CountsAtRandomAreWithinWhatWasCounted) {
  sys::SimRandom random(3);
  for (int round = 0; round < 200; ++round) {
    Windows windows;
    const auto window = static_cast<std::int64_t>(1 + random.below(5000));
    std::vector<std::pair<std::int64_t, double>> grown;  // since the first
    std::int64_t now = 0;
    double count = 0, total = 0;
    for (int i = 0; i < 100; ++i) {
      now += static_cast<std::int64_t>(1 + random.below(300));
      const auto more = static_cast<double>(random.below(10));
      const bool anew = more < count && random.below(20) == 0;
      count = anew ? more : count + more;
      if (i > 0) total += more;
      grown.emplace_back(now, total);
      const auto got = windows.see("x", window, count, now);
      EXPECT_LE(got.by, total);
      double least = 0;  // what grew surely inside
      for (const auto& [at, sum] : grown)
        if (at <= now - window) least = sum;
      EXPECT_GE(got.by, grown.front().first > now - window ? 0 : total - least);
      EXPECT_GE(got.by, 0);
    }
  }
}

TEST(WindowsOf, TimesForgetWhatWasSlowLongAgo) {
  using Times = TimeWindows::Times;
  TimeWindows windows;
  Times::Tally counts{};
  windows.see("a", 1000, counts, 0);
  counts[Times::bucket(5000)] = 100;
  EXPECT_NEAR(Times::quantile_us(windows.see("a", 1000, counts, 500), 0.99), 5000, 5000.0 / 16);
  counts[Times::bucket(10)] = 50;
  windows.see("a", 1000, counts, 1000);
  counts[Times::bucket(10)] = 80;
  EXPECT_EQ(Times::quantile_us(windows.see("a", 1000, counts, 1600), 0.99), 11) << "the slow ones are out of it";
  counts = {};
  counts[Times::bucket(7)] = 3;
  EXPECT_EQ(windows.see("a", 1000, counts, 1700)[Times::bucket(7)], 3U) << "it was started anew";
}

constexpr std::string_view kText =
    "# HELP a_total Some.\n# TYPE a_total counter\na_total 3\n"
    "# TYPE a_total_more gauge\na_total_more 9\n"
    "# TYPE g gauge\ng{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 2.5\ng{x=\"2\",y=\"\"} +Inf\ng{x=\"3\"} 1e3 1700000000\n"
    "# TYPE h histogram\nh_bucket{le=\"1\"} 3\n# TYPE bad gauge\nbad{x=\"1} 2\n";

TEST(Expositions, AreReadOneMetricAtATime) {
  const auto total = find_exposed(kText, "a_total");
  EXPECT_TRUE(total.counter);
  ASSERT_EQ(total.samples.size(), 1U);
  EXPECT_EQ(total.samples[0].value, 3);
  const auto g = find_exposed(kText, "g");
  EXPECT_FALSE(g.counter);
  ASSERT_EQ(g.samples.size(), 3U);
  EXPECT_EQ(g.samples[0].labels.at("y"), "a\"b\\c\nd");
  EXPECT_EQ(g.samples[0].value, 2.5);
  EXPECT_EQ(g.samples[2].value, 1000);
  EXPECT_ERROR(find_exposed(kText, "h"), Code::invalid);
  EXPECT_ERROR(find_exposed(kText, "bad"), Code::invalid);
  EXPECT_ERROR(find_exposed(kText, "none"), Code::not_found);
}

}  // namespace
}  // namespace falaj::alerts
