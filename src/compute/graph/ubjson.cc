// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/ubjson.h"

#include <algorithm>
#include <bit>
#include <concepts>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::graph {
namespace {

class UbjReader {
 public:
  UbjReader(BytesView bytes, std::size_t values_max) : bytes_(bytes), values_left_(values_max) {}

  json::value whole() {
    auto value = value_of(marker(), 0);
    if (at_ != bytes_.size()) refuse("something follows the value");
    return value;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(Code::invalid, fmt::format("reading binary JSON: {} at byte {}", what, at_));
  }

  char marker() {
    if (at_ >= bytes_.size()) refuse("it ends too early");
    return static_cast<char>(bytes_[at_++]);
  }
  char peek() const {
    if (at_ >= bytes_.size()) refuse("it ends too early");
    return static_cast<char>(bytes_[at_]);
  }

  template <class T>
  T big_endian() {
    if (bytes_.size() - at_ < sizeof(T)) refuse("it ends too early");
    std::uint64_t bits = 0;
    for (std::size_t k = 0; k < sizeof(T); ++k) bits = bits << 8 | static_cast<std::uint8_t>(bytes_[at_++]);
    if constexpr (std::same_as<T, float>) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if constexpr (std::same_as<T, double>) return std::bit_cast<double>(bits);
    if constexpr (std::integral<T>) return static_cast<T>(bits);
  }

  std::int64_t integer(char kind) {
    switch (kind) {
      case 'i':
        return big_endian<std::int8_t>();
      case 'U':
        return big_endian<std::uint8_t>();
      case 'I':
        return big_endian<std::int16_t>();
      case 'l':
        return big_endian<std::int32_t>();
      case 'L':
        return big_endian<std::int64_t>();
      default:
        refuse("a whole number is missing");
    }
  }

  // At least `each` bytes follow for every one, so that a length never asks for more memory than the input is worth.
  std::size_t length(std::size_t each) {
    const std::int64_t got = integer(marker());
    if (got < 0 || static_cast<std::uint64_t>(got) > (bytes_.size() - at_) / std::max<std::size_t>(each, 1))
      refuse("a length is out of range");
    return static_cast<std::size_t>(got);
  }

  std::string_view text() {
    const std::size_t size = length(1);
    const auto view = as_text(bytes_.subspan(at_, size));
    at_ += size;
    return view;
  }

  static std::size_t width(char kind) {
    switch (kind) {
      case 'i':
      case 'U':
        return 1;
      case 'I':
        return 2;
      case 'l':
      case 'd':
        return 4;
      case 'L':
      case 'D':
        return 8;
      default:
        return 0;
    }
  }

  json::value value_of(char kind, std::size_t depth) {
    if (values_left_-- == 0) refuse("there are too many values");
    if (depth > kJsonDepthMax) refuse("it is nested too deeply");
    switch (kind) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case 'S':
        return json::value(text());
      case 'T':
        return true;
      case 'F':
        return false;
      case 'Z':
        return nullptr;
      case 'd':
        return static_cast<double>(big_endian<float>());
      case 'D':
        return big_endian<double>();
      default:
        return integer(kind);
    }
  }

  json::value object(std::size_t depth) {
    json::object out;
    while (peek() != '}') {
      const auto key = text();
      out[key] = value_of(marker(), depth + 1);
    }
    ++at_;
    return out;
  }

  json::value array(std::size_t depth) {
    json::array out;
    char kind = 0;
    if (peek() == '$') {
      ++at_;
      kind = marker();
      if (width(kind) == 0) refuse("an array is of a type that is not a number");
      if (peek() != '#') refuse("the length of an array is missing");
    }
    if (peek() == '#') {
      ++at_;
      const std::size_t count = length(kind == 0 ? 1 : width(kind));
      if (count > values_left_) refuse("there are too many values");
      out.reserve(count);
      for (std::size_t k = 0; k < count; ++k) out.push_back(value_of(kind == 0 ? marker() : kind, depth + 1));
      return out;
    }
    while (peek() != ']') out.push_back(value_of(marker(), depth + 1));
    ++at_;
    return out;
  }

  BytesView bytes_;
  std::size_t at_ = 0;
  std::size_t values_left_;
};

}  // namespace

json::value parse_ubjson(BytesView bytes, std::size_t values_max) { return UbjReader(bytes, values_max).whole(); }

}  // namespace falaj::graph
