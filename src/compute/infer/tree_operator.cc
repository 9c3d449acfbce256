// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/tree_operator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::infer {

using graph::Element;
using graph::Node;

namespace {

template <class T>
const T* attribute(const Node& node, std::string_view name) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? nullptr : std::get_if<T>(&found->second);
}

std::string_view text_attribute(const Node& node, std::string_view name, std::string_view otherwise) {
  const auto* found = attribute<std::string>(node, name);
  return found ? std::string_view(*found) : otherwise;
}

bool is_tree_operator(const Node& node) {
  return node.domain == graph::kMl && (node.op == "TreeEnsembleRegressor" || node.op == "TreeEnsembleClassifier");
}

// As ONNX Runtime does it: without large powers.
float logistic(float x) {
  const float v = 1.0F / (1.0F + std::exp(-std::fabs(x)));
  return x < 0 ? 1.0F - v : v;
}

void softmax(float* row, std::size_t width) {
  const float highest = *std::max_element(row, row + width);
  float sum = 0;
  for (std::size_t k = 0; k < width; ++k) sum += row[k] = std::exp(row[k] - highest);
  for (std::size_t k = 0; k < width; ++k) row[k] /= sum;
}

}  // namespace

// ---- The operator.
std::optional<TreeOperator> TreeOperator::of(const Node& node) {
  if (!is_tree_operator(node) || node.inputs.size() != 1) return {};
  for (const auto& [name, value] : node.attributes)
    if (name.size() > 10 && name.compare(name.size() - 10, 10, "_as_tensor") == 0) return {};  // doubles
  return node.op == "TreeEnsembleRegressor" ? regressor(node) : classifier(node);
}

std::optional<TreeOperator> TreeOperator::regressor(const Node& node) {
  const auto* targets = attribute<std::int64_t>(node, "n_targets");
  if (!targets || *targets < 1 || *targets > (1 << 16) || node.outputs.size() != 1) return {};
  if (text_attribute(node, "post_transform", "NONE") != "NONE") return {};
  const auto together = text_attribute(node, "aggregate_function", "SUM");
  if (together != "SUM" && together != "AVERAGE") return {};
  auto trees = Trees::of(node, static_cast<std::size_t>(*targets));
  if (!trees) return {};
  TreeOperator out(std::move(*trees));
  out.scores_ = static_cast<std::size_t>(*targets);
  out.average_ = together == "AVERAGE";
  if (const auto* base = attribute<std::vector<float>>(node, "base_values")) out.base_ = *base;
  if (!out.base_.empty() && out.base_.size() != out.scores_) return {};
  return out;
}

std::optional<TreeOperator> TreeOperator::classifier(const Node& node) {
  const auto* labels = attribute<std::vector<std::int64_t>>(node, "classlabels_int64s");
  const auto* texts = attribute<std::vector<std::string>>(node, "classlabels_strings");
  const auto* ids = attribute<std::vector<std::int64_t>>(node, "class_ids");
  const auto* weights = attribute<std::vector<float>>(node, "class_weights");
  if ((labels && !labels->empty()) == (texts && !texts->empty()) || !ids || !weights || node.outputs.size() != 2)
    return {};
  const bool whole = labels && !labels->empty();
  const std::size_t classes = whole ? labels->size() : texts->size();
  auto trees = Trees::of(node, classes);
  if (!trees || classes < 2) return {};
  TreeOperator out(std::move(*trees));
  out.classifies_ = true;
  out.scores_ = classes;
  if (whole)
    out.labels_ = *labels;
  else
    out.text_labels_ = std::make_shared<const std::vector<std::string>>(*texts);
  const auto after = text_attribute(node, "post_transform", "NONE");
  if (after == "LOGISTIC")
    out.after_ = After::logistic;
  else if (after == "SOFTMAX")
    out.after_ = After::softmax;
  else if (after != "NONE")
    return {};
  if (const auto* base = attribute<std::vector<float>>(node, "base_values")) out.base_ = *base;
  if (classes == 2) {
    // Leaves that speak of the first class alone mean the second; other ways of saying two classes are ONNX Runtime's.
    out.one_sum_ = std::all_of(ids->begin(), ids->end(), [](auto id) { return id == 0; });
    // Without a negative one they are probabilities.
    out.all_positive_ = std::none_of(weights->begin(), weights->end(), [](float w) { return w < 0; });
    const After known = out.all_positive_ ? After::nothing : After::logistic;
    if (!out.one_sum_ || out.base_.size() > 1 || !out.trees_.completes(0)) return {};
    if (out.after_ != After::nothing && out.after_ != known) return {};
    return out;
  }
  if (!out.base_.empty() && out.base_.size() != classes) return {};
  for (std::size_t k = 0; k < classes; ++k)
    if (!out.trees_.completes(k)) return {};
  return out;
}

