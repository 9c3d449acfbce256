// SPDX-License-Identifier: Apache-2.0
// Counts what a model holds by walking its protobuf wire format, before any memory is given to it: two bytes of an
// empty message become two hundred in memory, so a limit on bytes alone limits little.
#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "compute/graph/proto.h"
#include "foundation/base/error.h"

namespace falaj::graph {
namespace {

enum class Message : std::uint8_t {
  model,
  graph,
  node,
  attribute,
  tensor,
  sparse,
  value_info,
  type,
  type_tensor,
  type_element,
  type_map,
  shape,
  annotation,
  leaf
};

// What is counted against which limit.
enum class Counted : std::uint8_t { nothing, nodes, tensors, attributes, values, texts, numbers, refused };

// A field that matters: a message to walk into, or something to count.
struct WireField {
  Message in;
  std::uint32_t number;
  Message holds;  // leaf: not walked into
  Counted counted;
};
constexpr WireField kWireFields[] = {
    {Message::model, 7, Message::graph, Counted::nothing},
    {Message::model, 8, Message::leaf, Counted::values},    // opset_import
    {Message::model, 14, Message::leaf, Counted::values},   // metadata_props
    {Message::model, 20, Message::leaf, Counted::refused},  // training_info
    {Message::model, 25, Message::leaf, Counted::refused},  // functions
    {Message::graph, 1, Message::node, Counted::nodes},
    {Message::graph, 5, Message::tensor, Counted::tensors},
    {Message::graph, 15, Message::sparse, Counted::tensors},
    {Message::graph, 11, Message::value_info, Counted::values},
    {Message::graph, 12, Message::value_info, Counted::values},
    {Message::graph, 13, Message::value_info, Counted::values},
    {Message::graph, 14, Message::annotation, Counted::values},  // of quantization
    {Message::annotation, 2, Message::leaf, Counted::values},
    {Message::node, 1, Message::leaf, Counted::values},
    {Message::node, 2, Message::leaf, Counted::values},
    {Message::node, 5, Message::attribute, Counted::attributes},
    {Message::attribute, 5, Message::tensor, Counted::tensors},
    {Message::attribute, 6, Message::graph, Counted::nothing},
    {Message::attribute, 8, Message::leaf, Counted::numbers},  // ints
    {Message::attribute, 9, Message::leaf, Counted::texts},
    {Message::attribute, 10, Message::tensor, Counted::tensors},
    {Message::attribute, 11, Message::graph, Counted::nothing},
    {Message::attribute, 14, Message::type, Counted::values},
    {Message::attribute, 15, Message::type, Counted::values},
    {Message::attribute, 22, Message::sparse, Counted::tensors},
    {Message::attribute, 23, Message::sparse, Counted::tensors},
    {Message::tensor, 1, Message::leaf, Counted::numbers},  // dims
    {Message::tensor, 5, Message::leaf, Counted::numbers},  // int32_data
    {Message::tensor, 6, Message::leaf, Counted::texts},
    {Message::tensor, 7, Message::leaf, Counted::numbers},   // int64_data
    {Message::tensor, 11, Message::leaf, Counted::numbers},  // uint64_data
    {Message::tensor, 13, Message::leaf, Counted::values},   // external_data, refused later
    {Message::sparse, 1, Message::tensor, Counted::tensors},
    {Message::sparse, 2, Message::tensor, Counted::tensors},
    {Message::sparse, 3, Message::leaf, Counted::numbers},
    {Message::value_info, 2, Message::type, Counted::nothing},
    {Message::type, 1, Message::type_tensor, Counted::nothing},
    {Message::type, 4, Message::type_element, Counted::nothing},
    {Message::type, 5, Message::type_map, Counted::nothing},
    {Message::type, 8, Message::type_tensor, Counted::nothing},
    {Message::type, 9, Message::type_element, Counted::nothing},
    {Message::type_tensor, 2, Message::shape, Counted::nothing},
    {Message::type_element, 1, Message::type, Counted::nothing},
    {Message::type_map, 2, Message::type, Counted::nothing},
    {Message::shape, 1, Message::leaf, Counted::values},
};

// Deeper than any model that is within the limits; protobuf itself stops at 100.
constexpr int kDepthMax = 64;

class WireScan {
 public:
  explicit WireScan(const Limits& limits) : limits_(limits) {}

