// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/transform.h"

#include <cmath>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/graph/testing.h"
#include "foundation/base/testing.h"

namespace falaj::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

struct Applied {
  std::vector<float> floats;
  std::vector<std::int64_t> ids;
};
Applied apply(const Transform& transform, const Batch& batch) {
  Applied out{std::vector<float>(batch.rows * transform.float_names().size()),
              std::vector<std::int64_t>(batch.rows * transform.ids().size())};
  transform.apply(batch, out.floats, out.ids);
  return out;
}

Batch batch_of(const std::vector<double>& values) { return {values.size(), {std::span<const double>(values)}}; }
Batch batch_of(const std::vector<std::string_view>& values) {
  return {values.size(), {std::span<const std::string_view>(values)}};
}

template <class Values>
Transform fitted(Kind kind, const Values& values, std::vector<Feature> features) {
  Fitter fitter({{"c", kind, true}}, std::move(features));
  fitter.add(batch_of(values));
  return fitter.finish();
}

template <class How>
How of_c(std::type_identity_t<How> how) {
  how.column = "c";
  return how;
}

TEST(Transform, StandardisesWhatWasPresentAndFillsTheRest) {
  Number how = of_c<Number>({});
  how.standardise = how.indicator = true;
  const std::vector<double> values = {1, 2, 3, kNothing, INFINITY};
  const auto transform = fitted(Kind::float64, values, {{"x", how}});
  EXPECT_THAT(transform.float_names(), ElementsAre("x", "x missing"));
  EXPECT_THAT(apply(transform, batch_of(values)).floats, ElementsAre(-1, 0, 0, 0, 1, 0, 0, 1, 0, 1));
}

TEST(Transform, ClipsThenBends) {
  Number how = of_c<Number>({});
  how.low = -1, how.high = std::exp(1.0) - 1, how.log = true, how.fill = Fill::constant, how.constant = 0;
  const std::vector<double> values = {-5, 0, 100, kNothing};
  const auto out = apply(fitted(Kind::float64, values, {{"x", how}}), batch_of(values)).floats;
  EXPECT_FLOAT_EQ(out[0], -std::log(2.0F));
  EXPECT_FLOAT_EQ(out[1], 0);
  EXPECT_FLOAT_EQ(out[2], 1);
  EXPECT_FLOAT_EQ(out[3], 0);
}

TEST(Transform, FillsByMedianAndKeepsWhenAsked) {
  Number median = of_c<Number>({}), keep = of_c<Number>({});
  median.fill = Fill::median, keep.fill = Fill::keep;
  const std::vector<double> values = {1, 2, 1000, kNothing};
  const auto out = apply(fitted(Kind::float64, values, {{"m", median}, {"k", keep}}), batch_of(values)).floats;
  EXPECT_EQ(out[6], 2);
  EXPECT_TRUE(std::isnan(out[7]));
}

TEST(Transform, AConstantColumnSaysNothing) {
  Number how = of_c<Number>({});
  how.standardise = true;
  const auto transform = fitted(Kind::float64, std::vector<double>(100, 0.1), {{"x", how}});
  EXPECT_THAT(apply(transform, batch_of(std::vector<double>{0.1, 5, kNothing})).floats, ElementsAre(0, 0, 0));
}

TEST(Transform, NumbersCategoriesByFrequency) {
  const std::vector<std::string_view> values = {"b", "a", "b", "c", "b", "a", ""};
  Category ids = of_c<Category>({}), one = ids, other = ids, code = ids;
  one.encode = other.encode = Encode::one_hot, other.unseen = Unseen::other, code.encode = Encode::code;
  one.count_min = 2, other.categories_max = 1;
  const auto transform = fitted(Kind::text, values, {{"i", ids}, {"o", one}, {"u", other}, {"k", code}});
  EXPECT_THAT(transform.float_names(), ElementsAre("k", "o=b", "o=a", "u=other", "u=b"));
  EXPECT_THAT(transform.float_categories(), ElementsAre(5, 0, 0, 0, 0));
  EXPECT_THAT(transform.ids(), ElementsAre(Transform::Ids{"i", 5}));
  const auto out = apply(transform, batch_of(std::vector<std::string_view>{"b", "a", "new", ""}));
  EXPECT_THAT(out.ids, ElementsAre(1, 2, 0, 3)) << "missing was seen, so it is a category";
  EXPECT_THAT(out.floats, ElementsAre(1, 1, 0, 0, 1,  //
                                      2, 0, 1, 1, 0,  //
                                      0, 0, 0, 1, 0,  //
                                      3, 0, 0, 1, 0));
}

