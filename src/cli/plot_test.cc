// SPDX-License-Identifier: Apache-2.0
#include "cli/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace falaj::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

TEST(Sparkline, GoesFromTheLowestToTheHighest) {
  const double rising[] = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(sparkline(rising), "▁▂▃▄▅▆▇█");
  const double falling[] = {10, 0};
  EXPECT_EQ(sparkline(falling), "█▁");
}

TEST(Sparkline, LeavesAGapForNaNAndKeepsInfinitiesAtTheEdges) {
  const double values[] = {0, kNan, 1, kInfinity, -kInfinity};
  EXPECT_EQ(sparkline(values), "▁ ██▁");
}

TEST(Sparkline, DrawsOneHeightForEqualValuesAndNothingForNone) {
  const double same[] = {3, 3};
  EXPECT_EQ(sparkline(same), "▅▅");
  EXPECT_EQ(sparkline({}), "");
  const double extremes[] = {std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
  EXPECT_EQ(sparkline(extremes), "▁█");
}

TEST(Ticks, AreRoundAndHoldTheRange) {
  EXPECT_THAT(ticks(0, 100, 6), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(ticks(0.13, 0.87, 6), ElementsAre(0, 0.2, testing::DoubleEq(0.4), testing::DoubleEq(0.6), 0.8, 1));
}

TEST(Ticks, AreFewAndCoverAnyRange) {
  constexpr unsigned kSeed = 20'261;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<double> exponent(-300, 300), sign(-1, 1);
  for (int i = 0; i < 20'000; ++i) {
    double low = sign(random) * std::pow(10, exponent(random)), high = sign(random) * std::pow(10, exponent(random));
    if (low > high) std::swap(low, high);
    const auto found = ticks(low, high, 8);
    ASSERT_GE(found.size(), 2U) << low << ' ' << high;
    ASSERT_LE(found.size(), 10U) << low << ' ' << high;
    for (std::size_t t = 1; t < found.size(); ++t) ASSERT_LT(found[t - 1], found[t]) << low << ' ' << high;
    for (const double tick : found) ASSERT_TRUE(std::isfinite(tick)) << low << ' ' << high;
  }
}

TEST(XmlText, EscapesMarkupAndReplacesWhatXmlCannotHold) {
  EXPECT_EQ(xml_text("<a b=\"c\">&'"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;");
  EXPECT_EQ(xml_text("فلج 水路"), "فلج 水路");
  EXPECT_EQ(xml_text("a\x1b[31m\xff\xc3"), "a\xEF\xBF\xBD[31m\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(xml_text("\xEF\xBF\xBF"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

Chart chart_of(std::vector<double> y) {
  Chart chart{"loss", "step", {{"run", {}, std::move(y)}}, false};
  for (std::size_t i = 0; i < chart.lines[0].y.size(); ++i) chart.lines[0].x.push_back(static_cast<double>(i));
  return chart;
}

TEST(Svg, DrawsAxesALineAndALegend) {
  const auto svg = to_svg(chart_of({0, 1, 2}));
  EXPECT_TRUE(svg.starts_with("<svg xmlns=")) << svg;
  EXPECT_THAT(svg, HasSubstr("d=\"M80.0 521.8L508.0 294.0L936.0 66.2\""));
  EXPECT_THAT(svg, HasSubstr(">loss</text>"));
  EXPECT_THAT(svg, HasSubstr(">step</text>"));
  EXPECT_THAT(svg, HasSubstr(">run</text>"));
}

TEST(Svg, InterruptsTheLineAtNaNAndMarksALonePoint) {
  const auto svg = to_svg(chart_of({0, 1, kNan, 1, kNan, 0, 1}));
  const auto end = svg.find("\" fill=\"none\" stroke=\"#0072b2\"");
  const auto begin = svg.rfind("d=\"", end);
  const auto path = svg.substr(begin, end - begin);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 3) << path;
  EXPECT_THAT(svg, HasSubstr("<circle"));
}

TEST(Svg, ShowsNamesAsText) {
  auto chart = chart_of({1, 2});
  chart.title = "</text><script>alert(1)</script>";
  chart.lines[0].name = "\" onload=\"alert(1)" + std::string(1000, 'x');
  const auto svg = to_svg(chart);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("\" onload")));
  EXPECT_LT(svg.size(), 5000U);
}

TEST(Svg, HoldsOnlyNumbersThatAViewerCanDraw) {
  for (const auto& y :
       {std::vector<double>{}, {kNan}, {kInfinity, -kInfinity}, {5}, {7, 7, 7}, {-1e308, 1e308}, {0, 5e-324}})
    for (const bool log : {false, true}) {
      auto chart = chart_of(y);
      chart.log_y = log;
      const auto svg = to_svg(chart);
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
      EXPECT_THAT(svg, Not(HasSubstr("inf")));
    }
}

TEST(Svg, LogarithmicLeavesOutWhatIsNotAboveZero) {
  auto chart = chart_of({-1, 0, 1, 100});
  chart.log_y = true;
  const auto svg = to_svg(chart);
  EXPECT_THAT(svg, HasSubstr("521.8L936.0 66.2\""));
  for (const auto* label : {">1</text>", ">10</text>", ">100</text>"}) EXPECT_THAT(svg, HasSubstr(label));
}

}  // namespace
}  // namespace falaj::cli
