// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/tensor.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace falaj::graph {
namespace {

struct ElementInfo {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<ElementInfo, std::size(kElements)> kElementInfo = {{{"float32", 4},
                                                                         {"float64", 8},
                                                                         {"float16", 2},
                                                                         {"bfloat16", 2},
                                                                         {"int8", 1},
                                                                         {"int16", 2},
                                                                         {"int32", 4},
                                                                         {"int64", 8},
                                                                         {"uint8", 1},
                                                                         {"uint16", 2},
                                                                         {"uint32", 4},
                                                                         {"uint64", 8},
                                                                         {"boolean", 1},
                                                                         {"text", 0}}};

}  // namespace

std::string_view name(Element element) { return kElementInfo[static_cast<std::size_t>(element)].name; }
std::size_t bytes_of(Element element) { return kElementInfo[static_cast<std::size_t>(element)].bytes; }

std::string text_of(std::span<const std::int64_t> sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

std::size_t count_of(std::span<const std::int64_t> sizes, std::size_t most) {
  std::size_t count = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0) throw Error(Code::invalid, fmt::format("a tensor has a negative size: {}", text_of(sizes)));
  }
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
  for (const std::int64_t size : sizes) {
    if (count > most / static_cast<std::size_t>(size))
      throw Error(Code::invalid, fmt::format("a tensor holds more than {} values: {}", most, text_of(sizes)));
    count *= static_cast<std::size_t>(size);
  }
  return count;
}

Tensor Tensor::of_text(Sizes sizes, std::vector<std::string> texts) {
  CHECK(texts.size() == count_of(sizes), "as many texts as the sizes say");
  return {Element::text, std::move(sizes), {}, std::move(texts)};
}

Tensor Tensor::of_boolean(Sizes sizes, std::span<const std::uint8_t> values) {
  Tensor out = of<std::uint8_t>(std::move(sizes), values);
  out.element = Element::boolean;
  return out;
}

Tensor Tensor::empty(Element element, Sizes sizes) {
  Tensor out{element, std::move(sizes), {}, {}};
  if (element == Element::text)
    out.texts.resize(out.count());
  else
    out.bytes.resize(out.count() * bytes_of(element));
  return out;
}

}  // namespace falaj::graph
