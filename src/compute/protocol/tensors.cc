// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

namespace falaj::protocol {
namespace {

using graph::Element;

// In the order of graph::Element.
constexpr std::array<std::string_view, std::size(graph::kElements)> kDatatypes = {
    "FP32",  "FP64",  "FP16",   "BF16",   "INT8",   "INT16", "INT32",
    "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL",  "BYTES"};

std::uint32_t length_at(BytesView bytes) {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) length |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
  return length;
}

std::vector<std::string> unframe(const Input& input, BytesView bytes) {
  const auto count = graph::count_of(input.sizes, bytes.size() / 4);
  std::vector<std::string> texts;
  texts.reserve(count);
  while (texts.size() < count) {
    if (bytes.size() < 4 || bytes.size() - 4 < length_at(bytes))
      throw Error(Code::invalid,
                  fmt::format("input {}: element {} is longer than what was sent", input.name, texts.size()));
    const auto length = length_at(bytes);
    texts.emplace_back(as_text(bytes.subspan(4, length)));
    bytes = bytes.subspan(4 + length);
  }
  if (!bytes.empty())
    throw Error(Code::invalid,
                fmt::format("input {}: {} bytes after the last of {} elements", input.name, bytes.size(), count));
  return texts;
}

std::uint64_t unsigned_of(std::string_view key, const Parameter& value, std::uint64_t most) {
  const auto* number = std::get_if<std::int64_t>(&value);
  if (!number || *number < 0 || static_cast<std::uint64_t>(*number) > most)
    throw Error(Code::invalid, fmt::format("parameter {} is a number of 0 to {}", key, most));
  return static_cast<std::uint64_t>(*number);
}

bool flag_of(std::string_view key, const Parameter& value) {
  const auto* flag = std::get_if<bool>(&value);
  if (!flag) throw Error(Code::invalid, fmt::format("parameter {} is true or false", key));
  return *flag;
}

bool is_unset(const Parameter& value) {
  return value == Parameter(false) || value == Parameter(std::int64_t{0}) || value == Parameter(std::string());
}

}  // namespace

std::string_view datatype(Element element) { return kDatatypes[static_cast<std::size_t>(element)]; }

Element parse_datatype(std::string_view text) {
  const auto found = std::find(kDatatypes.begin(), kDatatypes.end(), text);
  if (found == kDatatypes.end())
    throw Error(Code::invalid, fmt::format("no datatype is called '{}'; there are {}", text.substr(0, 32),
                                           fmt::join(kDatatypes, ", ")));
  return static_cast<Element>(found - kDatatypes.begin());
}

void take_bytes(Input& input, BytesView bytes) {
  if (input.element == Element::text) {
    input.texts = unframe(input, bytes);
    return;
  }
  const auto size = graph::bytes_of(input.element);
  // A shape may say any number: nothing is allocated for it, it is only compared.
  std::size_t count = 0;
  try {
    count = graph::count_of(input.sizes);
  } catch (const Error& error) {
    throw Error(Code::invalid, fmt::format("input {}: {}", input.name, error.what()));
  }
  if (bytes.size() / size != count || bytes.size() % size != 0)
    throw Error(Code::invalid,
                fmt::format("unexpected size for input {}: {} bytes came, {} of {} are {}", input.name, bytes.size(),
                            graph::text_of(input.sizes), datatype(input.element), count * size));
  if (input.element == Element::boolean &&
      std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; }))
    throw Error(Code::invalid, fmt::format("input {}: a BOOL is neither 0 nor 1", input.name));
  input.bytes = bytes;
}

std::size_t framed_size(const std::vector<std::string>& texts) {
  return std::accumulate(texts.begin(), texts.end(), texts.size() * 4,
                         [](std::size_t sum, const std::string& text) { return sum + text.size(); });
}

void frame(const std::vector<std::string>& texts, std::byte* out) {
  for (const auto& text : texts) {
    for (std::size_t i = 0; i < 4; ++i) *out++ = static_cast<std::byte>(text.size() >> (8 * i));
    if (!text.empty()) std::memcpy(out, text.data(), text.size());
    out += text.size();
  }
}

