// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/testing.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "compute/graph/graph.h"

namespace falaj::infer {

using graph::Element;
using graph::Graph;
using graph::Tensor;

namespace {

std::filesystem::path place_of_cases() {
  const char* asked = std::getenv("FALAJ_ONNX_CASES");
  return asked ? asked : "/usr/share/libonnx-testdata/data";
}

Bytes read_whole(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return to_bytes(text);
}

float half_to_float(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const auto fraction = static_cast<float>(half & 1023);
  const float size = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                     : exponent == 0 ? std::ldexp(fraction, -24)
                                     : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -size : size;
}

template <class T>
double number_at(BytesView bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at * sizeof(T), sizeof(T));
  return static_cast<double>(value);
}

double number_of(Element element, BytesView bytes, std::size_t at) {
  if (element == Element::float32) return number_at<float>(bytes, at);
  if (element == Element::float64) return number_at<double>(bytes, at);
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + at * sizeof bits, sizeof bits);
  if (element == Element::float16) return half_to_float(bits);
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

}  // namespace

std::vector<std::string> onnx_cases() {
  std::vector<std::string> out;
  std::error_code none;
  for (std::filesystem::recursive_directory_iterator at(place_of_cases(), none), end; at != end; at.increment(none))
    if (at->path().filename() == "model.onnx")
      out.push_back(at->path().parent_path().lexically_relative(place_of_cases()).string());
  std::sort(out.begin(), out.end());
  return out;
}

Bytes onnx_model(const std::string& name) { return read_whole(place_of_cases() / name / "model.onnx"); }

std::vector<OnnxSet> onnx_sets(const std::string& name) {
  std::vector<OnnxSet> out;
  for (int set = 0;; ++set) {
    const auto place = place_of_cases() / name / ("test_data_set_" + std::to_string(set));
    if (!std::filesystem::exists(place)) return out;
    auto& made = out.emplace_back();
    for (auto* side : {&made.inputs, &made.outputs}) {
      for (int k = 0;; ++k) {
        const auto file = place / ((side == &made.inputs ? "input_" : "output_") + std::to_string(k) + ".pb");
        if (!std::filesystem::exists(file)) break;
        side->push_back(graph::parse_tensor(read_whole(file)));
      }
    }
  }
}

bool near_enough(const TensorView& made, const Tensor& wanted) {
  // Older files have no bfloat16.
  const bool coarse = made.element == Element::bfloat16 && wanted.element == Element::uint16;
  if ((made.element != wanted.element && !coarse) || !std::ranges::equal(made.shape.sizes(), wanted.sizes))
    return false;
  switch (made.element) {
    case Element::text:
      return std::ranges::equal(made.texts, wanted.texts);
    case Element::float32:
    case Element::float64:
    case Element::float16:
    case Element::bfloat16:
      break;
    default:
      return std::ranges::equal(made.bytes, wanted.bytes);
  }
  double largest = 1;
  for (std::size_t at = 0; at < wanted.count(); ++at)
    if (const double y = std::fabs(number_of(made.element, wanted.bytes, at)); std::isfinite(y))
      largest = std::max(largest, y);
  for (std::size_t at = 0; at < wanted.count(); ++at) {
    const double x = number_of(made.element, made.bytes, at), y = number_of(made.element, wanted.bytes, at);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (x != y && !(std::fabs(x - y) <= 1e-5 * largest + 1e-3 * std::fabs(y))) return false;
  }
  return true;
}

const Runtime& runtime() {
  static const Runtime loaded = Runtime::load(Runtime::path_beside_program());
  return loaded;
}

Bytes affine_model() {
  Graph graph;
  const auto x = graph.add_input("x", Element::float32, {std::string(graph::kRows), std::int64_t{2}});
  const auto two = graph.add_constant(Tensor::of<float>({1}, std::vector<float>{2}));
  const auto one = graph.add_constant(Tensor::of<float>({1}, std::vector<float>{1}));
  const auto y = graph.add_node("Add", {graph.add_node("Mul", {x, two}), one});
  graph.add_output("y", y, Element::float32, {std::string(graph::kRows), std::int64_t{2}});
  return graph::serialise(graph);
}

std::vector<float> random_numbers(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& v : out) v = normal(random);
  return out;
}

Bytes network_model(std::size_t hidden, std::uint64_t seed) {
  Graph graph;
  auto at = graph.add_input("x", Element::float32, {std::string(graph::kRows), std::int64_t{64}});
  const std::size_t widths[] = {64, hidden, hidden, 10};
  for (std::size_t layer = 0; layer < 3; ++layer) {
    auto weights = random_numbers(widths[layer] * widths[layer + 1], seed + layer);
    for (float& w : weights) w *= std::sqrt(2.0F / static_cast<float>(widths[layer]));
    const auto in = static_cast<std::int64_t>(widths[layer]), out = static_cast<std::int64_t>(widths[layer + 1]);
    const auto matrix = graph.add_constant(Tensor::of<float>({in, out}, weights));
    const auto bias =
        graph.add_constant(Tensor::of<float>({out}, random_numbers(widths[layer + 1], seed + 10 + layer)));
    at = graph.add_node("Gemm", {at, matrix, bias});
    if (layer < 2) at = graph.add_node("Relu", {at});
  }
  graph.add_output("y", at, Element::float32, {std::string(graph::kRows), std::int64_t{10}});
  return graph::serialise(graph);
}

graph::TreeEnsemble random_trees(std::size_t trees, std::size_t depth, std::size_t features, std::size_t outputs,
                                 std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> threshold(-1, 1);
  graph::TreeEnsemble out;
  out.features = features;
  out.outputs = outputs;
  out.base.assign(outputs, 0.5F);
  out.link = outputs > 1 ? graph::Link::softmax : graph::Link::logistic;
  const std::size_t inner = (std::size_t{1} << depth) - 1;
  for (std::size_t t = 0; t < trees; ++t) {
    auto& tree = out.trees.emplace_back();
    tree.output = static_cast<std::int32_t>(t % outputs);
    for (std::size_t at = 0; at < 2 * inner + 1; ++at) {
      auto& node = tree.nodes.emplace_back();
      node.value = threshold(random);
      if (at >= inner) {
        node.value *= 0.1F;
        continue;
      }
      node.feature = static_cast<std::int32_t>(random() % features);
      node.left = static_cast<std::int32_t>(2 * at + 1), node.right = static_cast<std::int32_t>(2 * at + 2);
      node.left_if_missing = random() % 2 == 0;
    }
  }
  return out;
}

Bytes trees_model(const graph::TreeEnsemble& trees) {
  Graph graph;
  const auto width = static_cast<std::int64_t>(trees.features), outputs = static_cast<std::int64_t>(trees.outputs);
  const auto x = graph.add_input("x", Element::float32, {std::string(graph::kRows), width});
  const auto emitted = trees.emit(graph, x);
  graph.add_output("margins", emitted.margins, Element::float32, {std::string(graph::kRows), outputs});
  graph.add_output("predictions", emitted.predictions, Element::float32, {std::string(graph::kRows), outputs});
  return graph::serialise(graph);
}

}  // namespace falaj::infer
