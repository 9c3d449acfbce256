// SPDX-License-Identifier: Apache-2.0
// What the trainer computes and what the exported model computes are the same numbers.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "compute/graph/testing.h"
#include "compute/graph/transform.h"
#include "compute/infer/testing.h"
#include "foundation/base/testing.h"

namespace falaj::infer {
namespace {

using namespace falaj::graph;

constexpr std::size_t kParityRows = repeats(10'000);

std::vector<Column> every_column() {
  return {{"price", Kind::float64, true},   {"weight", Kind::float32, true}, {"fixed", Kind::float32, false},
          {"count", Kind::int64, false},    {"maybe", Kind::int64, true},    {"flag", Kind::boolean, false},
          {"perhaps", Kind::boolean, true}, {"city", Kind::text, true},      {"town", Kind::text, true},
          {"at", Kind::timestamp, false},   {"then", Kind::timestamp, true}, {"unused", Kind::text, true}};
}

Feature number(const std::string& name, const std::string& column, auto change) {
  Number how;
  how.column = column;
  change(how);
  return {name, how};
}
Feature category(const std::string& name, const std::string& column, auto change) {
  Category how;
  how.column = column;
  change(how);
  return {name, how};
}

std::vector<Feature> every_feature() {
  std::vector<Feature> out = {
      number("price", "price", [](auto& n) { n.standardise = true; }),
      number("price log", "price", [](auto& n) { n.log = n.standardise = n.indicator = true, n.fill = Fill::median; }),
      number("price clipped", "price",
             [](auto& n) { n.low = -2, n.high = 30, n.fill = Fill::constant, n.constant = 99; }),
      number("price kept", "price", [](auto& n) { n.fill = Fill::keep, n.log = true, n.high = 1000; }),
      number("weight", "weight", [](auto& n) { n.indicator = true, n.low = 0; }),
      number("fixed", "fixed", [](auto& n) { n.log = true; }),
      number("count", "count", [](auto& n) { n.standardise = true; }),
      number("maybe", "maybe", [](auto& n) { n.fill = Fill::median, n.indicator = true; }),
      number("flag", "flag", [](auto&) {}),
      number("perhaps", "perhaps", [](auto& n) { n.fill = Fill::keep; }),
      number("hour", "at", [](auto& n) { n.part = Part::hour; }),
      number("then weekday", "then", [](auto& n) { n.part = Part::weekday, n.indicator = true; }),
      number("age", "then", [](auto& n) { n.standardise = true; }),
      {"at day", Cycle{"at", Cycle::Period::day}},
      {"then week", Cycle{"then", Cycle::Period::week}},
      {"then year", Cycle{"then", Cycle::Period::year}},
      category("city", "city", [](auto& c) { c.categories_max = 40; }),
      category("city one", "city", [](auto& c) { c.encode = Encode::one_hot, c.count_min = 20; }),
      category("city other", "city",
               [](auto& c) { c.encode = Encode::one_hot, c.unseen = Unseen::other, c.categories_max = 5; }),
      category("city hashed", "city", [](auto& c) { c.hash_buckets = 16; }),
      category("town", "town", [](auto& c) { c.encode = Encode::code; }),
      category("count one", "count", [](auto& c) { c.encode = Encode::one_hot, c.count_min = 50; }),
      category("maybe id", "maybe", [](auto&) {}),
      category("flag one", "flag", [](auto& c) { c.encode = Encode::one_hot; }),
      category("perhaps id", "perhaps", [](auto&) {}),
      category("hour id", "at", [](auto& c) { c.part = Part::hour; }),
      category("then day", "then", [](auto& c) { c.part = Part::weekday, c.encode = Encode::one_hot; }),
      category("price bucket", "price", [](auto& c) { c.buckets = 7, c.encode = Encode::one_hot; }),
      category("weight bucket", "weight",
               [](auto& c) {
                 c.boundaries = {-1, 0, 0.5, 10};
               }),
      category("age bucket", "then", [](auto& c) { c.buckets = 5; }),
      category("hidden", "town", [](auto& c) { c.encode = Encode::none, c.categories_max = 3; }),
      {"few pairs", Cross{"hidden", "flag one", 100, Encode::one_hot}},
      {"many pairs", Cross{"city", "hour id", 200, Encode::embedding}},
      {"bucket pairs", Cross{"price bucket", "maybe id", 50, Encode::code}},
  };
  return out;
}

struct Both {
  std::vector<float> floats;
  std::vector<std::int64_t> ids;
};

Both here(const Transform& transform, const graph::Batch& batch) {
  Both out{std::vector<float>(batch.rows * transform.float_names().size()),
           std::vector<std::int64_t>(batch.rows * transform.ids().size())};
  transform.apply(batch, out.floats, out.ids);
  return out;
}

Session exported(const Transform& transform) {
  Graph graph;
  const auto emitted = transform.emit(graph);
  const auto wide = [](std::size_t width) {
    return std::vector<Dimension>{std::string(kRows), static_cast<std::int64_t>(width)};
  };
  if (!emitted.floats.empty())
    graph.add_output("floats", emitted.floats, Element::float32, wide(transform.float_names().size()));
  if (!emitted.ids.empty()) graph.add_output("ids", emitted.ids, Element::int64, wide(transform.ids().size()));
  return Session::open(runtime(), serialise(graph));
}

Both there(const Session& session, const Transform& transform, const std::vector<Tensor>& tensors) {
  std::vector<NamedTensor> inputs;
  for (const auto& port : session.inputs())
    for (std::size_t at = 0; at < tensors.size(); ++at)
      if (transform.columns()[at].name == port.name) inputs.push_back({port.name, tensors[at]});
  Both out;
  for (const auto& made : session.run(inputs)) {
    if (made.name == "floats")
      out.floats.assign(made.tensor.values<float>().begin(), made.tensor.values<float>().end());
    if (made.name == "ids")
      out.ids.assign(made.tensor.values<std::int64_t>().begin(), made.tensor.values<std::int64_t>().end());
  }
  return out;
}

void expect_equal(const Both& a, const Both& b, const std::vector<std::string>& names) {
  EXPECT_EQ(a.ids, b.ids);
  ASSERT_EQ(a.floats.size(), b.floats.size());
  int shown = 0;
  for (std::size_t at = 0; at < a.floats.size() && shown < 10; ++at) {
    const float x = a.floats[at], y = b.floats[at];
    const bool same =
        std::isnan(x) ? std::isnan(y) : x == y || std::fabs(x - y) <= 1e-5F * std::max(1.0F, std::fabs(x));
    if (same) continue;
    ++shown;
    ADD_FAILURE() << names[at % names.size()] << " of row " << at / names.size() << ": " << x << " here, " << y
                  << " there";
  }
}

TEST(TransformParity, TheModelComputesWhatTheTrainerDoes) {
  RandomColumns random(every_column(), 7);
  Fitter fitter(every_column(), every_feature());
  for (int part = 0; part < 3; ++part) {
    random.fill(kParityRows / 3, false);
    fitter.add(random.batch());
  }
  const Transform transform = fitter.finish();
  const Session session = exported(transform);
  EXPECT_EQ(session.inputs().size(), every_column().size() - 1) << "what nothing uses is not asked for";
  random.fill(kParityRows, true);
  expect_equal(here(transform, random.batch()), there(session, transform, random.tensors()), transform.float_names());
  for (const std::size_t rows : {std::size_t{1}, std::size_t{0}, std::size_t{257}}) {
    random.fill(rows, true);
    expect_equal(here(transform, random.batch()), there(session, transform, random.tensors()), transform.float_names());
  }
}

TEST(TransformParity, EachFeatureByItself) {
  for (const auto& feature : every_feature()) {
    if (std::holds_alternative<Cross>(feature.how)) continue;
    SCOPED_TRACE(feature.name);
    RandomColumns random(every_column(), 11);
    random.fill(500, false);
    Fitter fitter(every_column(), {feature});
    fitter.add(random.batch());
    const Transform transform = fitter.finish();
    if (transform.float_names().empty() && transform.ids().empty()) continue;  // a hidden side of a cross
    random.fill(500, true);
    expect_equal(here(transform, random.batch()), there(exported(transform), transform, random.tensors()),
                 transform.float_names());
  }
}

TEST(TransformParity, TheAutomaticOnes) {
  for (const auto what : {For::network, For::trees}) {
    RandomColumns random(every_column(), 5);
    random.fill(2'000, false);
    Fitter fitter(every_column(), automatic(every_column(), what));
    fitter.add(random.batch());
    const Transform transform = fitter.finish();
    random.fill(2'000, true);
    expect_equal(here(transform, random.batch()), there(exported(transform), transform, random.tensors()),
                 transform.float_names());
  }
}

// Nothing was known of a column: every row is unseen, and every number is filled.
TEST(TransformParity, ColumnsWithoutAnyValue) {
  const std::vector<Column> columns = {{"x", Kind::float64, true}, {"s", Kind::text, true}, {"n", Kind::int64, true}};
  const std::vector<Feature> features = {
      number("x", "x", [](auto& n) { n.standardise = true, n.fill = Fill::median; }),
      category("s", "s", [](auto& c) { c.count_min = 100; }), category("n", "n", [](auto& c) { c.count_min = 100; }),
      category("s one", "s", [](auto& c) { c.encode = Encode::one_hot, c.unseen = Unseen::other, c.count_min = 100; }),
      category("x bucket", "x", [](auto& c) { c.buckets = 4; })};
  const std::vector<double> nothing(5, std::nan(""));
  const std::vector<std::string_view> silent(5);
  Fitter fitter(columns, features);
  fitter.add({5,
              {std::span<const double>(nothing), std::span<const std::string_view>(silent),
               std::span<const double>(nothing)}});
  const Transform transform = fitter.finish();
  RandomColumns random(columns, 3);
  random.fill(300, true);
  expect_equal(here(transform, random.batch()), there(exported(transform), transform, random.tensors()),
               transform.float_names());
}

}  // namespace
}  // namespace falaj::infer
