// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compute/graph/check.h"
#include "compute/graph/tensor.h"
#include "foundation/base/bytes.h"

// ONNX models as values: built, written, read and changed without a protobuf in sight.
namespace falaj::graph {

// What we write: the newest that ONNX Runtime 1.12 and later all read.
inline constexpr std::int64_t kIrVersion = 8;
inline constexpr std::int64_t kOpset = 17;
inline constexpr std::int64_t kMlOpset = 3;
inline constexpr std::string_view kMl = "ai.onnx.ml";

// The number ONNX has for it, as Cast takes it.
std::int64_t onnx_type(Element element);

// A size, or a name for one that each call decides ("rows"), or an empty name for one of which nothing is known.
using Dimension = std::variant<std::int64_t, std::string>;
inline constexpr std::string_view kRows = "rows";

struct Port {  // an input or an output
  std::string name;
  Element element = Element::float32;
  std::vector<Dimension> shape;
  friend bool operator==(const Port&, const Port&) = default;
};

// What is not one of the others (a graph inside a node, sparse tensors) is kept as the bytes it was read from.
struct Opaque {
  Bytes bytes;
  friend bool operator==(const Opaque&, const Opaque&) = default;
};
using Attribute = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>,
                               std::vector<std::string>, Tensor, Opaque>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

struct Node {
  std::string op;
  std::string domain;  // empty is ONNX's own, or kMl
  std::string name;
  std::vector<std::string> inputs;  // an empty name is an input left out
  std::vector<std::string> outputs;
  Attributes attributes;
  friend bool operator==(const Node&, const Node&) = default;
};

struct Initialiser {  // a constant of the graph
  std::string name;
  Tensor tensor;
  friend bool operator==(const Initialiser&, const Initialiser&) = default;
};

struct Graph {
  std::string name = "model";
  std::vector<Port> inputs, outputs;
  std::vector<Node> nodes;  // in any order that has no cycle; what is built here is in the order of running
  std::vector<Initialiser> initialisers;
  std::map<std::string, std::string> metadata;
  std::int64_t ir_version = kIrVersion;
  std::map<std::string, std::int64_t> opsets = {{"", kOpset}, {std::string(kMl), kMlOpset}};
  std::size_t next = 0;  // number of the next name made here
  friend bool operator==(const Graph&, const Graph&) = default;

  // ---- Building. Each returns the name of what it adds. Names made here are "%" and a number; names of inputs do not
  // begin like that (invalid) and differ from each other (exists).
  std::string add_input(std::string name, Element element, std::vector<Dimension> shape);
  std::string add_constant(Tensor tensor);
  std::string add_node(std::string op, std::vector<std::string> inputs, Attributes attributes = {},
                       std::string_view domain = "");
  std::vector<std::string> add_node_with(std::size_t outputs, std::string op, std::vector<std::string> inputs,
                                         Attributes attributes = {}, std::string_view domain = "");
  // Makes `value` an output called `name`.
  void add_output(std::string name, const std::string& value, Element element, std::vector<Dimension> shape);

 private:
  std::string fresh();
};

// The bytes of the model. Throws invalid when they would be refused by check().
Bytes serialise(const Graph& graph, const Limits& limits = {});
// Throws invalid with every fault that check() finds. serialise(parse(x)) is a model equal to x in everything but names
// of its producer and notes for people.
Graph parse(BytesView model, const Limits& limits = {});
// Without ZipMap, by which exporters of scikit-learn turn scores into a list of dictionaries: the output of that name
// becomes the tensor of the scores. Nothing when the model has none of them. Throws invalid as parse() does.
std::optional<Bytes> without_zip_maps(BytesView model, const Limits& limits = {});
// A tensor by itself and its name, as files of test data hold them. Throws invalid.
Initialiser parse_tensor(BytesView tensor, const Limits& limits = {});

}  // namespace falaj::graph
