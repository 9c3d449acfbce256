// SPDX-License-Identifier: Apache-2.0
#pragma once

// Names, bytes and rules that the protocol's REST and gRPC share. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compute/protocol/inference.h"

namespace falaj::protocol {

inline constexpr std::size_t kTensorsMax = 4096;  // inputs, or outputs, that one request may name
inline constexpr std::size_t kRankMax = 32;

std::string_view datatype(graph::Element element);  // "FP32"
graph::Element parse_datatype(std::string_view text);

// An output that the request names, and how it is wanted.
struct Wish {
  std::string name;
  bool binary = false;        // REST: after the JSON, not in it
  std::uint32_t classes = 0;  // this many best classes instead of the values; 0: the values
};

// A request as decoded: the question to the model, and what only concerns how it is answered.
struct Asked {
  Ask ask;
  std::string id;
  std::vector<Wish> wishes;     // as in ask.outputs
  bool binary_default = false;  // REST, for outputs that are not named
  std::vector<Bytes> owned;     // of inputs that did not come as the bytes they are; the inputs refer to these
};

// Gives `input`, whose element and sizes are known, its bytes as they came: as many as the sizes say, booleans 0 or 1,
// BYTES each with four bytes of length before it. Throws invalid.
void take_bytes(Input& input, BytesView bytes);

// BYTES as they travel.
std::size_t framed_size(const std::vector<std::string>& texts);
void frame(const std::vector<std::string>& texts, std::byte* out);
inline std::size_t binary_size(const graph::Tensor& tensor) {
  return tensor.element == graph::Element::text ? framed_size(tensor.texts) : tensor.bytes.size();
}
std::byte* write_binary(const graph::Tensor& tensor, std::byte* out);  // returns the end

// A parameter of the request: what has a meaning goes where it belongs, what is not offered is refused, the rest is
// for the model.
void take_parameter(Asked& asked, std::string_view key, Parameter value);

// A parameter of a tensor that can only be refused: memory that we do not share.
void refuse_shared_memory(std::string_view key, std::string_view tensor);

// Throws invalid when there are two inputs, or outputs, of one name. None is fine: some models take none.
void check_names(const Ask& ask);

// "value:index" of the `k` greatest, greatest first: of each row where the tensor has rows, else of all. Throws invalid
// for a tensor that holds no numbers.
graph::Tensor classify(const graph::Tensor& tensor, std::uint32_t k);

// Calls f(T{}) with the type whose values lie in a tensor's bytes; booleans as std::uint8_t. Throws invalid for those
// that C++ has no type for.
template <class F>
decltype(auto) with_type(graph::Element element, F&& f) {
  using graph::Element;
  switch (element) {
    case Element::float32:
      return f(float{});
    case Element::float64:
      return f(double{});
    case Element::int8:
      return f(std::int8_t{});
    case Element::int16:
      return f(std::int16_t{});
    case Element::int32:
      return f(std::int32_t{});
    case Element::int64:
      return f(std::int64_t{});
    case Element::uint8:
    case Element::boolean:
      return f(std::uint8_t{});
    case Element::uint16:
      return f(std::uint16_t{});
    case Element::uint32:
      return f(std::uint32_t{});
    case Element::uint64:
      return f(std::uint64_t{});
    case Element::float16:
    case Element::bfloat16:
    case Element::text:
      break;
  }
  throw Error(Code::invalid, "only as binary data: " + std::string(datatype(element)));
}

}  // namespace falaj::protocol
