// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/session.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/graph/graph.h"
#include "compute/infer/testing.h"
#include "foundation/base/testing.h"

namespace falaj::infer {
namespace {

using graph::Element;
using graph::Graph;
using graph::Tensor;

// y = 2 x + 1 and the texts as they are.
Bytes twice_and_one() {
  Graph graph;
  const auto x = graph.add_input("x", Element::float32, {std::string("rows"), std::int64_t{2}});
  const auto words = graph.add_input("words", Element::text, {std::string("rows")});
  const auto two = graph.add_constant(Tensor::of<float>({1}, std::vector<float>{2}));
  const auto one = graph.add_constant(Tensor::of<float>({1}, std::vector<float>{1}));
  const auto y = graph.add_node("Add", {graph.add_node("Mul", {x, two}), one});
  graph.add_output("y", y, Element::float32, {std::string("rows"), std::int64_t{2}});
  graph.add_output("said", words, Element::text, {std::string("rows")});
  return graph::serialise(graph);
}

std::vector<NamedTensor> given() {
  return {{"words", Tensor::of_text({3}, {"a", std::string("b\0c", 3), ""})},
          {"x", Tensor::of<float>({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6})}};
}

TEST(Session, RunsAModelByTheNamesOfItsInputs) {
  const auto session = Session::open(runtime(), twice_and_one());
  ASSERT_EQ(session.inputs().size(), 2u);
  EXPECT_EQ(session.inputs()[0], (graph::Port{"x", Element::float32, {std::string("rows"), std::int64_t{2}}}));
  const auto out = session.run(given());
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].name, "y");
  EXPECT_THAT(out[0].tensor.values<float>(), testing::ElementsAre(3, 5, 7, 9, 11, 13));
  EXPECT_EQ(out[1].tensor, given()[0].tensor) << "texts keep their zero bytes";

  const std::vector<std::string> only = {"said"};
  const auto some = session.run(given(), only);
  ASSERT_EQ(some.size(), 1u);
  EXPECT_EQ(some[0].name, "said");
}

TEST(Session, RunsAnEmptyBatch) {
  const auto session = Session::open(runtime(), twice_and_one());
  const auto out = session.run(
      std::vector<NamedTensor>{{"x", Tensor::empty(Element::float32, {0, 2})}, {"words", Tensor::of_text({0}, {})}});
  EXPECT_EQ(out[0].tensor.sizes, (graph::Sizes{0, 2}));
}

TEST(Session, RefusesInputsThatAreNotTheModels) {
  const auto session = Session::open(runtime(), twice_and_one());
  auto in = given();
  in.pop_back();
  EXPECT_ERROR(session.run(in), Code::invalid);
  in = given();
  in.push_back({"z", Tensor::of<float>({1}, std::vector<float>{1})});
  EXPECT_ERROR(session.run(in), Code::invalid);
  in = given();
  in.push_back(in.back());
  EXPECT_ERROR(session.run(in), Code::invalid);
  in = given();
  in[1].tensor = Tensor::of<double>({3, 2}, std::vector<double>(6));
  EXPECT_ERROR(session.run(in), Code::invalid);
  in[1].tensor = Tensor::of<float>({2, 3}, std::vector<float>(6));
  EXPECT_ERROR(session.run(in), Code::invalid);
  in[1].tensor = Tensor{Element::float32, {3, 2}, Bytes(4), {}};
  EXPECT_ERROR(session.run(in), Code::invalid);
  const std::vector<std::string> unknown = {"nobody"};
  EXPECT_ERROR(session.run(given(), unknown), Code::invalid);
}

TEST(Session, RefusesWhatIsNoModel) {
  EXPECT_ERROR(Session::open(runtime(), as_bytes("no model")), Code::invalid);
  auto bytes = twice_and_one();
  bytes.resize(bytes.size() / 2);
  EXPECT_ERROR(Session::open(runtime(), bytes), Code::invalid);
  Graph graph;  // whole, but of an operator that is not there
  graph.add_output("y", graph.add_node("NoSuchOperator", {graph.add_input("x", Element::float32, {})}),
                   Element::float32, {});
  EXPECT_ERROR(Session::open(runtime(), graph::serialise(graph)), Code::invalid);
}

TEST(Session, IsSharedByThreads) {
  const auto session = Session::open(runtime(), twice_and_one());
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < repeats(200); ++round) {
        const auto value = static_cast<float>(t * 1000 + round);
        const auto out = session.run(std::vector<NamedTensor>{
            {"x", Tensor::of<float>({1, 2}, std::vector<float>{value, 0})}, {"words", Tensor::of_text({1}, {"w"})}});
        EXPECT_EQ(out[0].tensor.values<float>()[0], 2 * value + 1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Runtime, IsFoundBesideTheProgramAndSaysItsVersion) { EXPECT_THAT(runtime().version(), testing::StartsWith("1.")); }

TEST(Runtime, SaysWhatIsWrongWithALibrary) {
  EXPECT_ERROR(Runtime::load("/nowhere/libonnxruntime.so.1"), Code::not_found);
  EXPECT_ERROR(Runtime::load("/proc/self/cmdline"), Code::unavailable);
  EXPECT_ERROR(Runtime::load("libm.so.6"), Code::not_found);
}

}  // namespace
}  // namespace falaj::infer
