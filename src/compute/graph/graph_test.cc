// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/graph.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/graph/check.h"
#include "compute/graph/proto.h"
#include "foundation/base/testing.h"

namespace falaj::graph {
namespace {

using testing::HasSubstr;

// Every kind of attribute and tensor.
Graph everything() {
  Graph graph;
  graph.name = "all";
  graph.metadata = {{"made by", "a test"}};
  const auto x = graph.add_input("x", Element::float32, {std::string(kRows), std::int64_t{3}, std::string()});
  const auto s = graph.add_input("s", Element::text, {std::string(kRows)});
  for (const Element element : kElements) graph.add_constant(Tensor::empty(element, {2, 3}));
  graph.add_constant(Tensor::of_text({2}, {"a", std::string("b\0c", 3)}));
  graph.add_constant(Tensor::of<double>({}, std::vector<double>{2.5}));
  const auto y = graph.add_node("Something", {x, "", s},
                                {{"i", std::int64_t{-7}},
                                 {"f", 1.5F},
                                 {"s", std::string("text")},
                                 {"is", std::vector<std::int64_t>{1, -2}},
                                 {"fs", std::vector<float>{0.5F}},
                                 {"ss", std::vector<std::string>{"a", ""}},
                                 {"t", Tensor::of<std::int64_t>({2}, std::vector<std::int64_t>{4, 5})}},
                                kMl);
  graph.add_node_with(2, "Split", {y});
  graph.add_output("out", y, Element::float64, {std::string(kRows)});
  return graph;
}

TEST(Graph, ComesBackAsItWasWritten) {
  const Graph graph = everything();
  const Bytes bytes = serialise(graph);
  EXPECT_EQ(parse(bytes), graph);
  EXPECT_EQ(serialise(parse(bytes)), bytes);
  Graph more = parse(bytes);
  const auto made = more.add_node("Identity", {"x"});
  EXPECT_NO_THROW(serialise(more)) << "new names are new: " << made;
  const Summary summary = check(bytes);
  EXPECT_EQ(summary.nodes, 3u);
  EXPECT_EQ(summary.tensors, std::size(kElements) + 3);
  EXPECT_EQ(summary.opsets.at(""), kOpset);
}

TEST(Graph, RefusesNamesThatAreTaken) {
  Graph graph;
  graph.add_input("x", Element::float32, {});
  EXPECT_ERROR(graph.add_input("x", Element::float32, {}), Code::exists);
  EXPECT_ERROR(graph.add_input("%1", Element::float32, {}), Code::invalid);
  EXPECT_ERROR(graph.add_input("", Element::float32, {}), Code::invalid);
  EXPECT_ERROR(graph.add_output("x", "x", Element::float32, {}), Code::exists);
  graph.add_output("y", "x", Element::float32, {});
  EXPECT_ERROR(graph.add_output("y", "x", Element::float32, {}), Code::exists);
}

onnx::ModelProto small() {
  Graph graph;
  graph.add_output("y", graph.add_node("Relu", {graph.add_input("x", Element::float32, {})}), Element::float32, {});
  onnx::ModelProto out;
  const Bytes bytes = serialise(graph);
  EXPECT_TRUE(out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  return out;
}

onnx::TensorProto& tensor_in(onnx::ModelProto& model) {
  auto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name("t");
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.add_dims(2);
  tensor.set_raw_data(std::string(8, '\0'));
  return tensor;
}

// Every fault as text, or nothing when the model is accepted.
std::string faults_of(const onnx::ModelProto& model, const Limits& limits = {}) {
  try {
    check(to_bytes(model.SerializeAsString()), limits);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    std::string out = error.what();
    for (const auto& fault : error.faults()) out += "\n" + fault.where + ": " + fault.what;
    return out;
  }
}

template <class Change>
std::string faults_after(Change change, const Limits& limits = {}) {
  onnx::ModelProto model = small();
  change(model);
  return faults_of(model, limits);
}

TEST(Check, AcceptsAWholeModel) {
  EXPECT_EQ(faults_of(small()), "");
  EXPECT_EQ(faults_after([](auto& m) { tensor_in(m); }), "");
}

TEST(Check, RefusesDataOfOtherFiles) {
  EXPECT_THAT(faults_after([](auto& m) { tensor_in(m).set_data_location(onnx::TensorProto::EXTERNAL); }),
              HasSubstr("tensor 't': has its data in another file"));
  EXPECT_THAT(faults_after([](auto& m) { tensor_in(m).add_external_data()->set_key("location"); }),
              HasSubstr("in another file"));
  EXPECT_THAT(faults_after([](auto& m) {
                auto& attribute = *m.mutable_graph()->mutable_node(0)->add_attribute();
                attribute.set_name("value");
                attribute.mutable_t()->add_external_data()->set_value("/etc/passwd");
              }),
              HasSubstr("node 'Relu 0' (Relu), attribute 'value': has its data in another file"));
}

TEST(Check, RefusesOperatorsOfOthers) {
  EXPECT_THAT(faults_after([](auto& m) { m.mutable_graph()->mutable_node(0)->set_domain("com.evil"); }),
              HasSubstr("node 'Relu 0' (Relu): is an operator of domain 'com.evil'"));
  EXPECT_THAT(faults_after([](auto& m) { m.add_opset_import()->set_domain("com.evil"); }), HasSubstr("com.evil"))
      << "without a version";
  EXPECT_THAT(faults_after([](auto& m) { m.add_functions(); }), HasSubstr("functions"));
  EXPECT_THAT(faults_after([](auto& m) { m.add_training_info(); }), HasSubstr("training"));
}

TEST(Check, RefusesTensorsThatAreNotWhatTheySay) {
  const auto sizes = [](std::int64_t size) { return faults_after([&](auto& m) { tensor_in(m).set_dims(0, size); }); };
  EXPECT_THAT(sizes(3), HasSubstr("tensor 't': holds 8 bytes, its sizes say 12"));
  EXPECT_THAT(sizes(1), HasSubstr("tensor 't': holds 8 bytes, its sizes say 4"));
  EXPECT_THAT(sizes(-1), HasSubstr("negative"));
  EXPECT_THAT(sizes(std::numeric_limits<std::int64_t>::max()), HasSubstr("more than"));
  EXPECT_THAT(faults_after([](auto& m) {
                auto& tensor = tensor_in(m);
                for (int k = 0; k < 4; ++k) tensor.add_dims(std::int64_t{1} << 62);
              }),
              HasSubstr("more than"));
  EXPECT_THAT(faults_after([](auto& m) { tensor_in(m).set_data_type(77); }), HasSubstr("type 77"));
  EXPECT_THAT(faults_after([](auto& m) {
                auto& tensor = tensor_in(m);
                for (int k = 0; k < 30; ++k) tensor.add_dims(1);
              }),
              HasSubstr("31 sizes"));
  EXPECT_THAT(faults_after([](auto& m) {
                auto& tensor = tensor_in(m);
                tensor.clear_raw_data();
                tensor.add_float_data(1);
              }),
              HasSubstr("holds 1 values, its sizes say 2"));
}

TEST(Check, RefusesCyclesAndNamesOfNobody) {
  EXPECT_THAT(faults_after([](auto& m) { m.mutable_graph()->mutable_node(0)->set_input(0, "y"); }),
              HasSubstr("node 'Relu 0' (Relu): waits for its own output"));
  EXPECT_THAT(faults_after([](auto& m) { m.mutable_graph()->mutable_node(0)->set_input(0, "nobody"); }),
              HasSubstr("node 'Relu 0' (Relu): reads 'nobody', which nothing makes"));
  EXPECT_THAT(faults_after([](auto& m) { m.mutable_graph()->mutable_output(0)->set_name("nobody"); }),
              HasSubstr("output 'nobody': reads 'nobody'"));
  EXPECT_THAT(faults_after([](auto& m) { m.mutable_graph()->mutable_node(0)->set_output(0, "x"); }),
              HasSubstr("makes 'x', which is made already"));
  EXPECT_THAT(faults_after([](auto& m) { *m.mutable_graph()->add_input() = m.graph().input(0); }),
              HasSubstr("input 'x': is there twice"));
  EXPECT_THAT(faults_after([](auto& m) { m.mutable_graph()->mutable_node(0)->set_name("a\nb"); }),
              HasSubstr("node 'a?b' (Relu): has a name that is not text"));
  EXPECT_THAT(faults_after([](auto& m) { m.mutable_graph()->mutable_node(0)->set_name(std::string(2000, 'a')); }),
              HasSubstr("2000 bytes"));
}

// A branch may read what the graph around it makes; a cycle through a branch is one too.
TEST(Check, LooksIntoGraphsInsideNodes) {
  const auto with_branch = [](const std::string& reads) {
    return faults_after([&](auto& m) {
      auto& node = *m.mutable_graph()->add_node();
      node.set_op_type("If");
      node.set_name("if");
      node.add_input("x");
      node.add_output("z");
      auto& attribute = *node.add_attribute();
      attribute.set_name("then_branch");
      attribute.set_type(onnx::AttributeProto::GRAPH);
      auto& inner = *attribute.mutable_g()->add_node();
      inner.set_op_type("Relu");
      inner.add_input(reads);
      inner.add_output("inner");
      attribute.mutable_g()->add_output()->set_name("inner");
    });
  };
  EXPECT_EQ(with_branch("y"), "");
  EXPECT_THAT(with_branch("nobody"),
              HasSubstr("node 'if' (If), attribute 'then_branch', node 0 (Relu): reads 'nobody'"));
  EXPECT_THAT(with_branch("z"), HasSubstr("node 'if' (If): waits for its own output"));
}

TEST(Check, CountsBeforeItReads) {
  Limits limits;
  limits.nodes = 5;
  const auto many_nodes = [](auto& m) {
    for (int k = 0; k < 10; ++k) m.mutable_graph()->add_node();
  };
  EXPECT_THAT(faults_after(many_nodes, limits), HasSubstr("more than 5 nodes"));
  limits = {};
  limits.tensors = 1;
  EXPECT_THAT(faults_after([](auto& m) { tensor_in(m), tensor_in(m); }, limits), HasSubstr("more than 1 tensors"));
  limits = {};
  limits.bytes = 10;
  EXPECT_THAT(faults_after([](auto&) {}, limits), HasSubstr("more than 10"));
  EXPECT_THAT(faults_after([](auto& m) {
                auto* graph = m.mutable_graph();
                for (int k = 0; k < 20; ++k) graph = graph->add_node()->add_attribute()->mutable_g();
              }),
              HasSubstr("graphs inside graphs"));
  EXPECT_THAT(faults_after([](auto& m) {
                auto* type = m.mutable_graph()->mutable_input(0)->mutable_type();
                for (int k = 0; k < 60; ++k) type = type->mutable_sequence_type()->mutable_elem_type();
              }),
              HasSubstr("nested too deeply"));
}

TEST(Check, RefusesBytesThatAreNoModel) {
  EXPECT_ERROR(check({}), Code::invalid);
  EXPECT_ERROR(check(as_bytes("hello, world")), Code::invalid);
  EXPECT_ERROR(check(Bytes(100)), Code::invalid);
  const Bytes whole = serialise(everything());
  for (std::size_t size = 1; size < whole.size(); ++size) {
    // A model cut off is refused, or is one that still is whole: what comes last may be left out.
    try {
      check(BytesView(whole).first(size));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid);
    }
  }
}

TEST(Tensor, CountsWhatItsSizesSay) {
  EXPECT_EQ(count_of(Sizes{}), 1u);
  EXPECT_EQ(count_of(Sizes{2, 3}), 6u);
  EXPECT_EQ(count_of(Sizes{std::int64_t{1} << 62, 0}), 0u);
  EXPECT_ERROR(count_of(Sizes{0, -1}), Code::invalid);
  EXPECT_ERROR(count_of(Sizes{2, 3}, 5), Code::invalid);
  EXPECT_ERROR(count_of(Sizes{std::int64_t{1} << 62, std::int64_t{1} << 62}), Code::invalid);
}

}  // namespace
}  // namespace falaj::graph
