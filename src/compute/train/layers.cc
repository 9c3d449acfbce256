// SPDX-License-Identifier: Apache-2.0
#include "compute/train/layers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

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
    Layer layer;
    layer.op = op;
    layer.in = layer.out = width_;
    layer.a = a;
    layer.b = b;
    plan_.layers.push_back(std::move(layer));
  }
  std::int64_t width() const { return width_; }

  // ---- Images.
  void image(const loader::Image& image) {
    height_ = static_cast<std::int64_t>(image.height);
    columns_ = static_cast<std::int64_t>(image.width);
    width_ = static_cast<std::int64_t>(image.channels);
    plan_.inputs = static_cast<std::int64_t>(image.bytes());
    simple(Op::image);
    widen();
  }
  // A convolution, its norm and what bends it; as many pixels come out as went in, or a half of them each way.
  void conv(std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t groups, std::optional<Op> bend) {
    const auto number = ++convs_;
    const double fan = static_cast<double>(width_ / groups * kernel * kernel);
    Layer layer;
    layer.op = Op::conv;
    layer.in = width_;
    layer.out = out;
    layer.kernel = kernel;
    layer.stride = stride;
    layer.groups = groups;
    layer.weights = {add({fmt::format("conv {}", number),
                          {out, width_ / groups, kernel, kernel},
                          Weight::Init::uniform,
                          std::sqrt(6 / fan),
                          true})};
    plan_.layers.push_back(std::move(layer));
    width_ = out;
    height_ = (height_ + stride - 1) / stride;
    columns_ = (columns_ + stride - 1) / stride;
    widen();
    batch_norm(number);
    if (bend) simple(*bend);
  }
  void batch_norm(int number) {
    const auto one = [&](const char* what, Weight::Init init, bool learns) {
      return add({fmt::format("conv {} {}", number, what), {width_}, init, 0, false, learns});
    };
    Layer layer;
    layer.op = Op::batch_norm;
    layer.in = layer.out = width_;
    layer.weights = {one("scale", Weight::Init::ones, true), one("shift", Weight::Init::zeros, true),
                     one("mean", Weight::Init::zeros, false), one("variance", Weight::Init::ones, false)};
    plan_.layers.push_back(std::move(layer));
  }
  bool is_image() const { return height_ > 0; }
  std::int64_t places() const { return is_image() ? height_ * columns_ : 1; }
  void max_pool() {
    if (smallest() < 2) return;
    simple(Op::max_pool);
    height_ /= 2;
    columns_ /= 2;
  }
  void average() {
    simple(Op::average);
    height_ = columns_ = 0;
  }
  void flatten() {
    const auto in = width_;
    width_ *= height_ * columns_;
    simple(Op::flatten);
    plan_.layers.back().in = in;
    height_ = columns_ = 0;
  }
  std::int64_t smallest() const { return std::min(height_, columns_); }

  // Narrow, then wide pixel by pixel, then each channel by itself, then narrow again, and past all of it the input.
  void inverted_residual(std::int64_t expand, std::int64_t out, std::int64_t stride, std::int64_t kernel, Op bend) {
    const bool past = stride == 1 && out == width_;
    if (past) simple(Op::keep);
    const auto wide = width_ * expand;
    if (expand > 1) conv(wide, 1, 1, 1, bend);
    conv(wide, kernel, stride, wide, bend);
    conv(out, 1, 1, 1, std::nullopt);
    if (past) simple(Op::add);
  }

 private:
  void widen() { plan_.widest = std::max(plan_.widest, width_ * height_ * columns_); }
  std::size_t add(Weight weight) {
    plan_.weights.push_back(std::move(weight));
    return plan_.weights.size() - 1;
  }

  Plan& plan_;
  std::int64_t width_ = 0;                 // numbers of a row, or channels
  std::int64_t height_ = 0, columns_ = 0;  // of an image
  int linears_ = 0, norms_ = 0, convs_ = 0;
};

// A number of channels by the width factor, of the kind that processors like.
std::int64_t channels(double of, double width) {
  return std::max<std::int64_t>(8, static_cast<std::int64_t>(std::llround(of * width / 8)) * 8);
}

