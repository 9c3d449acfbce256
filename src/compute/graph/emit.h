// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to graph: the machine of lowering.h that writes ONNX nodes.

#include <cstdint>
#include <string>
#include <vector>

#include "compute/graph/fitted.h"
#include "compute/graph/graph.h"
#include "compute/graph/lowering.h"

namespace falaj::graph {

class Emitter {
 public:
  using Value = std::string;  // the name of a matrix of the graph

  Emitter(Graph& graph, const std::vector<Column>& columns)
      : graph_(graph), columns_(columns), inputs_(columns.size()) {}

  Value input(std::size_t column);
  Value cast(const Value& x, Element to);
  Value concat(const std::vector<Value>& matrices);
  Value pick(const Value& x, const Wholes& columns);

  Value add(const Value& x, const Reals& row) { return node("Add", {x, constant(row)}); }
  Value add(const Value& x, const Wholes& row) { return node("Add", {x, constant(row)}); }
  Value add(const Value& x, const Value& y) { return node("Add", {x, y}); }
  Value subtract(const Value& x, const Reals& row) { return node("Sub", {x, constant(row)}); }
  Value subtract(const Value& x, const Value& y) { return node("Sub", {x, y}); }
  Value multiply(const Value& x, const Reals& row) { return node("Mul", {x, constant(row)}); }
  Value multiply(const Value& x, const Wholes& row) { return node("Mul", {x, constant(row)}); }
  Value multiply(const Value& x, const Value& y) { return node("Mul", {x, y}); }
  Value divide(const Value& x, const Reals& row) { return node("Div", {x, constant(row)}); }
  Value modulo(const Value& x, const Wholes& row) { return node("Mod", {x, constant(row)}); }
  Value floor(const Value& x) { return node("Floor", {x}); }
  Value log(const Value& x) { return node("Log", {x}); }
  Value abs(const Value& x) { return node("Abs", {x}); }
  Value sign(const Value& x) { return node("Sign", {x}); }
  Value sin(const Value& x) { return node("Sin", {x}); }
  Value is_nan(const Value& x) { return node("IsNaN", {x}); }
  Value less(const Value& x, const Reals& row) { return node("Less", {x, constant(row)}); }
  Value greater(const Value& x, const Reals& row) { return node("Greater", {x, constant(row)}); }
  Value at_least(const Value& x, const Reals& row) { return node("GreaterOrEqual", {x, constant(row)}); }
  Value equal(const Value& x, const Wholes& row) { return node("Equal", {x, constant(row)}); }
  Value choose(const Value& when, const Reals& row, const Value& x) { return node("Where", {when, constant(row), x}); }
  Value select(const std::vector<std::uint8_t>& when, const Value& x, const Value& y);
  Value count(const Value& x, const std::vector<std::size_t>& owner, std::size_t owners);
  Value look_up(const Value& x, std::size_t feature, const FittedCategory& category);

 private:
  Value node(std::string op, std::vector<std::string> inputs, Attributes attributes = {}) {
    return graph_.add_node(std::move(op), std::move(inputs), std::move(attributes));
  }
  template <class T>
  Value constant(const std::vector<T>& row) {
    return graph_.add_constant(Tensor::of({static_cast<std::int64_t>(row.size())}, row));
  }

  Graph& graph_;
  const std::vector<Column>& columns_;
  std::vector<Value> inputs_;  // of columns; empty until asked for
};

}  // namespace falaj::graph