TEST(Transform, BucketisesFromTheBoundaryOn) {
  Category given = of_c<Category>({}), equal = given;
  given.boundaries = {0, 10}, equal.buckets = 4;
  std::vector<double> values;
  for (int k = 0; k < 1000; ++k) values.push_back(k);
  const auto transform = fitted(Kind::float64, values, {{"g", given}, {"e", equal}});
  EXPECT_THAT(transform.ids(), ElementsAre(Transform::Ids{"g", 4}, Transform::Ids{"e", 5}));
  const auto out = apply(transform, batch_of(std::vector<double>{-0.5, 0, 10, kNothing, -INFINITY})).ids;
  EXPECT_THAT(out, ElementsAre(1, 1, 2, 1, 3, 1, 0, 0, 0, 0));
  std::vector<int> counts(5);
  const auto all = apply(transform, batch_of(values)).ids;
  for (std::size_t at = 1; at < all.size(); at += 2) ++counts[static_cast<std::size_t>(all[at])];
  for (std::size_t id = 1; id < 5; ++id) EXPECT_NEAR(counts[id], 250, 5);
}

TEST(Transform, EqualValuesShareABucket) {
  Category how = of_c<Category>({});
  how.buckets = 2;
  std::vector<double> values(100, 0);
  values.resize(200, 1);
  const auto ids = apply(fitted(Kind::float64, values, {{"x", how}}), batch_of(values)).ids;
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(ids[199], 2);
}