  void walk(Message message, BytesView bytes, int depth, std::size_t graphs) {
    if (depth > kDepthMax) refuse("is nested too deeply");
    if (message == Message::graph && graphs > limits_.graphs_nested)
      refuse(fmt::format("has graphs inside graphs, more than {} deep", limits_.graphs_nested));
    while (!bytes.empty()) {
      const std::uint64_t tag = varint(bytes);
      const auto number = static_cast<std::uint32_t>(tag >> 3);
      if (number == 0 || tag >> 32 != 0) refuse("is not a protobuf");
      const auto* field = find(message, number);
      switch (tag & 7) {
        case 0:
          varint(bytes);
          if (field) count(field->counted, 1);
          break;
        case 1:
          skip(bytes, 8);
          break;
        case 5:
          skip(bytes, 4);
          break;
        case 2: {
          const std::uint64_t length = varint(bytes);
          const BytesView inside = skip(bytes, length);
          if (field) enter(*field, inside, depth, graphs);
          break;
        }
        default:
          refuse("is not a protobuf that ONNX writes");
      }
    }
  }

 private:
  [[noreturn]] static void refuse(const std::string& what) { throw Error(Code::invalid, "the model " + what); }

  static const WireField* find(Message message, std::uint32_t number) {
    const auto* at = std::find_if(std::begin(kWireFields), std::end(kWireFields),
                                  [&](const WireField& f) { return f.in == message && f.number == number; });
    return at == std::end(kWireFields) ? nullptr : at;
  }

  void enter(const WireField& field, BytesView inside, int depth, std::size_t graphs) {
    if (field.counted == Counted::numbers)  // packed: each ends with a byte below 128
      count(field.counted, static_cast<std::size_t>(std::count_if(inside.begin(), inside.end(),
                                                                  [](std::byte b) { return b < std::byte{0x80}; })));
    else
      count(field.counted, 1);
    if (field.holds != Message::leaf)
      walk(field.holds, inside, depth + 1, graphs + (field.holds == Message::graph ? 1 : 0));
  }

  void count(Counted what, std::size_t more) {
    const auto bound = [&](std::size_t& have, std::size_t most, std::string_view name) {
      have += more;
      if (have > most) refuse(fmt::format("has more than {} {}", most, name));
    };
    switch (what) {
      case Counted::nothing:
        break;
      case Counted::nodes:
        return bound(nodes_, limits_.nodes, "nodes");
      case Counted::tensors:
        return bound(tensors_, limits_.tensors, "tensors");
      case Counted::attributes:
        return bound(attributes_, limits_.attributes, "attributes");
      case Counted::values:
        return bound(values_, limits_.values, "names and sizes");
      case Counted::texts:
        return bound(texts_, limits_.texts, "texts");
      case Counted::refused:
        refuse("has functions or training information of its own");
      case Counted::numbers:
        return bound(numbers_, limits_.tensor_bytes / 8, "numbers");
    }
  }

  static std::uint64_t varint(BytesView& bytes) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (bytes.empty()) refuse("ends too early");
      const auto byte = static_cast<std::uint8_t>(bytes[0]);
      bytes = bytes.subspan(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    refuse("is not a protobuf");
  }

  static BytesView skip(BytesView& bytes, std::uint64_t length) {
    if (length > bytes.size()) refuse("ends too early");
    const BytesView inside = bytes.first(length);
    bytes = bytes.subspan(length);
    return inside;
  }

  const Limits& limits_;
  std::size_t nodes_ = 0, tensors_ = 0, attributes_ = 0, values_ = 0, texts_ = 0, numbers_ = 0;
};

}  // namespace

void scan_model(BytesView model, const Limits& limits) {
  if (model.empty()) throw Error(Code::invalid, "the model is empty");
  if (model.size() > limits.bytes)
    throw Error(Code::invalid, fmt::format("the model has {} bytes, more than {}", model.size(), limits.bytes));
  WireScan(limits).walk(Message::model, model, 0, 0);
}

}  // namespace falaj::graph