void plan_cnn(Planner& planner, double width) {
  // Halved at once: at full size a layer is mostly memory that is moved, and little is learned there.
  planner.conv(channels(32, width), 3, 2, 1, Op::relu);
  planner.conv(channels(64, width), 3, 1, 1, Op::relu);
  planner.max_pool();
  planner.conv(channels(128, width), 3, 1, 1, Op::relu);
  planner.simple(Op::keep);
  planner.conv(channels(128, width), 3, 1, 1, Op::relu);
  planner.simple(Op::add);
  while (planner.smallest() >= 14) {  // larger images are looked at from further away
    planner.max_pool();
    planner.conv(channels(128, width), 3, 1, 1, Op::relu);
  }
}

// Stages of inverted residual blocks: MobileNetV2's, and those of EfficientNet-B0 without squeeze and excitation. What
// halves an image does so only while it has pixels to spare: small ones keep theirs.
struct Stage {
  std::int64_t expand;
  double out;
  int blocks;
  std::int64_t stride, kernel;
};
constexpr Stage kMobilenet[] = {{1, 16, 1, 1, 3}, {6, 24, 2, 2, 3},  {6, 32, 3, 2, 3}, {6, 64, 4, 2, 3},
                                {6, 96, 3, 1, 3}, {6, 160, 3, 2, 3}, {6, 320, 1, 1, 3}};
constexpr Stage kEfficientnet[] = {{1, 16, 1, 1, 3},  {6, 24, 2, 2, 3},  {6, 40, 2, 2, 5}, {6, 80, 3, 2, 3},
                                   {6, 112, 3, 1, 5}, {6, 192, 4, 2, 5}, {6, 320, 1, 1, 3}};

void plan_inverted(Planner& planner, std::span<const Stage> stages, double width, Op bend) {
  constexpr std::int64_t kLarge = 64, kSmall = 7;
  planner.conv(channels(32, width), 3, planner.smallest() >= kLarge ? 2 : 1, 1, bend);
  for (const auto& stage : stages)
    for (int block = 0; block < stage.blocks; ++block) {
      const bool halves = block == 0 && stage.stride == 2 && planner.smallest() > kSmall;
      planner.inverted_residual(stage.expand, channels(stage.out, width), halves ? 2 : 1, stage.kernel, bend);
    }
  planner.conv(channels(1280, width), 1, 1, 1, bend);
}

void plan_image(Planner& planner, const recipe::Network& network, const std::string& kind) {
  if (kind == "cnn")
    plan_cnn(planner, network.width);
  else if (kind == "mobilenet")
    plan_inverted(planner, kMobilenet, network.width, Op::relu6);
  else
    plan_inverted(planner, kEfficientnet, network.width, Op::silu);
  planner.average();
  planner.simple(Op::dropout, network.dropout);
}

// What a recipe says, layer by layer. What cannot follow on what is refused with its place.
class OwnLayers {
 public:
  OwnLayers(Planner& planner, const std::vector<recipe::Layer>& layers) : planner_(planner), layers_(layers) {}

  void plan() {
    for (; at_ < layers_.size(); ++at_) add(layers_[at_]);
    if (planner_.is_image()) planner_.average();  // one number a channel is what the last layer takes
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    const auto field = fmt::format("network.layers[{}]", at_);
    throw Error(Code::invalid, fmt::format("{}: {}", field, what), {{field, what}});
  }
  void need_image(const recipe::Layer& layer) const {
    if (!planner_.is_image()) refuse(fmt::format("{} is for images, and there is none here", layer.op));
  }
  void need_row(const recipe::Layer& layer) const {
    if (planner_.is_image()) refuse(fmt::format("an image comes in here: flatten or average it before {}", layer.op));
  }

