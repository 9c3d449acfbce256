// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/look.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "foundation/base/testing.h"
#include "foundation/stats/blocks.h"
#include "lifecycle/watch/diagnose.h"
#include "lifecycle/watch/judge.h"

namespace falaj::watch {
namespace {

using testing::HasSubstr;
using Random = std::mt19937_64;

double normal(Random& random) {
  std::normal_distribution<double> one;  // of its own: the same numbers whatever was drawn before
  return one(random);
}
double uniform(Random& random) { return std::generate_canonical<double, 53>(random); }

// Neighbours that are alike: each is mostly what the one before was.
struct Alike {
  double keeps = 0.98, at = 0;
  double next(Random& random) { return at = keeps * at + std::sqrt(1 - keeps * keeps) * normal(random); }
};

using Row = std::function<void(traffic::Sketches&)>;
traffic::Sketches rows(int count, const Row& row) {
  traffic::Sketches out;
  for (int i = 0; i < count; ++i) row(out);
  return out;
}
std::vector<traffic::Sketches> blocks_of(int count, int each, const Row& row) {
  std::vector<traffic::Sketches> out;
  for (int i = 0; i < count; ++i) out.push_back(rows(each, row));
  return out;
}
Window window(std::int64_t number, traffic::Sketches columns) {
  return {number, number * 1'000'000, number * 1'000'000 + 999'999, std::move(columns)};
}

// Windows in turn, and what stands after each.
class Watching {
 public:
  Watching(Reference reference, MonitorSpec spec) : reference_(std::move(reference)), spec_(std::move(spec)) {}
  const std::vector<Finding>& see(traffic::Sketches columns) {
    auto looked = look(reference_, spec_, std::move(state_), window(next_++, std::move(columns)));
    state_ = std::move(looked.state);
    columns_ = std::move(looked.columns);
    return findings_ = std::move(looked.findings);
  }
  const Finding* of(const std::string& column, const std::string& test) const {
    for (const auto& one : findings_)
      if (one.column == column && one.test == test) return &one;
    return nullptr;
  }
  const std::vector<ColumnSeen>& columns() const { return columns_; }
  State& state() { return state_; }
  std::int64_t windows() const { return next_; }

 private:
  Reference reference_;
  MonitorSpec spec_;
  State state_;
  std::int64_t next_ = 0;
  std::vector<Finding> findings_;
  std::vector<ColumnSeen> columns_;
};

const char* const kCities[] = {"dxb", "auh", "shj", "rkt"};

// A distance, a temperature that is sometimes missing, a city and an answer.
struct Flights {
  Random random{7};
  double factor = 1, shift = 0, missing = 0.02, strange = 0;
  void operator()(traffic::Sketches& to) {
    to["distance"].add(factor * (200 + 1500 * std::pow(uniform(random), 2)));
    to["temperature"].add(uniform(random) < missing ? NAN : 30 + shift + 5 * normal(random));
    to["city"].add(std::string_view(uniform(random) < strange ? "xxx" : kCities[random() % 10 < 6 ? 0 : random() % 4]));
    to["out_prediction"].add(uniform(random));
  }
};

class LookTest : public testing::Test {
 protected:
  LookTest() : watching_(make_reference(blocks_of(32, 500, std::ref(flights_)), "before"), {}) {}
  void see(int windows) {
    for (int i = 0; i < windows; ++i) watching_.see(rows(500, std::ref(flights_)));
  }
  Flights flights_;
  Watching watching_;
};

TEST_F(LookTest, FindsNothingWhereNothingChanged) {
  for (int i = 0; i < 70; ++i) EXPECT_TRUE(watching_.see(rows(500, std::ref(flights_))).empty()) << i;
  for (const auto& column : watching_.columns()) {
    EXPECT_EQ(column.rows, 500) << column.column;
    EXPECT_TRUE(column.distances.psi) << column.column;
    EXPECT_LT(*column.distances.psi, 0.1) << column.column;
  }
}

TEST_F(LookTest, NamesTheUnitThatWasMixedUpAndForgetsItAfterwards) {
  see(8);
  flights_.factor = 1.609344;
  see(1);
  ASSERT_TRUE(watching_.of("distance", "drift"));
  EXPECT_EQ(watching_.of("distance", "drift")->kind, "quality");
  EXPECT_THAT(watching_.of("distance", "drift")->diagnosis, HasSubstr("looks multiplied by 1.609: kilometres"));
  EXPECT_EQ(watching_.of("distance", "drift")->since_us, 8'000'000);
  EXPECT_FALSE(watching_.of("distance", "range")) << "one word is enough";
  EXPECT_FALSE(watching_.of("temperature", "drift"));
  flights_.factor = 1;
  see(2);
  EXPECT_TRUE(watching_.of("distance", "drift")) << "stands for a while";
  for (int i = 0; i < 10 && watching_.of("distance", "drift"); ++i) see(1);
  for (int i = 0; i < 70; ++i) {
    EXPECT_FALSE(watching_.of("distance", "drift")) << "though longer blocks hold what is over, " << i;
    see(1);
  }
}

TEST_F(LookTest, FindsMissingValuesNewOnesAndThoseBeyondTheRange) {
  see(4);
  flights_.missing = 0.2;
  flights_.strange = 0.05;
  flights_.shift = 100;
  see(2);
  ASSERT_TRUE(watching_.of("temperature", "missing"));
  EXPECT_THAT(watching_.of("temperature", "missing")->text, HasSubstr("% are missing, 2."));
  EXPECT_EQ(watching_.of("temperature", "missing")->kind, "quality");
  ASSERT_TRUE(watching_.of("city", "range"));
  EXPECT_THAT(watching_.of("city", "range")->text, HasSubstr("values that the reference never had: 'xxx'"));
  ASSERT_TRUE(watching_.of("temperature", "range"));
  EXPECT_THAT(watching_.of("temperature", "range")->text, HasSubstr("100.0 % lie outside"));
  EXPECT_THAT(watching_.of("temperature", "drift")->diagnosis, HasSubstr("looks shifted by"));
}

TEST_F(LookTest, ACompleteStandstillIsAFault) {
  see(4);
  for (int i = 0; i < 2; ++i)
    watching_.see(rows(500, [&](traffic::Sketches& to) {
      flights_(to);
      to["distance"] = {};
      for (int n = 0; n < 500; ++n) to["distance"].add(0.0);
    }));
  ASSERT_TRUE(watching_.of("distance", "drift"));
  EXPECT_EQ(watching_.of("distance", "drift")->kind, "quality");
  EXPECT_THAT(watching_.of("distance", "drift")->diagnosis, HasSubstr("always 0"));
}

TEST_F(LookTest, SmallChangesAreFoundInManyWindowsTogether) {
  see(16);
  flights_.shift = 0.8;  // a sixth of the deviation
  std::int64_t found = -1;
  for (int i = 0; i < 64 && found < 0; ++i) {
    see(1);
    if (watching_.of("temperature", "drift")) found = i;
  }
  ASSERT_GE(found, 0);
  EXPECT_EQ(watching_.of("temperature", "drift")->kind, "drift");
  EXPECT_GT(watching_.of("temperature", "drift")->windows, 1);
  EXPECT_FALSE(watching_.of("distance", "drift"));
}

TEST_F(LookTest, WhatWasNeverAsInTrainingIsSkew) {
  flights_.shift = 6;
  see(2);
  ASSERT_TRUE(watching_.of("temperature", "drift"));
  EXPECT_EQ(watching_.of("temperature", "drift")->kind, "skew");
}

TEST(JudgeTest, WhatALongBlockShowsFirstMayHaveBegunWell) {
  const auto kind = [](std::uint64_t windows) {
    std::map<std::string, TestState> tests;
    Judge judge(0.01, 1000, 1, static_cast<std::int64_t>(windows) - 1, tests);
    judge.see("drift", "x", {0, 0, windows}, 1e-30, true, [] {
      Finding out;
      out.kind = "drift";
      return out;
    });
    return tests.at("drift x").found->kind;
  };
  EXPECT_EQ(kind(1), "skew");
  EXPECT_EQ(kind(8), "skew");
  EXPECT_EQ(kind(64), "drift");
}

TEST_F(LookTest, ARestartChangesNothing) {
  Flights same = flights_;
  std::vector<traffic::Sketches> seen;
  same.shift = 1.5;
  for (int i = 0; i < 140; ++i) seen.push_back(rows(50, std::ref(same)));
  const auto reference = make_reference(blocks_of(32, 500, std::ref(flights_)), "before");
  State whole, parts;
  const auto text = [](const Looked& looked) { return json::serialize(encode(looked.findings)); };
  for (std::int64_t i = 0; i < 140; ++i) {
    auto a = look(reference, {}, std::move(whole), window(i, seen[static_cast<std::size_t>(i)]));
    State again;  // as it is after a start: tests from the disk, blocks from the newest windows
    again.tests = decode<std::map<std::string, TestState>>(encode(parts.tests), "state");
    for (auto n = std::max<std::int64_t>(0, (i / kRemembered - 1) * kRemembered); n < i; ++n)
      remember(again, window(n, seen[static_cast<std::size_t>(n)]));
    auto b = look(reference, {}, std::move(again), window(i, seen[static_cast<std::size_t>(i)]));
    ASSERT_EQ(text(a), text(b)) << i;
    whole = std::move(a.state), parts = std::move(b.state);
  }
  EXPECT_FALSE(whole.tests.at("drift temperature").found == std::nullopt);
}

TEST_F(LookTest, ColumnsCanBeChosen) {
  MonitorSpec spec;
  spec.columns.exclude = {"distance"};
  auto reference = make_reference(blocks_of(32, 100, std::ref(flights_)), "before");
  reference.columns["temperature"].time = true;
  Watching watching(std::move(reference), spec);
  flights_.factor = 3, flights_.shift = 100;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(watching.see(rows(500, std::ref(flights_))).empty());
  EXPECT_EQ(watching.columns()[1].column, "distance");
  EXPECT_EQ(watching.columns()[1].note, "not asked for");
  EXPECT_EQ(watching.columns()[3].note, "a time, which moves on by itself");
}

// How many of so many streams of independent or of similar neighbours have any finding within 32 windows.
int false_alarms(int streams, double keeps, bool knows_itself) {
  constexpr int kColumns = 3, kRows = 100;
  int out = 0;
  for (int stream = 0; stream < streams; ++stream) {
    Random random(static_cast<std::uint64_t>(stream + 1));
    std::vector<Alike> columns(kColumns, Alike{keeps, 0});
    const Row row = [&](traffic::Sketches& to) {
      for (int c = 0; c < kColumns; ++c)
        to[fmt::format("c{}", c)].add(columns[static_cast<std::size_t>(c)].next(random));
    };
    auto reference = make_reference(blocks_of(32, 200, row), "before");
    if (!knows_itself)
      for (auto& entry : reference.columns) entry.second.effect = 1;
    MonitorSpec spec;
    spec.level = 0.05;
    spec.horizon = 32;
    Watching watching(std::move(reference), spec);
    bool any = false;
    for (int i = 0; i < 32 && !any; ++i) any = !watching.see(rows(kRows, row)).empty();
    out += any;
  }
  return out;
}

TEST(Look, RarelyCriesWolfWhenRowsAreIndependent) { EXPECT_LE(false_alarms(12, 0, true), 3); }

TEST(Look, RarelyCriesWolfWhenNeighboursAreAlike) {
  EXPECT_LE(false_alarms(12, 0.95, true), 3);
  EXPECT_GE(false_alarms(5, 0.95, false), 4) << "which is because the reference knows how it varies";
}

TEST(Look, SaysTheChanceInEveryWindow) {
  Random random(3);
  const Row row = [&](traffic::Sketches& to) { to["x"].add(normal(random)); };
  Watching watching(make_reference(blocks_of(32, 200, row), "before"), {});
  int below = 0;
  for (int i = 0; i < 200; ++i) {
    watching.see(rows(200, row));
    below += watching.columns()[0].p < 0.1;
  }
  EXPECT_LE(below, 35);
  EXPECT_GE(watching.columns()[0].effective_rows, 100);
}

TEST(Diagnose, TakesBackEveryMistakeItKnows) {
  Random random(5);
  stats::Quantiles reference, celsius, kelvin, plain;
  for (int i = 0; i < 2000; ++i) reference.add(20 + 5 * normal(random));
  for (int i = 0; i < 1000; ++i) {
    const double value = 20 + 5 * normal(random);
    celsius.add(value * 1.8 + 32);
    kelvin.add(value + 273.15);
    plain.add(value);
  }
  EXPECT_FALSE(diagnose(reference, plain, 0.06));
  EXPECT_THAT(diagnose(reference, celsius, 0.06)->text, HasSubstr("Fahrenheit sent where there were degrees Celsius"));
  EXPECT_TRUE(diagnose(reference, kelvin, 0.06)->is_fault);
}

TEST(Diagnose, MovedIsNotAFault) {
  Random random(6);
  stats::Quantiles reference, moved, twofold;
  for (int i = 0; i < 2000; ++i) reference.add(normal(random));
  for (int i = 0; i < 1000; ++i) {
    moved.add(normal(random) + 0.7);
    twofold.add(normal(random) + (i % 2 ? 3 : -3));
  }
  ASSERT_TRUE(diagnose(reference, moved, 0.06));
  EXPECT_FALSE(diagnose(reference, moved, 0.06)->is_fault);
  EXPECT_FALSE(diagnose(reference, twofold, 0.06)) << "another shape";
}

TEST(Look, SaysHowWellTheModelProbablyDoes) {
  Random random(9);
  std::vector<std::pair<double, bool>> scored;
  for (int i = 0; i < 5000; ++i) {
    const double score = uniform(random);
    scored.emplace_back(score, uniform(random) < score);
  }
  const Row sure = [&](traffic::Sketches& to) { to["out_prediction"].add(uniform(random) < 0.5 ? 0.05 : 0.95); };
  const Row unsure = [&](traffic::Sketches& to) { to["out_prediction"].add(0.4 + 0.2 * uniform(random)); };
  auto reference = make_reference(blocks_of(32, 100, sure), "before");
  reference.calibration = stats::Calibration::learn(std::move(scored));
  Watching watching(std::move(reference), {});
  watching.see(rows(500, sure));
  EXPECT_THAT(watching.columns()[0].note, HasSubstr("an accuracy of 0.9"));
  const auto expected = watching.columns()[0].expected;
  ASSERT_TRUE(expected);
  EXPECT_NEAR(expected->accuracy, 0.95, 0.02);
  EXPECT_LT(expected->accuracy_low, expected->accuracy);
  EXPECT_LT(expected->accuracy, expected->accuracy_high);
  EXPECT_NEAR(expected->accuracy_was, expected->accuracy, 0.02);
  EXPECT_NEAR(expected->auc, 0.95, 0.02);
  watching.see(rows(500, unsure));
  EXPECT_THAT(watching.columns()[0].note, HasSubstr("an accuracy of 0.5"));
  ASSERT_TRUE(watching.of("out_prediction", "drift"));
  EXPECT_THAT(watching.of("out_prediction", "drift")->diagnosis, HasSubstr("when it was tested"));
}

// Labels that come later lie within the bounds as often as said.
TEST(Look, LabelsConfirmWhatWasExpected) {
  Random random(10);
  std::vector<std::pair<double, bool>> scored;
  for (int i = 0; i < 50'000; ++i) {
    const double score = uniform(random);
    scored.emplace_back(score, uniform(random) < score);
  }
  const auto calibration = stats::Calibration::learn(std::move(scored));
  constexpr int kWindows = 400, kRows = 200;
  int accuracy = 0, auc = 0;
  for (int window = 0; window < kWindows; ++window) {
    stats::Quantiles scores;
    std::vector<double> positives, negatives;
    int right = 0;
    for (int i = 0; i < kRows; ++i) {
      const double score = 0.2 + 0.7 * uniform(random);
      scores.add(score);
      const bool label = uniform(random) < score;
      right += label == (score > 0.5);
      (label ? positives : negatives).push_back(score);
    }
    double ordered = 0;
    for (const double p : positives)
      for (const double n : negatives) ordered += p > n;
    const auto expected = stats::expected(calibration, scores);
    const auto pairs = static_cast<double>(positives.size() * negatives.size());
    accuracy += std::abs(static_cast<double>(right) / kRows - expected.accuracy) <= 1.96 * expected.accuracy_error;
    auc += std::abs(ordered / pairs - expected.auc) <= 1.96 * expected.auc_error;
  }
  EXPECT_NEAR(static_cast<double>(accuracy) / kWindows, 0.95, 0.035);
  EXPECT_GE(static_cast<double>(auc) / kWindows, 0.92) << "of the area they are wide rather than narrow";
}

TEST(Reference, ReadsWhatTrainersWrite) {
  stats::Quantiles numbers;
  stats::Frequent texts;
  for (int i = 0; i < 100; ++i) numbers.add(i), texts.add(i % 2 ? "a" : "b");
  ByteWriter a, b;
  numbers.encode(a), texts.encode(b);
  const auto text = [&](int version) {
    return fmt::format(
        R"({{"version":{},"inputs":{{"x":{{"rows":110,"missing":10,"kind":"timestamp","quantiles":"{}",)"
        R"("blocks":[{{"rows":10,"ratios":[1,9,1,9,1,9,1,9]}}]}},"y":{{"rows":100,"missing":0,"frequent":"{}"}}}},)"
        R"("predictions":[{{"rows":100,"missing":0,"quantiles":"{}"}}]}})",
        version, to_base64(a.bytes()), to_base64(b.bytes()), to_base64(a.bytes()));
  };
  const auto read = read_reference(text(2), "it");
  EXPECT_EQ(read.columns.size(), 3u);
  EXPECT_TRUE(read.columns.at("x").time);
  EXPECT_EQ(read.columns.at("x").sketch.missing, 10u);
  EXPECT_GT(read.columns.at("x").effect, 5);
  EXPECT_EQ(read.columns.at("y").effect, 1);
  EXPECT_EQ(read.columns.at("out_prediction").sketch.numbers.count(), 100u);
  EXPECT_EQ(read_reference(text(1), "it").columns.size(), 3u);
  EXPECT_ERROR(read_reference(text(4), "it"), Code::corrupt);
  EXPECT_ERROR(read_reference("{}", "it"), Code::corrupt);
  EXPECT_ERROR(read_reference("not JSON", "it"), Code::corrupt);
}

// Files of all versions that trainings ever wrote.
TEST(Reference, ReadsWhatOlderTrainersWrote) {
  for (const int version : {1, 2, 3}) {
    std::ifstream in(fmt::format("{}/reference-v{}.json", FALAJ_TESTDATA, version));
    ASSERT_TRUE(in) << version;
    const auto read = read_reference(std::string(std::istreambuf_iterator<char>(in), {}), "it");
    EXPECT_EQ(read.columns.at("x").sketch.numbers.count(), 100u) << version;
    EXPECT_EQ(read.columns.at("y").sketch.texts.counted("a"), 50u) << version;
    EXPECT_EQ(read.columns.at("x").time, version > 1);
    EXPECT_EQ(read.columns.at("y").effect > 5, version == 3) << "by a mark";
    EXPECT_EQ(read.rows.count(), version == 3 ? 4u : 0u);
  }
}

TEST(Reference, OneShareThatVariesIsNotHiddenByTheOthers) {
  Random random(4);
  Alike alike{0.98, 0};
  const Row row = [&](traffic::Sketches& to) {
    const double rank = 0.5 * std::erfc(-alike.next(random) / std::sqrt(2.0));
    to["text"].add(std::string_view(rank < 0.3 ? "often" : kCities[random() % 4]));
  };
  const auto blocks = blocks_of(32, 250, row);
  std::vector<stats::Frequent> texts;
  for (const auto& block : blocks) texts.push_back(block.at("text").texts);
  const double of_all = stats::design_effect(stats::block_scales(texts)),
               of_one = stats::design_effect(stats::mark_scales(texts));
  EXPECT_GT(of_one, 1.5 * of_all);
  EXPECT_EQ(make_reference(blocks, "before").columns.at("text").effect, of_one);
}

// ---- columns together

// Two numbers that go together, one that does not, and a text.
struct Pairs {
  Random random{3};
  double together = 0.7, shift = 0;
  std::uint64_t next = 0;
  struct Made {
    traffic::Sketches columns;
    stats::RowSample rows{{{"a", false}, {"b", false}, {"c", false}, {"city", true}}, 400};
  };
  Made operator()(int count) {
    Made out;
    for (int i = 0; i < count; ++i) {
      const double a = normal(random), b = together * a + std::sqrt(1 - together * together) * normal(random),
                   c = normal(random) + shift;
      const std::string city = kCities[random() % 4];
      out.columns["a"].add(a), out.columns["b"].add(b), out.columns["c"].add(c);
      out.columns["city"].add(std::string_view(city));
      out.rows.add(stats::RowSample::key(1, next++), std::vector{a, b, c, stats::text_code(city)});
    }
    return out;
  }
};

class TogetherTest : public testing::Test {
 protected:
  TogetherTest() {
    spec_.together.emplace();
    std::vector<traffic::Sketches> columns;
    std::vector<stats::RowSample> rows;
    for (int i = 0; i < 20; ++i) {
      auto made = pairs_(200);
      columns.push_back(std::move(made.columns));
      rows.push_back(std::move(made.rows));
    }
    reference_ = make_reference(columns, "before", rows);
    prepare_together(reference_, spec_);
  }
  const std::vector<Finding>& see() {
    auto made = pairs_(400);
    auto looked =
        look(reference_, spec_, std::move(state_),
             {next_, next_ * 1'000'000, next_ * 1'000'000 + 1, std::move(made.columns), std::move(made.rows)});
    ++next_;
    state_ = std::move(looked.state);
    columns_ = std::move(looked.columns);
    return findings_ = std::move(looked.findings);
  }
  Pairs pairs_;
  MonitorSpec spec_;
  Reference reference_;
  State state_;
  std::int64_t next_ = 0;
  std::vector<Finding> findings_;
  std::vector<ColumnSeen> columns_;
};

TEST_F(TogetherTest, FindsNothingWhereNothingChanged) {
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(see().empty()) << i;
  ASSERT_EQ(columns_[0].column, kTogether);
  EXPECT_EQ(columns_[0].rows, 400);
}

TEST_F(TogetherTest, NamesColumnsThatNoLongerGoTogether) {
  for (int i = 0; i < 4; ++i) see();
  pairs_.together = -0.2;
  for (int i = 0; i < 3; ++i) see();
  ASSERT_EQ(findings_.size(), 1u) << "no column shows it, and one word of both tests is enough";
  EXPECT_EQ(findings_[0].column, kTogether);
  EXPECT_EQ(findings_[0].kind, "drift");
  EXPECT_THAT(findings_[0].text, HasSubstr("how a and b go together (0."));
  EXPECT_THAT(findings_[0].text, HasSubstr("now -0."));
  pairs_.together = 0.7;
  for (int i = 0; i < 8; ++i) see();
  EXPECT_TRUE(findings_.empty()) << "over when rows are as before";
}

TEST_F(TogetherTest, ColumnsWithAFindingOfTheirOwnAreLeftOut) {
  for (int i = 0; i < 4; ++i) see();
  pairs_.shift = 2;
  for (int i = 0; i < 3; ++i) see();
  EXPECT_FALSE(findings_.empty());
  for (const auto& one : findings_) EXPECT_EQ(one.column, "c") << one.test;
}

TEST_F(TogetherTest, OnlyWhereAMonitorAsksForIt) {
  spec_.together.reset();
  prepare_together(reference_, spec_);
  pairs_.together = -0.7;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(see().empty());
}

// A text that the reference has never seen is no number of its own: rows with many rare texts are not told by them.
TEST(Together, RareTextsAreNoDrift) {
  Random random(12);
  std::uint64_t next = 0;
  const auto sample = [&](int count) {
    stats::RowSample out({{"x", false}, {"who", true}}, 2000);
    for (int i = 0; i < count; ++i)
      out.add(stats::RowSample::key(2, next++),
              std::vector{normal(random), stats::text_code(fmt::format("{}", random() % 300))});
    return out;
  };
  const auto all = [](const std::string&) { return true; };
  const ReferenceRows reference(sample(1600), all);
  EXPECT_EQ(reference.count(), 800u) << "half of them say how often texts are";
  int below = 0;
  for (int i = 0; i < 40; ++i) below += reference.compare(sample(800), all).classifier_p < 0.05 ? 1 : 0;
  EXPECT_LE(below, 8);
}

TEST(Together, NeighboursThatAreAlikeAreWorthLess) {
  Random random(2);
  for (const double keeps : {0.0, 0.97}) {
    Alike a{keeps, 0}, b{keeps, 0};
    stats::RowSample rows({{"a", false}, {"b", false}}, 2000);
    for (std::uint64_t i = 0; i < 2000; ++i)
      rows.add(stats::RowSample::key(1, i), std::vector{a.next(random), b.next(random)});
    const ReferenceRows reference(rows, [](const std::string&) { return true; });
    if (keeps > 0)
      EXPECT_GT(reference.classifier_effect(), 4);
    else
      EXPECT_LT(reference.classifier_effect(), 4);
  }
}

// ---- which reference

TEST(MonitorKind, SaysWhatIsWrongWithAReference) {
  class Nothing : public resource::World {
    std::optional<json::value> spec(const resource::Key& key) const override {
      if (key.name == "people") return json::parse(R"({"personal": {"purpose": "x"}})");
      return std::nullopt;
    }
  } world;
  const auto kind = monitor_kind();
  const auto faults_of = [&](std::string_view more) {
    Faults faults;
    const auto spec = json::parse(fmt::format(R"({{"endpoint": "late", {}}})", more));
    kind.decode(spec, faults);
    if (faults.empty()) kind.check(world, {}, spec, faults);
    return faults.empty() ? std::string() : fmt::format("{}: {}", faults[0].where, faults[0].what);
  };
  EXPECT_EQ(faults_of(R"("reference": "training")"), "");
  EXPECT_EQ(faults_of(R"("reference": "dataset", "referenceDataset": "flights@3")"), "");
  EXPECT_THAT(faults_of(R"("reference": "dataset")"), HasSubstr("spec.referenceDataset: must name a version"));
  for (const auto* name : {"flights", "flights@", "flights@x", "flights@0", "@3", "flights@3x"})
    EXPECT_THAT(faults_of(fmt::format(R"("reference": "dataset", "referenceDataset": "{}")", name)),
                HasSubstr("must name a version"))
        << name;
  EXPECT_THAT(faults_of(R"("reference": "dataset", "referenceDataset": "people@1")"), HasSubstr("is about people"));
  EXPECT_THAT(faults_of(R"("referenceDataset": "flights@3")"), HasSubstr("is only of reference: dataset"));
  EXPECT_EQ(
      faults_of(
          R"("reference": "past", "referencePast": {"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"})"),
      "");
  EXPECT_EQ(faults_of(R"("reference": "past", "referencePast": {"windows": 8, "before": "2026-02-01T00:00:00Z"})"), "");
  EXPECT_THAT(faults_of(R"("reference": "past")"), HasSubstr("spec.referencePast: says which windows"));
  EXPECT_THAT(faults_of(R"("reference": "past", "referencePast": {})"), HasSubstr("has either from and to"));
  EXPECT_THAT(faults_of(R"("reference": "past", "referencePast": {"from": "2026-01-01T00:00:00Z", "to": "soon"})"),
              HasSubstr("spec.referencePast.to: must be a moment"));
  EXPECT_THAT(
      faults_of(
          R"("reference": "past", "referencePast": {"from": "2026-02-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"})"),
      HasSubstr("must be after from"));
  EXPECT_THAT(faults_of(R"("reference": "past", "referencePast": {"windows": 7, "before": "2026-02-01T00:00:00Z"})"),
              HasSubstr("must be at least 8"));
  EXPECT_THAT(faults_of(R"("referencePast": {"windows": 8, "before": "2026-02-01T00:00:00Z"})"),
              HasSubstr("is only of reference: past"));
}

}  // namespace
}  // namespace falaj::watch