// The second class's share, or its sum; says which class.
std::uint32_t TreeOperator::finish_two(float sum, float* scores) const {
  if (after_ == After::logistic)
    scores[0] = logistic(-sum), scores[1] = logistic(sum);
  else
    scores[0] = all_positive_ ? 1.0F - sum : -sum, scores[1] = sum;
  return sum > (all_positive_ ? 0.5F : 0.0F) ? 1 : 0;
}

void TreeOperator::run(const float* rows, std::size_t count, std::size_t stride, float* scores,
                       std::uint32_t* classes) const {
  const std::size_t width = scores_;
  float* const end = scores + count * width;
  std::fill(scores, end, 0.0F);
  if (!average_ && !base_.empty())
    for (float* row = scores; row != end; row += width) std::copy(base_.begin(), base_.end(), row);
  trees_.add({rows, count * stride}, stride, {scores, count * width});
  if (average_) {
    const auto number = static_cast<float>(trees_.trees());
    for (float* row = scores; row != end; row += width)
      for (std::size_t k = 0; k < width; ++k) row[k] = row[k] / number + (base_.empty() ? 0.0F : base_[k]);
  }
  if (!classifies_) return;
  for (float* row = scores; row != end; row += width) {
    const std::uint32_t found =
        one_sum_ ? finish_two(row[0], row) : static_cast<std::uint32_t>(std::max_element(row, row + width) - row);
    if (classes) *classes++ = found;
    if (one_sum_) continue;
    if (after_ == After::softmax) softmax(row, width);
    if (after_ == After::logistic) std::transform(row, row + width, row, logistic);
  }
}

// ---- A model of one operator.
std::optional<TreePlan> TreePlan::of(const graph::Graph& graph) {
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(), is_tree_operator);
  if (found == graph.nodes.end() || found->inputs.size() != 1 || !graph.initialisers.empty()) return {};
  if (graph.inputs.size() != 1 || graph.inputs[0].name != found->inputs[0]) return {};
  const auto& input = graph.inputs[0];
  if (input.element != Element::float32 || input.shape.size() != 2 ||
      !std::holds_alternative<std::string>(input.shape[0]))
    return {};
  auto made = TreeOperator::of(*found);
  if (!made) return {};
  const auto* width = std::get_if<std::int64_t>(&input.shape[1]);
  if (width && static_cast<std::size_t>(*width) < made->features()) return {};
  TreePlan out(std::move(*made));
  out.inputs_ = graph.inputs;
  if (!out.follow(graph, *found)) return {};
  return out;
}

namespace {

// Exporters of scikit-learn make whole numbers of whole numbers.
bool casts_to_same(const Node& node, bool label, const TreeOperator& trees) {
  const auto* to = attribute<std::int64_t>(node, "to");
  if (node.op != "Cast" || !node.domain.empty() || !to) return false;
  if (!label) return *to == graph::onnx_type(Element::float32);
  return *to == graph::onnx_type(trees.text_labels() ? Element::text : Element::int64);
}

}  // namespace

