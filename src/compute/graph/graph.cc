// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/graph.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "compute/graph/proto.h"
#include "compute/graph/shown.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::graph {
namespace {

using Type = onnx::TensorProto;
constexpr std::array<Type::DataType, std::size(kElements)> kTypes = {
    Type::FLOAT, Type::DOUBLE, Type::FLOAT16, Type::BFLOAT16, Type::INT8,   Type::INT16, Type::INT32,
    Type::INT64, Type::UINT8,  Type::UINT16,  Type::UINT32,   Type::UINT64, Type::BOOL,  Type::STRING};

// ---- Writing.
void write_tensor(const Tensor& tensor, onnx::TensorProto& out) {
  out.set_data_type(static_cast<std::int32_t>(onnx_type(tensor.element)));
  for (const auto size : tensor.sizes) out.add_dims(size);
  if (tensor.element == Element::text)
    for (const auto& text : tensor.texts) out.add_string_data(text);
  else
    out.set_raw_data(tensor.bytes.data(), tensor.bytes.size());
}

void write_port(const Port& port, onnx::ValueInfoProto& out) {
  out.set_name(port.name);
  auto& type = *out.mutable_type()->mutable_tensor_type();
  type.set_elem_type(static_cast<std::int32_t>(onnx_type(port.element)));
  auto& shape = *type.mutable_shape();
  for (const auto& dimension : port.shape) {
    auto& dim = *shape.add_dim();
    if (const auto* size = std::get_if<std::int64_t>(&dimension))
      dim.set_dim_value(*size);
    else if (const auto& symbol = std::get<std::string>(dimension); !symbol.empty())
      dim.set_dim_param(symbol);
  }
}

struct WriteAttribute {
  onnx::AttributeProto& out;

