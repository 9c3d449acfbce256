// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"

namespace falaj::graph {

// What a tensor holds. The names are those of NumPy, except text and boolean.
enum class Element {
  float32,
  float64,
  float16,
  bfloat16,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  boolean,
  text,
};
inline constexpr Element kElements[] = {Element::float32, Element::float64, Element::float16, Element::bfloat16,
                                        Element::int8,    Element::int16,   Element::int32,   Element::int64,
                                        Element::uint8,   Element::uint16,  Element::uint32,  Element::uint64,
                                        Element::boolean, Element::text};
std::string_view name(Element element);
std::size_t bytes_of(Element element);  // of one; 0 for text

// The element that holds values of a C++ type. bool is stored as a byte of 0 or 1.
template <class T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, float>) return Element::float32;
  if constexpr (std::is_same_v<T, double>) return Element::float64;
  if constexpr (std::is_same_v<T, std::int8_t>) return Element::int8;
  if constexpr (std::is_same_v<T, std::int16_t>) return Element::int16;
  if constexpr (std::is_same_v<T, std::int32_t>) return Element::int32;
  if constexpr (std::is_same_v<T, std::int64_t>) return Element::int64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return Element::uint8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return Element::uint16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return Element::uint32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return Element::uint64;
  if constexpr (std::is_same_v<T, bool>) return Element::boolean;
}

using Sizes = std::vector<std::int64_t>;  // the shape of a tensor that is there: no size is negative

// The product of `sizes`. Throws invalid when one is negative or there are more than `most`.
std::size_t count_of(std::span<const std::int64_t> sizes, std::size_t most = std::size_t{1} << 40);
std::string text_of(std::span<const std::int64_t> sizes);  // "[2, 3]"

// Numbers in row-major order as they lie in memory (little-endian), or texts.
struct Tensor {
  Element element = Element::float32;
  Sizes sizes;
  Bytes bytes;                     // empty for text
  std::vector<std::string> texts;  // empty for the rest

  // Requires: as many values as `sizes` says.
  template <class T>
  static Tensor of(Sizes sizes, std::span<const T> values) {
    CHECK(values.size() == count_of(sizes), "as many values as the sizes say");
    const auto bytes = std::as_bytes(values);
    return {element_of<T>(), std::move(sizes), Bytes(bytes.begin(), bytes.end()), {}};
  }
  template <class T>
  static Tensor of(Sizes sizes, const std::vector<T>& values) {
    return of(std::move(sizes), std::span<const T>(values));
  }
  static Tensor of_text(Sizes sizes, std::vector<std::string> texts);
  static Tensor of_boolean(Sizes sizes, std::span<const std::uint8_t> values);  // each 0 or 1
  static Tensor empty(Element element, Sizes sizes);                            // zeros, or empty texts

  std::size_t count() const { return count_of(sizes); }

  // Requires: T is what it holds; booleans are read as std::uint8_t.
  template <class T>
  std::span<const T> values() const {
    CHECK(holds<T>(), "a tensor is read as what it holds");
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<T> values() {
    CHECK(holds<T>(), "a tensor is written as what it holds");
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  friend bool operator==(const Tensor&, const Tensor&) = default;

 private:
  template <class T>
  bool holds() const {
    return element == element_of<T>() || (std::is_same_v<T, std::uint8_t> && element == Element::boolean);
  }
};

}  // namespace falaj::graph
