// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/model.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/infer/testing.h"
#include "foundation/base/testing.h"

namespace falaj::infer {
namespace {

using graph::Element;
using graph::Graph;
using graph::Tensor;
using testing::ElementsAre;

std::vector<graph::Dimension> rows_of_width(std::int64_t width) { return {std::string(graph::kRows), width}; }

// One operator over x [rows, 3].
Bytes one_operator(const std::string& op, graph::Attributes attributes, std::vector<graph::Dimension> out) {
  Graph graph;
  const auto x = graph.add_input("x", Element::float32, rows_of_width(3));
  graph.add_output("y", graph.add_node(op, {x}, std::move(attributes)), Element::float32, std::move(out));
  return graph::serialise(graph);
}

TEST(Model, RunsWhereTheInputsLie) {
  const auto model = Model::load(runtime(), affine_model());
  EXPECT_EQ(model->engine(), "onnxruntime");
  EXPECT_EQ(model->provider(), Provider::cpu);
  EXPECT_TRUE(model->rows_first());
  EXPECT_GT(model->resident_bytes(), 0u);
  const std::vector<float> x = {1, 2, 3, 4};
  const auto in = view_of(x, {2, 2});
  EXPECT_EQ(model->check(std::span(&in, 1)), 2u);
  const auto out = model->run(std::span(&in, 1));
  ASSERT_EQ(out.tensors().size(), 1u);
  EXPECT_EQ(out.tensors()[0].shape, (Shape{2, 2}));
  EXPECT_THAT(out.tensors()[0].values<float>(), ElementsAre(3, 5, 7, 9));
  EXPECT_THAT(out.tensors()[0].rows(1, 1).values<float>(), ElementsAre(7, 9));
}

TEST(Model, CopiesInputsThatLieAtOddAddresses) {
  const auto model = Model::load(runtime(), affine_model());
  std::vector<std::byte> bytes(17);
  const std::vector<float> x = {1, 2, 3, 4};
  std::memcpy(bytes.data() + 1, x.data(), 16);
  const TensorView in{Element::float32, {2, 2}, std::span(bytes).subspan(1), {}};
  const auto out = model->run(std::span(&in, 1));
  EXPECT_THAT(out.tensors()[0].values<float>(), ElementsAre(3, 5, 7, 9));
}

TEST(Model, GivesTheOutputsThatAreAskedFor) {
  Graph graph;
  const auto x = graph.add_input("x", Element::float32, rows_of_width(1));
  const auto words = graph.add_input("words", Element::text, {std::string(graph::kRows)});
  graph.add_output("minus", graph.add_node("Neg", {x}), Element::float32, rows_of_width(1));
  graph.add_output("said", words, Element::text, {std::string(graph::kRows)});
  graph.add_output("less", graph.add_node("Less", {x, graph.add_node("Neg", {x})}), Element::boolean, rows_of_width(1));
  const auto model = Model::load(runtime(), graph::serialise(graph));
  const std::vector<float> x2 = {1, -2};
  const std::vector<std::string_view> said = {"a", std::string_view("b\0c", 3)};
  const std::vector<TensorView> in = {view_of(x2, {2, 1}), {Element::text, {2}, {}, said}};
  const auto all = model->run(in);
  ASSERT_EQ(all.tensors().size(), 3u);
  EXPECT_THAT(all.tensors()[1].texts, ElementsAre("a", std::string_view("b\0c", 3)));
  const std::vector<std::uint16_t> some = {2, 0};
  const auto out = model->run(in, some);
  ASSERT_EQ(out.tensors().size(), 2u);
  EXPECT_THAT(out.tensors()[0].values<std::uint8_t>(), ElementsAre(0, 1));
  EXPECT_THAT(out.tensors()[1].values<float>(), ElementsAre(-1, 2));
  const std::vector<std::uint16_t> unknown = {3}, twice = {1, 1};
  EXPECT_ERROR(model->run(in, unknown), Code::invalid);
  EXPECT_ERROR(model->run(in, twice), Code::invalid);
}

TEST(Model, SaysWhatIsWrongWithInputs) {
  const auto model = Model::load(runtime(), affine_model());
  const std::vector<float> x(4);
  const std::vector<double> wide(4);
  const auto refused = [&](const TensorView& in) { EXPECT_ERROR(model->check(std::span(&in, 1)), Code::invalid); };
  refused(view_of(wide, {2, 2}));                                   // another element
  refused(view_of(x, {4}));                                         // another rank
  refused(view_of(x, {1, 4}));                                      // another width
  refused(view_of(x, {3, 2}));                                      // fewer bytes than the shape says
  refused(view_of(x, {1, 2}));                                      // more
  refused(view_of(x, {-2, 2}));                                     // negative
  refused(view_of(x, {std::int64_t{1} << 62, 2}));                  // product out of range
  refused({Element::float32, {std::int64_t{1} << 61, 2}, {}, {}});  // whose bytes wrap around to none
  EXPECT_ERROR(model->check({}), Code::invalid);
  const TensorView none = view_of(std::vector<float>(), {0, 2});
  EXPECT_EQ(model->run(std::span(&none, 1)).tensors()[0].shape, (Shape{0, 2})) << "no rows are fine";
}

TEST(Model, RefusesBooleansThatAreNone) {
  Graph graph;
  const auto x = graph.add_input("x", Element::boolean, rows_of_width(1));
  graph.add_output("y", graph.add_node("Not", {x}), Element::boolean, rows_of_width(1));
  const auto model = Model::load(runtime(), graph::serialise(graph));
  const std::vector<std::uint8_t> bytes = {0, 1, 2};
  const auto all = std::as_bytes(std::span(bytes));
  const TensorView good{Element::boolean, {2, 1}, all.first(2), {}}, bad{Element::boolean, {3, 1}, all, {}};
  EXPECT_EQ(model->check(std::span(&good, 1)), 2u);
  EXPECT_ERROR(model->check(std::span(&bad, 1)), Code::invalid);
}

TEST(Model, InputsHaveTheSameRows) {
  Graph graph;
  const auto a = graph.add_input("a", Element::float32, rows_of_width(1));
  const auto b = graph.add_input("b", Element::float32, rows_of_width(1));
  graph.add_output("y", graph.add_node("Add", {a, b}), Element::float32, rows_of_width(1));
  const auto model = Model::load(runtime(), graph::serialise(graph));
  const std::vector<float> one(1), two(2);
  EXPECT_ERROR(model->check(std::vector{view_of(one, {1, 1}), view_of(two, {2, 1})}), Code::invalid);
}

TEST(Model, KnowsWhenRowsDependOnEachOther) {
  const auto per_row = Model::load(runtime(), one_operator("Softmax", {{"axis", std::int64_t{1}}}, rows_of_width(3)));
  EXPECT_TRUE(per_row->rows_first());
  const auto over_rows = Model::load(runtime(), one_operator("Softmax", {{"axis", std::int64_t{0}}}, rows_of_width(3)));
  EXPECT_FALSE(over_rows->rows_first()) << "one caller would change another's answer";
  const auto mean = Model::load(
      runtime(), one_operator("ReduceMean", {{"axes", std::vector<std::int64_t>{0}}, {"keepdims", std::int64_t{1}}},
                              {std::string("some"), std::int64_t{3}}));
  EXPECT_FALSE(mean->rows_first());
  const auto turned = Model::load(runtime(), one_operator("Transpose", {{"perm", std::vector<std::int64_t>{1, 0}}},
                                                          {std::int64_t{3}, std::string(graph::kRows)}));
  EXPECT_FALSE(turned->rows_first());
}

// Of values far apart in a row, 1.27.0 takes the wrong one.
TEST(Model, AnswersAQuantisedSoftmaxRight) {
  Graph graph;
  graph.opsets["com.microsoft"] = 1;
  const auto x = graph.add_input("x", Element::float32, rows_of_width(4));
  const auto scale = graph.add_constant(Tensor::of<float>({}, std::vector<float>{0.2F}));
  const auto zero = graph.add_constant(Tensor::of<std::uint8_t>({}, std::vector<std::uint8_t>{128}));
  const auto out_scale = graph.add_constant(Tensor::of<float>({}, std::vector<float>{1.0F / 256}));
  const auto out_zero = graph.add_constant(Tensor::of<std::uint8_t>({}, std::vector<std::uint8_t>{0}));
  const auto soft = graph.add_node(
      "QLinearSoftmax", {graph.add_node("QuantizeLinear", {x, scale, zero}), scale, zero, out_scale, out_zero},
      {{"axis", std::int64_t{1}}, {"opset", std::int64_t{17}}}, "com.microsoft");
  graph.add_output("y", graph.add_node("DequantizeLinear", {soft, out_scale, out_zero}), Element::float32,
                   rows_of_width(4));
  const auto model = Model::load(runtime(), graph::serialise(graph, LoadOptions::serving_limits()));
  const auto numbers = random_numbers(50 * 4, 1);
  std::vector<float> wide;
  for (const float v : numbers) wide.push_back(8 * v);
  const auto in = view_of(wide, {50, 4});
  const auto out = model->run(std::span(&in, 1));
  for (std::size_t row = 0; row < 50; ++row) {
    double sum = 0;
    for (std::size_t k = 0; k < 4; ++k) sum += std::exp(std::round(wide[row * 4 + k] / 0.2F) * 0.2F);
    for (std::size_t k = 0; k < 4; ++k)
      EXPECT_NEAR(out.tensors()[0].values<float>()[row * 4 + k],
                  std::exp(std::round(wide[row * 4 + k] / 0.2F) * 0.2F) / sum, 0.01)
          << row;
  }
}

// As one exporter writes labels.
TEST(Model, FindsRowsWhereAnOutputSaysThatThereIsOne) {
  const auto model = Model::load(runtime(), one_operator("Neg", {}, {std::int64_t{1}, std::int64_t{3}}));
  EXPECT_TRUE(model->rows_first());
  EXPECT_EQ(model->outputs()[0].shape[0], graph::Dimension(std::string()));
  const auto first = Model::load(
      runtime(), one_operator("ReduceMax", {{"axes", std::vector<std::int64_t>{0}}, {"keepdims", std::int64_t{1}}},
                              {std::int64_t{1}, std::int64_t{3}}));
  EXPECT_FALSE(first->rows_first());
}

TEST(Model, RefusesWhatCannotBeServed) {
  EXPECT_ERROR(Model::load(runtime(), as_bytes("no model")), Code::invalid);
  EXPECT_ERROR(Model::load(runtime(), {}), Code::invalid);
  LoadOptions tight;
  tight.limits.nodes = 1;
  EXPECT_ERROR(Model::load(runtime(), affine_model(), tight), Code::invalid);
  Graph graph;
  graph.add_output("y", graph.add_node("NoSuchOperator", {graph.add_input("x", Element::float32, {})}),
                   Element::float32, {});
  EXPECT_ERROR(Model::load(runtime(), graph::serialise(graph)), Code::invalid);
}

// As exporters of scikit-learn write classifiers: the scores leave as a list of dictionaries, which no protocol has.
TEST(Model, GivesTheScoresThatAZipMapWouldHide) {
  Graph graph;
  const auto x = graph.add_input("x", Element::float32, rows_of_width(3));
  const auto scores = graph.add_node("Softmax", {x}, {{"axis", std::int64_t{1}}});
  const auto zipped =
      graph.add_node("ZipMap", {scores}, {{"classlabels_int64s", std::vector<std::int64_t>{4, 5, 6}}}, graph::kMl);
  graph.outputs.push_back({zipped, Element::float32, rows_of_width(3)});
  const auto model = Model::load(runtime(), graph::serialise(graph));
  ASSERT_EQ(model->outputs().size(), 1u);
  EXPECT_EQ(model->outputs()[0].element, Element::float32);
  EXPECT_TRUE(model->rows_first());
  const std::vector<float> row = {1, 1, 1};
  const auto in = view_of(row, {1, 3});
  const auto out = model->run(std::span(&in, 1));
  EXPECT_EQ(out.tensors()[0].shape, (Shape{1, 3}));
  EXPECT_FLOAT_EQ(out.tensors()[0].values<float>()[2], 1.0F / 3);
}

TEST(Model, SaysWhenItFailsOnTheInputs) {
  Graph graph;
  const auto x = graph.add_input("x", Element::int64, {std::string(graph::kRows)});
  const auto table = graph.add_constant(Tensor::of<float>({2}, std::vector<float>{5, 6}));
  graph.add_output("y", graph.add_node("Gather", {table, x}), Element::float32, {std::string(graph::kRows)});
  const auto model = Model::load(runtime(), graph::serialise(graph));
  const std::vector<std::int64_t> good = {1}, bad = {7};
  const auto right = view_of(good, {1}), wrong = view_of(bad, {1});
  EXPECT_EQ(model->run(std::span(&right, 1)).tensors()[0].values<float>()[0], 6);
  EXPECT_ERROR(model->run(std::span(&wrong, 1)), Code::invalid);
}

TEST(Model, ProvidersAreTakenOnlyWhenTheyAreThere) {
  EXPECT_THAT(runtime().providers(), testing::Contains(Provider::cpu));
  for (const auto wanted : {Provider::cuda, Provider::tensorrt, Provider::openvino}) {
    const auto& have = runtime().providers();
    if (std::find(have.begin(), have.end(), wanted) != have.end()) continue;
    LoadOptions options;
    options.providers = {wanted};
    EXPECT_ERROR(Model::load(runtime(), affine_model(), options), Code::unavailable);
    options.fall_back = true;
    EXPECT_EQ(Model::load(runtime(), affine_model(), options)->provider(), Provider::cpu);
    options.providers = {wanted, Provider::cpu};
    EXPECT_EQ(Model::load(runtime(), affine_model(), options)->provider(), Provider::cpu);
  }
}

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;
  return pages * 4096 / 1024 / 1024;
}

// FALAJ_CASES says how often.
TEST(Model, GivesItsMemoryBack) {
  if (repeats(2) == 1) GTEST_SKIP() << "sanitizers keep what is freed";
  const auto* asked = std::getenv("FALAJ_CASES");
  const std::size_t cycles = asked ? std::strtoull(asked, nullptr, 10) : 40;
  const auto network = network_model(512), trees = trees_model(random_trees(200, 6, 64, 1, 1));
  const auto x = random_numbers(32 * 64, 3);
  const auto in = view_of(x, {32, 64});
  double before = 0;
  for (std::size_t cycle = 0; cycle < cycles; ++cycle) {
    for (const auto* bytes : {&network, &trees}) (void)Model::load(runtime(), *bytes)->run(std::span(&in, 1));
    if (cycle == cycles / 4) before = resident_mib();
  }
  EXPECT_LE(resident_mib(), 1.05 * before) << cycles << " cycles";
}

TEST(Model, IsRunByThreadsAndOutlivedByItsOutputs) {
  auto model = Model::load(runtime(), network_model(32));
  const auto x = random_numbers(64, 3);
  const auto in = view_of(x, {1, 64});
  const auto expected = model->run(std::span(&in, 1));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < repeats(200); ++round) {
        const auto out = model->run(std::span(&in, 1));
        EXPECT_TRUE(std::ranges::equal(out.tensors()[0].bytes, expected.tensors()[0].bytes));
      }
    });
  for (auto& thread : threads) thread.join();
  const auto kept = model->run(std::span(&in, 1));
  model.reset();
  EXPECT_TRUE(std::ranges::equal(kept.tensors()[0].bytes, expected.tensors()[0].bytes));
}

}  // namespace
}  // namespace falaj::infer
