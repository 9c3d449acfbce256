// SPDX-License-Identifier: Apache-2.0
#include "compute/train/layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::train {
namespace {

using Op = Layer::Op;

class Planner {
 public:
  explicit Planner(Plan& plan) : plan_(plan) {}

  void join(const graph::Transform& transform) {
    Layer layer{Op::join, 0, 0, {}, 0, 0};
    layer.out = static_cast<std::int64_t>(transform.float_names().size());
    for (const auto& ids : transform.ids()) {
      const auto entries = static_cast<std::int64_t>(ids.cardinality);
      // Wide enough to tell entries apart, narrow enough that rare ones do not learn by heart.
      const auto width =
          std::clamp<std::int64_t>(std::llround(1.6 * std::pow(static_cast<double>(entries), 0.56)), 2, 48);
      layer.weights.push_back(add({"table " + ids.name, {entries, width}, Weight::Init::uniform, 0.1, false}));
      layer.out += width;
    }
    plan_.inputs = width_ = layer.out;
    plan_.layers.push_back(std::move(layer));
  }
  void linear(std::int64_t out) {
    const auto number = ++linears_;
    const double bound = 1 / std::sqrt(static_cast<double>(width_));
    Layer layer{Op::linear, width_, out, {}, 0, 0};
    layer.weights = {add({fmt::format("linear {} weight", number), {out, width_}, Weight::Init::uniform, bound, true}),
                     add({fmt::format("linear {} bias", number), {out}, Weight::Init::uniform, bound, false})};
    plan_.layers.push_back(std::move(layer));
    width_ = out;
  }
  void norm() {
    const auto number = ++norms_;
    Layer layer{Op::norm, width_, width_, {}, 0, 0};
    layer.weights = {add({fmt::format("norm {} scale", number), {width_}, Weight::Init::ones, 0, false}),
                     add({fmt::format("norm {} shift", number), {width_}, Weight::Init::zeros, 0, false})};
    plan_.layers.push_back(std::move(layer));
  }
  void simple(Op op, double a = 0, double b = 0) {
    if (op == Op::dropout && a == 0) return;
    plan_.layers.push_back({op, width_, width_, {}, a, b});
  }
  std::int64_t width() const { return width_; }

 private:
  std::size_t add(Weight weight) {
    plan_.weights.push_back(std::move(weight));
    return plan_.weights.size() - 1;
  }

  Plan& plan_;
  std::int64_t width_ = 0;
  int linears_ = 0, norms_ = 0;
};

}  // namespace

std::int64_t Weight::count() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t Plan::parameters() const {
  std::int64_t sum = 0;
  for (const auto& weight : weights) sum += weight.count();
  return sum;
}

Plan plan_network(const recipe::Network& network, const graph::Transform& transform, std::size_t outputs,
                  double label_mean, double label_deviation) {
  Plan plan;
  plan.outputs = static_cast<std::int64_t>(outputs);
  Planner planner(plan);
  planner.join(transform);
  if (network.kind == "mlp") {
    for (const auto size : network.hidden) {
      planner.linear(size);
      planner.simple(Op::relu);
      planner.simple(Op::dropout, network.dropout);
    }
  } else if (network.kind == "resnet") {
    if (!network.hidden.empty()) planner.linear(network.hidden[0]);
    for (const auto size : network.hidden) {
      planner.simple(Op::keep);
      const auto width = planner.width();
      planner.norm();
      planner.linear(size);
      planner.simple(Op::relu);
      planner.simple(Op::dropout, network.dropout);
      planner.linear(width);
      planner.simple(Op::add);
    }
    planner.norm();
    planner.simple(Op::relu);
  } else if (network.kind != "linear") {
    throw Error(Code::invalid, fmt::format("network.kind: {} takes images, and these are tables", network.kind));
  }
  planner.linear(plan.outputs);
  if (label_mean != 0 || label_deviation != 1) planner.simple(Op::scale, label_deviation, label_mean);
  return plan;
}

namespace {

class Emitter {
 public:
  Emitter(const Plan& plan, const std::vector<std::vector<float>>& weights, graph::Graph& graph)
      : plan_(plan), weights_(weights), graph_(graph) {}

  std::string run(const graph::Transform::Emitted& inputs) {
    std::string at;
    std::vector<std::string> kept;
    for (const auto& layer : plan_.layers) {
      switch (layer.op) {
        case Op::join:
          at = join(layer, inputs);
          break;
        case Op::linear:
          at = graph_.add_node("Gemm", {at, constant(layer.weights[0]), constant(layer.weights[1])},
                               {{"transB", std::int64_t{1}}});
          break;
        case Op::relu:
          at = graph_.add_node("Relu", {at});
          break;
        case Op::norm:
          at = graph_.add_node("LayerNormalization", {at, constant(layer.weights[0]), constant(layer.weights[1])},
                               {{"axis", std::int64_t{-1}}, {"epsilon", 1e-5F}});
          break;
        case Op::dropout:
          break;
        case Op::keep:
          kept.push_back(at);
          break;
        case Op::add:
          at = graph_.add_node("Add", {at, kept.back()});
          kept.pop_back();
          break;
        case Op::scale:
          at = graph_.add_node("Mul", {at, number(layer.a)});
          at = graph_.add_node("Add", {at, number(layer.b)});
          break;
      }
    }
    return at;
  }

 private:
  std::string constant(std::size_t index) {
    return graph_.add_constant(graph::Tensor::of<float>(plan_.weights[index].sizes, weights_[index]));
  }
  std::string number(double value) {
    return graph_.add_constant(graph::Tensor::of<float>({}, std::vector<float>{static_cast<float>(value)}));
  }
  std::string join(const Layer& layer, const graph::Transform::Emitted& inputs) {
    std::vector<std::string> parts;
    if (!inputs.floats.empty()) parts.push_back(inputs.floats);
    for (std::size_t i = 0; i < layer.weights.size(); ++i) {
      const auto column = graph_.add_constant(
          graph::Tensor::of<std::int64_t>({}, std::vector<std::int64_t>{static_cast<std::int64_t>(i)}));
      const auto ids = graph_.add_node("Gather", {inputs.ids, column}, {{"axis", std::int64_t{1}}});  // [rows]
      parts.push_back(graph_.add_node("Gather", {constant(layer.weights[i]), ids}, {{"axis", std::int64_t{0}}}));
    }
    return parts.size() == 1 ? parts[0] : graph_.add_node("Concat", parts, {{"axis", std::int64_t{1}}});
  }

  const Plan& plan_;
  const std::vector<std::vector<float>>& weights_;
  graph::Graph& graph_;
};

}  // namespace

std::string emit_layers(const Plan& plan, const std::vector<std::vector<float>>& weights, graph::Graph& graph,
                        const graph::Transform::Emitted& inputs) {
  CHECK(weights.size() == plan.weights.size(), "every weight has values");
  return Emitter(plan, weights, graph).run(inputs);
}

}  // namespace falaj::train