  void add(const recipe::Layer& layer) {
    if (layer.op == "linear") {
      need_row(layer);
      planner_.linear(layer.size);
    } else if (layer.op == "norm") {
      need_row(layer);
      planner_.norm();
    } else if (layer.op == "conv") {
      need_image(layer);
      if (planner_.width() % layer.groups != 0)
        refuse(fmt::format("{} channels come in, which are not {} equal groups", planner_.width(), layer.groups));
      planner_.conv(layer.size, layer.kernel, layer.stride, layer.groups, std::nullopt);
    } else if (layer.op == "max_pool") {
      need_image(layer);
      if (planner_.smallest() < 2) refuse("the image is one pixel wide or high by now");
      planner_.max_pool();
    } else if (layer.op == "average" || layer.op == "flatten") {
      need_image(layer);
      layer.op == "average" ? planner_.average() : planner_.flatten();
    } else if (layer.op == "dropout") {
      planner_.simple(Op::dropout, layer.share);
    } else if (layer.op == "keep") {
      kept_.emplace_back(planner_.width(), planner_.places());
      planner_.simple(Op::keep);
    } else if (layer.op == "add") {
      const std::pair now(planner_.width(), planner_.places());
      if (kept_.empty()) refuse("nothing was put aside by keep before it");
      if (kept_.back() != now)
        refuse(fmt::format("{} numbers come in, and {} were put aside", now.first * now.second,
                           kept_.back().first * kept_.back().second));
      kept_.pop_back();
      planner_.simple(Op::add);
    } else {
      planner_.simple(layer.op == "relu6" ? Op::relu6 : layer.op == "silu" ? Op::silu : Op::relu);
    }
  }

  Planner& planner_;
  const std::vector<recipe::Layer>& layers_;
  std::size_t at_ = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> kept_;  // channels, pixels
};

bool is_for_images(const std::string& kind) { return kind == "cnn" || kind == "mobilenet" || kind == "efficientnet"; }

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
                  double label_mean, double label_deviation, const std::optional<loader::Image>& image) {
  const auto kind = network.kind != "auto" ? network.kind : image ? "cnn" : "mlp";
  if (is_for_images(kind) && !image)
    throw Error(Code::invalid, fmt::format("network.kind: {} takes images, and these are tables", kind));
  Plan plan;
  plan.outputs = static_cast<std::int64_t>(outputs);
  plan.image = image;
  Planner planner(plan);
  if (image) {
    planner.image(*image);
    if (!is_for_images(kind) && network.layers.empty()) planner.flatten();
  } else {
    planner.join(transform);
  }
  if (!network.layers.empty()) {
    OwnLayers(planner, network.layers).plan();
  } else if (is_for_images(kind)) {
    plan_image(planner, network, kind);
  } else if (kind == "mlp") {
    for (const auto size : network.hidden) {
      planner.linear(size);
      planner.simple(Op::relu);
      planner.simple(Op::dropout, network.dropout);
    }
  } else if (kind == "resnet") {
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
        case Op::image:
          at = graph_.add_node("Transpose", {inputs.floats}, {{"perm", std::vector<std::int64_t>{0, 3, 1, 2}}});
          break;
        case Op::conv:
          at = conv(layer, at);
          break;
        case Op::batch_norm:
          at = graph_.add_node("BatchNormalization",
                               {at, constant(layer.weights[0]), constant(layer.weights[1]), constant(layer.weights[2]),
                                constant(layer.weights[3])},
                               {{"epsilon", static_cast<float>(kBatchNormEpsilon)}});
          break;
        case Op::relu6:
          at = graph_.add_node("Clip", {at, number(0), number(6)});
          break;
        case Op::silu:
          at = graph_.add_node("Mul", {at, graph_.add_node("Sigmoid", {at})});
          break;
        case Op::max_pool:
          at = graph_.add_node("MaxPool", {at}, {{"kernel_shape", two(2)}, {"strides", two(2)}});
          break;
        case Op::average:
          at = graph_.add_node("Flatten", {graph_.add_node("GlobalAveragePool", {at})}, {{"axis", std::int64_t{1}}});
          break;
        case Op::flatten:
          at = graph_.add_node("Flatten", {at}, {{"axis", std::int64_t{1}}});
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
  static std::vector<std::int64_t> two(std::int64_t value) { return {value, value}; }
  std::string conv(const Layer& layer, const std::string& at) {
    return graph_.add_node("Conv", {at, constant(layer.weights[0])},
                           {{"kernel_shape", two(layer.kernel)},
                            {"strides", two(layer.stride)},
                            {"pads", std::vector<std::int64_t>(4, layer.kernel / 2)},
                            {"group", layer.groups}});
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
