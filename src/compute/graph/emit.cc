// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/emit.h"

namespace falaj::graph {

Emitter::Value Emitter::input(std::size_t column) {
  auto& name = inputs_[column];
  if (name.empty())
    name = graph_.add_input(columns_[column].name, columns_[column].element(), {std::string(kRows), std::int64_t{1}});
  return name;
}

Emitter::Value Emitter::cast(const Value& x, Element to) { return node("Cast", {x}, {{"to", onnx_type(to)}}); }

Emitter::Value Emitter::concat(const std::vector<Value>& matrices) {
  return matrices.size() == 1 ? matrices[0] : node("Concat", matrices, {{"axis", std::int64_t{1}}});
}

Emitter::Value Emitter::pick(const Value& x, const Wholes& columns) {
  return node("Gather", {x, constant(columns)}, {{"axis", std::int64_t{1}}});
}

Emitter::Value Emitter::select(const std::vector<std::uint8_t>& when, const Value& x, const Value& y) {
  return node("Where", {graph_.add_constant(Tensor::of_boolean({static_cast<std::int64_t>(when.size())}, when)), x, y});
}

// A product with a matrix of zeros and ones: one node for all columns. Counts stay below 2^24, which a float holds.
Emitter::Value Emitter::count(const Value& x, const std::vector<std::size_t>& owner, std::size_t owners) {
  std::vector<float> belongs(owner.size() * owners);
  for (std::size_t at = 0; at < owner.size(); ++at) belongs[at * owners + owner[at]] = 1;
  const auto sizes = Sizes{static_cast<std::int64_t>(owner.size()), static_cast<std::int64_t>(owners)};
  const auto product = node("MatMul", {cast(x, Element::float32), graph_.add_constant(Tensor::of(sizes, belongs))});
  return cast(product, Element::int64);
}

Emitter::Value Emitter::look_up(const Value& x, std::size_t, const FittedCategory& category) {
  Attributes attributes = {{"values_int64s", category.ids}, {"default_int64", std::int64_t{0}}};
  if (!category.texts.empty())
    attributes["keys_strings"] = category.texts;
  else if (!category.whole.empty())
    attributes["keys_int64s"] = category.whole;
  else  // nothing is known: 0 for everything, in a way that needs no table
    return node("ConstantOfShape", {node("Shape", {x})},
                {{"value", Tensor::of<std::int64_t>({1}, std::vector<std::int64_t>{0})}});
  return graph_.add_node("LabelEncoder", {x}, std::move(attributes), kMl);
}

}  // namespace falaj::graph