// From the operator to the outputs of the graph, over nothing but links.
bool TreePlan::follow(const graph::Graph& graph, const Node& trees) {
  std::map<std::string, Output> values;
  if (operator_.classifies()) values[trees.outputs[0]].label = true;
  values[trees.outputs.back()];
  const auto opset = graph.opsets.find("");
  const std::int64_t softmax_axis = opset != graph.opsets.end() && opset->second >= 13 ? -1 : 1;
  std::size_t left = graph.nodes.size() - 1;
  for (bool moved = true; moved && left > 0;) {
    moved = false;
    for (const auto& node : graph.nodes) {
      if (&node == &trees || node.inputs.size() != 1 || node.outputs.size() != 1 || values.count(node.outputs[0]))
        continue;
      const auto from = values.find(node.inputs[0]);
      if (from == values.end()) continue;
      Output made = from->second;
      if (node.op != "Identity" && !casts_to_same(node, made.label, operator_)) {
        const auto* axis = attribute<std::int64_t>(node, "axis");
        const std::int64_t which = axis ? *axis : softmax_axis;
        if (made.label || !node.domain.empty()) return false;
        if (node.op == "Sigmoid")
          made.links.push_back(Link::logistic);
        else if (node.op == "Exp")
          made.links.push_back(Link::exponential);
        else if (node.op == "Softmax" && (which == 1 || which == -1))
          made.links.push_back(Link::softmax);
        else
          return false;
      }
      values.emplace(node.outputs[0], std::move(made));
      moved = true;
      --left;
    }
  }
  if (left > 0) return false;
  for (const auto& port : graph.outputs) {
    const auto from = values.find(port.name);
    if (from == values.end() || port.shape.empty()) return false;
    const auto* rows = std::get_if<std::int64_t>(&port.shape[0]);
    if (rows && *rows != 1) return false;
    const bool label = from->second.label;
    const Element element = !label ? Element::float32 : operator_.text_labels() ? Element::text : Element::int64;
    if (port.element != element || port.shape.size() != (label ? 1 : 2)) return false;
    outputs_.push_back(port);
    made_.push_back(from->second);
    if (rows) outputs_.back().shape[0] = std::string();  // some exporters say that there is one
    if (label) continue;
    const auto scores = static_cast<std::int64_t>(operator_.scores());
    const auto* declared = std::get_if<std::int64_t>(&port.shape[1]);
    if (declared && *declared != scores) return false;
    outputs_.back().shape[1] = scores;
  }
  return !outputs_.empty();
}

void TreePlan::apply(Link link, std::span<float> scores, std::size_t width) {
  if (link == Link::logistic)
    for (float& v : scores) v = logistic(v);
  if (link == Link::exponential)
    for (float& v : scores) v = std::exp(v);
  if (link == Link::softmax)
    for (std::size_t row = 0; row < scores.size(); row += width) softmax(&scores[row], width);
}

void TreePlan::run(const TensorView& rows, std::span<const std::uint16_t> wanted, Made& made,
                   std::vector<TensorView>& out) const {
  const auto count = static_cast<std::size_t>(rows.shape[0]), stride = static_cast<std::size_t>(rows.shape[1]);
  if (stride < operator_.features())
    throw Error(Code::invalid, fmt::format("input '{}' has {} columns, the model wants {}", inputs_[0].name, stride,
                                           operator_.features()));
  const std::size_t width = operator_.scores(), many = wanted.empty() ? outputs_.size() : wanted.size();
  // Eight bytes for a label or two scores. The first scores are made in place, for labels behind everything.
  const std::size_t scores_each = (count * width + 1) / 2, each = std::max(scores_each, count);
  made.numbers.reset(new std::uint64_t[each * (many + 1) + (count + 1) / 2]);
  auto* raw = reinterpret_cast<float*>(made.numbers.get() + each * many);
  auto* classes = reinterpret_cast<std::uint32_t*>(made.numbers.get() + each * (many + 1));
  operator_.run(rows.values<float>().data(), count, stride, raw, classes);
  for (std::size_t at = 0; at < many; ++at) {
    const std::size_t which = wanted.empty() ? at : wanted[at];
    const Output& how = made_[which];
    std::uint64_t* to = made.numbers.get() + each * at;
    TensorView& view = out.emplace_back();
    view.element = outputs_[which].element;
    view.shape = how.label ? Shape{rows.shape[0]} : Shape{rows.shape[0], static_cast<std::int64_t>(width)};
    if (how.label && operator_.text_labels()) {
      made.shown = operator_.text_labels();
      made.texts.resize(count);
      for (std::size_t row = 0; row < count; ++row) made.texts[row] = (*made.shown)[classes[row]];
      view.texts = made.texts;
      continue;
    }
    if (how.label) {
      for (std::size_t row = 0; row < count; ++row)
        reinterpret_cast<std::int64_t*>(to)[row] = operator_.labels()[classes[row]];
      view.bytes = {reinterpret_cast<const std::byte*>(to), count * sizeof(std::int64_t)};
      continue;
    }
    const std::span<float> scores(reinterpret_cast<float*>(to), count * width);
    if (!scores.empty()) std::memcpy(scores.data(), raw, scores.size_bytes());
    for (const Link link : how.links) apply(link, scores, width);
    view.bytes = std::as_bytes(scores);
  }
}

}  // namespace falaj::infer