// More rows than are all looked at, in order: the late ones count as much as the early ones.
TEST(Transform, TheMedianIsOfAllRows) {
  std::vector<double> values(400'000);
  for (std::size_t row = 0; row < values.size(); ++row) values[row] = static_cast<double>(row);
  Number how = of_c<Number>({});
  how.fill = Fill::median;
  const auto transform = fitted(Kind::float64, values, {{"x", how}});
  EXPECT_NEAR(apply(transform, batch_of(std::vector<double>{kNothing})).floats[0], 200'000, 4'000);
}

TEST(Transform, KnowsHoursAndWeekdaysBeforeAndAfter1970) {
  Number hour = of_c<Number>({}), weekday = hour;
  hour.part = Part::hour, weekday.part = Part::weekday;
  // 2001-01-01T00:00Z was a Monday, 1969-12-31T23:59:59.999999Z a Wednesday, 1970-01-01 a Thursday.
  const std::vector<double> values = {978'307'200e6, -1, 0, 978'307'200e6 - 1};
  const auto transform = fitted(Kind::timestamp, values, {{"h", hour}, {"w", weekday}, {"d", of_c<Cycle>({})}});
  const auto out = apply(transform, batch_of(values)).floats;
  EXPECT_THAT(transform.float_names(), ElementsAre("h", "w", "d sin", "d cos"));
  EXPECT_THAT((std::vector<float>{out[0], out[1], out[4], out[5], out[8], out[9], out[12], out[13]}),
              ElementsAre(0, 0, 23, 2, 0, 3, 23, 6));
  EXPECT_NEAR(out[2], 0, 1e-6);
  EXPECT_NEAR(out[3], 1, 1e-6);
}

TEST(Transform, CrossesPairs) {
  const std::vector<Column> columns = {{"a", Kind::text, true}, {"n", Kind::int64, false}};
  Category a, n;
  a.column = "a", n.column = "n";
  a.encode = n.encode = Encode::none;
  Fitter fitter(columns, {{"a", a}, {"n", n}, {"all", Cross{"a", "n", 100}}, {"few", Cross{"a", "n", 4}}});
  const std::vector<std::string_view> texts = {"x", "x", "y", "y"};
  const std::vector<std::int64_t> numbers = {1, 2, 1, 2};
  const Batch batch{4, {std::span<const std::string_view>(texts), std::span<const std::int64_t>(numbers)}};
  fitter.add(batch);
  const auto transform = fitter.finish();
  EXPECT_THAT(transform.ids(), ElementsAre(Transform::Ids{"all", 10}, Transform::Ids{"few", 5}));
  const auto ids = apply(transform, batch).ids;
  EXPECT_EQ((std::set<std::int64_t>{ids[0], ids[2], ids[4], ids[6]}.size()), 4u) << "enough room: each its own";
  for (const auto id : ids) EXPECT_GE(id, 1);
}

TEST(Transform, LargeIdsStayApartWhenNeverMissing) {
  Category how = of_c<Category>({});
  Fitter fitter({{"c", Kind::int64, false}}, {{"x", how}});
  const std::vector<std::int64_t> values = {9'007'199'254'740'993, 9'007'199'254'740'992};
  const Batch batch{2, {std::span<const std::int64_t>(values)}};
  fitter.add(batch);
  const auto ids = apply(fitter.finish(), batch).ids;
  EXPECT_NE(ids[0], ids[1]);
}

TEST(Transform, WholeNumbersThatMayBeMissingAreWholeUpToTheirLimits) {
  const std::vector<double> seen = {1e17, 2e17, 2e17, -3, -3, -3, kNothing, kNothing, kNothing, kNothing};
  const auto transform = fitted(Kind::int64, seen, {{"x", of_c<Category>({})}});
  const std::vector<double> asked = {1e17, 2e17, -3, kNothing, INFINITY, 1e30, -1e30, -1, 2.9e17};
  EXPECT_THAT(apply(transform, batch_of(asked)).ids, ElementsAre(4, 3, 2, 1, 1, 0, 0, 0, 0));
}

TEST(Transform, MergedFittersFitTheSame) {
  const std::vector<Column> columns = {{"x", Kind::float64, true}, {"s", Kind::text, true}, {"n", Kind::int64, true}};
  RandomColumns random(columns, 3);
  Fitter whole(columns, automatic(columns, For::network)), left = Fitter(columns, automatic(columns, For::network)),
                                                           right = Fitter(columns, automatic(columns, For::network));
  for (int part = 0; part < 2; ++part) {
    random.fill(300, false);
    whole.add(random.batch());
    (part == 0 ? left : right).add(random.batch());
  }
  left.merge(right);
  random.fill(300, true);
  const auto a = apply(whole.finish(), random.batch()), b = apply(left.finish(), random.batch());
  EXPECT_EQ(a.ids, b.ids);
  for (std::size_t at = 0; at < a.floats.size(); ++at)
    EXPECT_NEAR(a.floats[at], b.floats[at], 1e-4 * (1 + std::fabs(a.floats[at])));
}

TEST(Transform, IsWrittenAndReadBack) {
  const std::vector<Column> columns = {
      {"x", Kind::float64, true}, {"s", Kind::text, true}, {"at", Kind::timestamp, true}};
  auto features = automatic(columns, For::network);
  features.push_back({"pair", Cross{"s", "s", 30, Encode::one_hot}});
  RandomColumns random(columns, 3);
  random.fill(300, false);
  Fitter fitter(columns, features);
  fitter.add(random.batch());
  const auto transform = fitter.finish();
  const Bytes bytes = transform.encode();
  const auto again = Transform::decode(bytes);
  EXPECT_EQ(again, transform);
  EXPECT_EQ(again.float_names(), transform.float_names());
  random.fill(300, true);
  EXPECT_EQ(apply(again, random.batch()).floats, apply(transform, random.batch()).floats);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_ERROR(Transform::decode(BytesView(bytes).first(size)), Code::corrupt);
}

std::string faults_of(std::vector<Column> columns, std::vector<Feature> features) {
  try {
    Fitter(std::move(columns), std::move(features));
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    std::string out;
    for (const auto& fault : error.faults()) out += fault.where + ": " + fault.what + "\n";
    return out;
  }
}

TEST(Fitter, SaysEverythingThatIsWrong) {
  const std::vector<Column> columns = {{"s", Kind::text}, {"x", Kind::float64}, {"at", Kind::timestamp}};
  Number text, unknown, part, bounds;
  text.column = "s", unknown.column = "nobody", part.column = "x", part.part = Part::hour;
  bounds.column = "x", bounds.low = 2, bounds.high = 1;
  Category real, hashed, falling;
  real.column = "x", hashed.column = "x", hashed.hash_buckets = 4, falling.column = "x", falling.boundaries = {2, 1};
  const auto faults = faults_of(columns, {{"a", text},
                                          {"b", unknown},
                                          {"c", part},
                                          {"d", bounds},
                                          {"e", real},
                                          {"f", hashed},
                                          {"g", falling},
                                          {"h", Cycle{"x", Cycle::Period::day}},
                                          {"i", Cross{"e", "nobody"}},
                                          {"i", text}});
  EXPECT_THAT(faults, HasSubstr("feature 'a': text is no number"));
  EXPECT_THAT(faults, HasSubstr("feature 'b': no such column: 'nobody'"));
  EXPECT_THAT(faults, HasSubstr("feature 'c': only a timestamp has parts"));
  EXPECT_THAT(faults, HasSubstr("feature 'd': the low bound 2 is above the high one 1"));
  EXPECT_THAT(faults, HasSubstr("feature 'e': float64 is a category only by buckets"));
  EXPECT_THAT(faults, HasSubstr("feature 'f': only text is hashed"));
  EXPECT_THAT(faults, HasSubstr("feature 'g': boundaries must ascend"));
  EXPECT_THAT(faults, HasSubstr("feature 'h': only a timestamp"));
  EXPECT_THAT(faults, HasSubstr("feature 'i': no category feature is called 'nobody'"));
  EXPECT_THAT(faults, HasSubstr("feature 'i': is there twice"));
  EXPECT_THAT(faults_of({{"x"}, {"x"}}, {}), HasSubstr("column 'x': is there twice"));
  std::vector<Feature> many;
  Category fine;
  fine.column = "x", fine.buckets = 1'000;
  for (int k = 0; k < 200; ++k) many.push_back({"f" + std::to_string(k), fine});
  EXPECT_THAT(faults_of({{"x"}}, many), HasSubstr("200000 buckets of 200 features"));
  EXPECT_THAT(faults_of({{"x"}}, {}), HasSubstr("there must be one at least"));
}

TEST(Fitter, RefusesBatchesOfOtherColumnsAndNoRows) {
  Number how = of_c<Number>({});
  Fitter fitter({{"c", Kind::float64, true}}, {{"x", how}});
  EXPECT_ERROR(fitter.finish(), Code::invalid);
  EXPECT_ERROR(fitter.add({1, {}}), Code::invalid);
  EXPECT_ERROR(fitter.add(batch_of(std::vector<std::string_view>{"a"})), Code::invalid);
  const std::vector<double> one = {1};
  EXPECT_ERROR(fitter.add({2, {std::span<const double>(one)}}), Code::invalid);
}

TEST(Fitter, BoundsOneHot) {
  Category how = of_c<Category>({});
  how.encode = Encode::one_hot, how.hash_buckets = 200'000;
  EXPECT_ERROR(fitted(Kind::text, std::vector<std::string_view>{"a"}, {{"x", how}}), Code::invalid);
}

}  // namespace
}  // namespace falaj::graph