  void operator()(std::int64_t v) const { out.set_type(onnx::AttributeProto::INT), out.set_i(v); }
  void operator()(float v) const { out.set_type(onnx::AttributeProto::FLOAT), out.set_f(v); }
  void operator()(const std::string& v) const { out.set_type(onnx::AttributeProto::STRING), out.set_s(v); }
  void operator()(const std::vector<std::int64_t>& v) const {
    out.set_type(onnx::AttributeProto::INTS);
    out.mutable_ints()->Add(v.begin(), v.end());
  }
  void operator()(const std::vector<float>& v) const {
    out.set_type(onnx::AttributeProto::FLOATS);
    out.mutable_floats()->Add(v.begin(), v.end());
  }
  void operator()(const std::vector<std::string>& v) const {
    out.set_type(onnx::AttributeProto::STRINGS);
    for (const auto& text : v) out.add_strings(text);
  }
  void operator()(const Tensor& v) const {
    out.set_type(onnx::AttributeProto::TENSOR);
    write_tensor(v, *out.mutable_t());
  }
  void operator()(const Opaque& v) const {
    if (!out.ParseFromArray(v.bytes.data(), static_cast<int>(v.bytes.size())))
      throw Error(Code::invalid, "an attribute that was kept as bytes is no attribute");
  }
};

void write_node(const Node& node, onnx::NodeProto& out) {
  out.set_op_type(node.op);
  out.set_domain(node.domain);
  out.set_name(node.name);
  for (const auto& input : node.inputs) out.add_input(input);
  for (const auto& output : node.outputs) out.add_output(output);
  for (const auto& [name, attribute] : node.attributes) {
    auto& to = *out.add_attribute();
    std::visit(WriteAttribute{to}, attribute);
    to.set_name(name);
  }
}

// ---- Reading. Everything was checked before.
template <class T, class From>
void append_as(const From& from, Bytes& out) {
  for (const auto value : from) {
    const auto narrow = static_cast<T>(value);
    const auto* bytes = reinterpret_cast<const std::byte*>(&narrow);
    out.insert(out.end(), bytes, bytes + sizeof narrow);
  }
}

Tensor read_tensor(const onnx::TensorProto& from) {
  Tensor out;
  out.element = *element_of_type(from.data_type());
  out.sizes.assign(from.dims().begin(), from.dims().end());
  if (out.element == Element::text) {
    out.texts.assign(from.string_data().begin(), from.string_data().end());
    return out;
  }
  if (from.has_raw_data()) {
    out.bytes = to_bytes(from.raw_data());
    return out;
  }
  switch (out.element) {
    case Element::float32:
      append_as<float>(from.float_data(), out.bytes);
      break;
    case Element::float64:
      append_as<double>(from.double_data(), out.bytes);
      break;
    case Element::int64:
      append_as<std::int64_t>(from.int64_data(), out.bytes);
      break;
    case Element::uint64:
      append_as<std::uint64_t>(from.uint64_data(), out.bytes);
      break;
    case Element::uint32:
      append_as<std::uint32_t>(from.uint64_data(), out.bytes);
      break;
    case Element::int32:
      append_as<std::int32_t>(from.int32_data(), out.bytes);
      break;
    case Element::int16:
    case Element::uint16:
    case Element::float16:
    case Element::bfloat16:
      append_as<std::uint16_t>(from.int32_data(), out.bytes);
      break;
    default:
      append_as<std::uint8_t>(from.int32_data(), out.bytes);
  }
  return out;
}

Port read_port(const onnx::ValueInfoProto& from) {
  if (!from.type().has_tensor_type())
    throw Error(Code::invalid, fmt::format("'{}' is not a tensor", shown(from.name())));
  Port out{from.name(), *element_of_type(from.type().tensor_type().elem_type()), {}};
  for (const auto& dim : from.type().tensor_type().shape().dim()) {
    if (dim.has_dim_value())
      out.shape.emplace_back(dim.dim_value());
    else
      out.shape.emplace_back(dim.dim_param());
  }
  return out;
}

Attribute read_attribute(const onnx::AttributeProto& from) {
  switch (from.type()) {
    case onnx::AttributeProto::INT:
      return from.i();
    case onnx::AttributeProto::FLOAT:
      return from.f();
    case onnx::AttributeProto::STRING:
      return from.s();
    case onnx::AttributeProto::INTS:
      return std::vector<std::int64_t>(from.ints().begin(), from.ints().end());
    case onnx::AttributeProto::FLOATS:
      return std::vector<float>(from.floats().begin(), from.floats().end());
    case onnx::AttributeProto::STRINGS:
      return std::vector<std::string>(from.strings().begin(), from.strings().end());
    case onnx::AttributeProto::TENSOR:
      if (from.has_t()) return read_tensor(from.t());
      break;
    default:
      break;
  }
  return Opaque{to_bytes(from.SerializeAsString())};
}

Node read_node(const onnx::NodeProto& from) {
  Node out{from.op_type(),
           from.domain(),
           from.name(),
           {from.input().begin(), from.input().end()},
           {from.output().begin(), from.output().end()},
           {}};
  for (const auto& attribute : from.attribute()) out.attributes.emplace(attribute.name(), read_attribute(attribute));
  return out;
}

// The number behind the % of a name made here, or nothing.
std::optional<std::size_t> made_number(std::string_view name) {
  if (name.empty() || name[0] != '%') return {};
  const auto number = parse_int(name.substr(1));
  if (!number || *number < 0 || *number > (std::int64_t{1} << 60)) return {};
  return static_cast<std::size_t>(*number);
}

}  // namespace

std::int64_t onnx_type(Element element) { return kTypes[static_cast<std::size_t>(element)]; }

std::optional<Element> element_of_type(std::int64_t onnx_type) {
  const auto* at = std::find(kTypes.begin(), kTypes.end(), onnx_type);
  if (at == kTypes.end()) return {};
  return kElements[at - kTypes.begin()];
}

// ---- Building.
std::string Graph::fresh() { return fmt::format("%{}", next++); }

std::string Graph::add_input(std::string input, Element element, std::vector<Dimension> shape) {
  if (input.empty() || input[0] == '%')
    throw Error(Code::invalid, fmt::format("an input's name is not empty and does not begin with %: '{}'", input));
  for (const auto& other : inputs)
    if (other.name == input) throw Error(Code::exists, fmt::format("the graph has an input of that name: '{}'", input));
  inputs.push_back({input, element, std::move(shape)});
  return input;
}

