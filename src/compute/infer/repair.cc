// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/repair.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace falaj::infer {

using graph::Element;
using graph::Node;
using graph::Tensor;

namespace {

template <class T>
const T* found(const Node& node, std::string_view name) {
  const auto at = node.attributes.find(name);
  return at == node.attributes.end() ? nullptr : std::get_if<T>(&at->second);
}

// Whether leaves speak of the first of two classes alone, in probabilities.
bool holds_probabilities(const Node& node) {
  if (node.op != "TreeEnsembleClassifier" || node.domain != graph::kMl || node.outputs.size() != 2) return false;
  const auto* labels = found<std::vector<std::int64_t>>(node, "classlabels_int64s");
  const auto* texts = found<std::vector<std::string>>(node, "classlabels_strings");
  if ((labels ? labels->size() : 0) + (texts ? texts->size() : 0) != 2) return false;
  const auto* after = found<std::string>(node, "post_transform");
  if (after && *after != "NONE" && *after != "SOFTMAX") return false;
  const auto* base = found<std::vector<float>>(node, "base_values");
  const auto* wide_base = found<Tensor>(node, "base_values_as_tensor");
  if ((base ? base->size() : 0) + (wide_base ? wide_base->count() : 0) > 1) return false;
  const auto* ids = found<std::vector<std::int64_t>>(node, "class_ids");
  if (!ids || std::any_of(ids->begin(), ids->end(), [](auto id) { return id != 0; })) return false;
  if (const auto* weights = found<std::vector<float>>(node, "class_weights"); weights && !weights->empty())
    return std::none_of(weights->begin(), weights->end(), [](float w) { return w < 0; });
  const auto* wide = found<Tensor>(node, "class_weights_as_tensor");
  if (!wide || wide->element != Element::float64) return false;
  const auto values = wide->values<double>();
  return std::none_of(values.begin(), values.end(), [](double w) { return w < 0; });
}

void rewrite_forest(graph::Graph& graph, std::size_t at) {
  Node was = std::move(graph.nodes[at]);
  Node regressor{"TreeEnsembleRegressor", std::string(graph::kMl), was.name, was.inputs, {}, {}};
  Tensor labels;
  for (auto& [name, value] : was.attributes) {
    if (name == "classlabels_int64s")
      labels = Tensor::of<std::int64_t>({2}, std::get<std::vector<std::int64_t>>(value));
    else if (name == "classlabels_strings")
      labels = Tensor::of_text({2}, std::get<std::vector<std::string>>(value));
    else if (name.starts_with("class_"))
      regressor.attributes["target_" + name.substr(6)] = std::move(value);
    else if (name != "post_transform")
      regressor.attributes[name] = std::move(value);
  }
  regressor.attributes["n_targets"] = std::int64_t{1};
  const std::string second = graph.add_node("Identity", {});  // named, then made by the regressor
  graph.nodes.pop_back();
  regressor.outputs = {second};
  graph.nodes[at] = std::move(regressor);

  const auto one = graph.add_constant(Tensor::of<float>({}, std::vector<float>{1}));
  const auto half = graph.add_constant(Tensor::of<float>({}, std::vector<float>{0.5F}));
  const auto flat = graph.add_constant(Tensor::of<std::int64_t>({1}, std::vector<std::int64_t>{-1}));
  const auto names = graph.add_constant(std::move(labels));
  const auto first = graph.add_node("Sub", {one, second});
  graph.add_node("Concat", {first, second}, {{"axis", std::int64_t{1}}});
  graph.nodes.back().outputs = {was.outputs[1]};
  const auto yes = graph.add_node("Greater", {second, half});
  const auto index = graph.add_node("Cast", {yes}, {{"to", graph::onnx_type(Element::int64)}});
  graph.add_node("Gather", {names, graph.add_node("Reshape", {index, flat})}, {{"axis", std::int64_t{0}}});
  graph.nodes.back().outputs = {was.outputs[0]};
}

// Which sizes a Softmax runs over changed with this version of the operators.
constexpr std::int64_t kSoftmaxByAxis = 13;

bool is_quantised_softmax(const graph::Graph& graph, const Node& node) {
  if (node.op != "QLinearSoftmax" || node.domain != "com.microsoft" || node.inputs.size() != 5) return false;
  const auto opset = graph.opsets.find("");
  const auto* said = found<std::int64_t>(node, "opset");
  if (opset == graph.opsets.end() || opset->second < 10 || !said) return false;
  return (opset->second >= kSoftmaxByAxis) == (*said >= kSoftmaxByAxis);
}

void rewrite_softmax(graph::Graph& graph, std::size_t at) {
  const Node was = graph.nodes[at];
  const auto* axis = found<std::int64_t>(was, "axis");
  std::vector<std::string> from = {was.inputs[0], was.inputs[1]}, to_from = {"", was.inputs[3], was.inputs[4]};
  if (!was.inputs[2].empty()) from.push_back(was.inputs[2]);
  const auto numbers = graph.add_node("DequantizeLinear", from);
  to_from[0] = graph.add_node("Softmax", {numbers}, {{"axis", axis ? *axis : std::int64_t{-1}}});
  graph.add_node("QuantizeLinear", to_from);
  graph.nodes.back().outputs = was.outputs;
  graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

bool repair(graph::Graph& graph) {
  bool any = false;
  for (std::size_t at = 0; at < graph.nodes.size(); ++at) {
    if (holds_probabilities(graph.nodes[at])) {
      rewrite_forest(graph, at);
      any = true;
    } else if (is_quantised_softmax(graph, graph.nodes[at])) {
      rewrite_softmax(graph, at--);
      any = true;
    }
  }
  return any;
}

bool may_need_repair(BytesView model) {
  const auto text = as_text(model);
  return text.find("TreeEnsembleClassifier") != text.npos || text.find("QLinearSoftmax") != text.npos;
}

}  // namespace falaj::infer