std::byte* write_binary(const graph::Tensor& tensor, std::byte* out) {
  const auto size = binary_size(tensor);
  if (tensor.element == Element::text)
    frame(tensor.texts, out);
  else if (size > 0)
    std::memcpy(out, tensor.bytes.data(), size);
  return out + size;
}

void take_parameter(Asked& asked, std::string_view key, Parameter value) {
  constexpr std::uint64_t kMicrosMax = std::uint64_t{1} << 50;
  if (key == "priority") {
    asked.ask.priority = static_cast<std::uint32_t>(unsigned_of(key, value, UINT32_MAX));
  } else if (key == "timeout") {
    asked.ask.timeout_us = static_cast<std::int64_t>(unsigned_of(key, value, kMicrosMax));
  } else if (key == "binary_data_output") {
    asked.binary_default = flag_of(key, value);
  } else if (key == "triton_enable_empty_final_response") {
    flag_of(key, value);  // every answer of ours is one and the last: nothing follows it either way
  } else if (key == "sequence_id" || key == "sequence_start" || key == "sequence_end") {
    if (!is_unset(value)) throw Error(Code::invalid, "sequences of requests are not offered: models hold no state");
  } else if (key == "headers" || key.starts_with("triton_")) {
    throw Error(Code::invalid, fmt::format("parameter {} is reserved", key));
  } else {
    asked.ask.parameters.insert_or_assign(std::string(key), std::move(value));
  }
}

void refuse_shared_memory(std::string_view key, std::string_view tensor) {
  if (key.starts_with("shared_memory_"))
    throw Error(Code::invalid, fmt::format("tensor {}: shared memory is not offered", tensor));
}

void check_names(const Ask& ask) {
  std::vector<std::string_view> names;
  const auto check = [&](std::string_view what) {
    std::sort(names.begin(), names.end());
    if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
      throw Error(Code::invalid, fmt::format("two {} are called {}", what, *twice));
    names.clear();
  };
  if (ask.inputs.size() > 1) {
    for (const auto& input : ask.inputs) names.push_back(input.name);
    check("inputs");
  }
  if (ask.outputs.size() > 1) {
    names.assign(ask.outputs.begin(), ask.outputs.end());
    check("outputs");
  }
}

graph::Tensor classify(const graph::Tensor& tensor, std::uint32_t k) {
  const auto rows = tensor.sizes.size() > 1 ? static_cast<std::size_t>(tensor.sizes[0]) : 1;
  const auto count = tensor.count();
  const auto width = rows == 0 ? 0 : count / rows;
  const auto kept = std::min<std::size_t>(k, width);
  std::vector<std::string> texts;
  texts.reserve(rows * kept);
  with_type(tensor.element, [&](auto zero) {
    using T = decltype(zero);
    const auto* values = reinterpret_cast<const T*>(tensor.bytes.data());
    std::vector<std::size_t> order(width);
    for (std::size_t row = 0; row < rows && kept > 0; ++row) {
      const auto* of_row = values + row * width;
      std::iota(order.begin(), order.end(), std::size_t{0});
      const auto greater = [&](std::size_t a, std::size_t b) {
        const bool a_nan = of_row[a] != of_row[a], b_nan = of_row[b] != of_row[b];
        if (a_nan || b_nan) return a_nan == b_nan ? a < b : b_nan;
        return of_row[a] != of_row[b] ? of_row[a] > of_row[b] : a < b;
      };
      std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), greater);
      for (std::size_t i = 0; i < kept; ++i) {
        if constexpr (std::is_floating_point_v<T>)
          texts.push_back(fmt::format("{:f}:{}", of_row[order[i]], order[i]));
        else
          texts.push_back(fmt::format("{}:{}", +of_row[order[i]], order[i]));
      }
    }
  });
  graph::Sizes sizes;
  if (tensor.sizes.size() > 1) sizes.push_back(tensor.sizes[0]);
  sizes.push_back(static_cast<std::int64_t>(kept));
  return graph::Tensor::of_text(std::move(sizes), std::move(texts));
}

}  // namespace falaj::protocol