std::string Graph::add_constant(Tensor tensor) {
  initialisers.push_back({fresh(), std::move(tensor)});
  return initialisers.back().name;
}

std::string Graph::add_node(std::string op, std::vector<std::string> from, Attributes attributes,
                            std::string_view domain) {
  return add_node_with(1, std::move(op), std::move(from), std::move(attributes), domain)[0];
}

std::vector<std::string> Graph::add_node_with(std::size_t count, std::string op, std::vector<std::string> from,
                                              Attributes attributes, std::string_view domain) {
  std::vector<std::string> made;
  for (std::size_t at = 0; at < count; ++at) made.push_back(fresh());
  std::string called = fmt::format("{} {}", op, nodes.size());
  nodes.push_back(
      {std::move(op), std::string(domain), std::move(called), std::move(from), made, std::move(attributes)});
  return made;
}

void Graph::add_output(std::string output, const std::string& value, Element element, std::vector<Dimension> shape) {
  for (const auto& other : inputs)
    if (other.name == output) throw Error(Code::exists, fmt::format("an input is called like that: '{}'", output));
  for (const auto& other : outputs)
    if (other.name == output)
      throw Error(Code::exists, fmt::format("the graph has an output of that name: '{}'", output));
  nodes.push_back({"Identity", "", fmt::format("Identity {}", nodes.size()), {value}, {output}, {}});
  outputs.push_back({std::move(output), element, std::move(shape)});
}

// ---- Bytes.
Bytes serialise(const Graph& graph, const Limits& limits) {
  onnx::ModelProto model;
  model.set_ir_version(graph.ir_version);
  model.set_producer_name("falaj");
  for (const auto& [domain, version] : graph.opsets) {
    auto& opset = *model.add_opset_import();
    opset.set_domain(domain);
    opset.set_version(version);
  }
  for (const auto& [key, value] : graph.metadata) {
    auto& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  auto& out = *model.mutable_graph();
  out.set_name(graph.name);
  for (const auto& input : graph.inputs) write_port(input, *out.add_input());
  for (const auto& output : graph.outputs) write_port(output, *out.add_output());
  for (const auto& node : graph.nodes) write_node(node, *out.add_node());
  for (const auto& initialiser : graph.initialisers) {
    auto& tensor = *out.add_initializer();
    write_tensor(initialiser.tensor, tensor);
    tensor.set_name(initialiser.name);
  }
  const std::size_t size = model.ByteSizeLong();
  if (size > limits.bytes || size > std::numeric_limits<int>::max())
    throw Error(Code::invalid, fmt::format("the model would have {} bytes, more than {}", size, limits.bytes));
  Bytes bytes(size);
  CHECK(model.SerializeToArray(bytes.data(), static_cast<int>(size)), "a protobuf of known size is written");
  check(bytes, limits);
  return bytes;
}

Graph parse(BytesView bytes, const Limits& limits) {
  Summary summary;
  const onnx::ModelProto model = checked_model(bytes, limits, summary);
  Graph out;
  const auto& from = model.graph();
  out.name = from.name();
  out.ir_version = model.ir_version();
  out.opsets = std::move(summary.opsets);
  for (const auto& entry : model.metadata_props()) out.metadata[entry.key()] = entry.value();
  for (const auto& input : from.input()) out.inputs.push_back(read_port(input));
  for (const auto& output : from.output()) out.outputs.push_back(read_port(output));
  for (const auto& node : from.node()) {
    out.nodes.push_back(read_node(node));
    for (const auto& made : out.nodes.back().outputs)
      if (const auto number = made_number(made)) out.next = std::max(out.next, *number + 1);
  }
  for (const auto& tensor : from.initializer()) {
    out.initialisers.push_back({tensor.name(), read_tensor(tensor)});
    if (const auto number = made_number(tensor.name())) out.next = std::max(out.next, *number + 1);
  }
  return out;
}

Initialiser parse_tensor(BytesView tensor, const Limits& limits) {
  const auto from = checked_tensor(tensor, limits);
  return {from.name(), read_tensor(from)};
}

}  // namespace falaj::graph
