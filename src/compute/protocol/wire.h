// SPDX-License-Identifier: Apache-2.0
#pragma once

// Protocol buffers' encoding, read in place and written without classes made from a schema: tensors are not copied.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"

namespace falaj::protocol {

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };

// Reads fields one after another. Whatever is not whole throws invalid.
class WireReader {
 public:
  explicit WireReader(BytesView in) : in_(in) {}

  // The next field, or false at the end. Its value must then be read, or skipped.
  bool next() {
    if (in_.empty()) return false;
    const auto tag = varint();
    if (tag >> 3 == 0 || tag >> 32 != 0) broken();
    field_ = static_cast<std::uint32_t>(tag >> 3);
    wire_ = static_cast<std::uint8_t>(tag & 7);
    return true;
  }
  std::uint32_t field() const { return field_; }
  bool is(Wire wire) const { return wire_ == static_cast<std::uint8_t>(wire); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (in_.empty()) broken();
      const auto byte = static_cast<std::uint64_t>(in_[0]);
      in_ = in_.subspan(1);
      value |= shift < 64 ? (byte & 0x7f) << shift : 0;
      if (byte < 0x80) return value;
    }
    broken();
  }
  template <class T>
  T fixed() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  BytesView bytes() {
    const auto size = varint();
    if (size > in_.size()) broken();
    return take(static_cast<std::size_t>(size));
  }
  std::string text();  // throws invalid when it is no UTF-8
  void skip();
  bool empty() const { return in_.empty(); }

 private:
  BytesView take(std::size_t size) {
    if (size > in_.size()) broken();
    const auto taken = in_.first(size);
    in_ = in_.subspan(size);
    return taken;
  }
  [[noreturn]] static void broken();

  BytesView in_;
  std::uint32_t field_ = 0;
  std::uint8_t wire_ = 0;
};

// Appends fields. A value that is its type's default is left out, as others do.
class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  void tag(std::uint32_t field, Wire wire) { varint(field << 3 | static_cast<std::uint32_t>(wire)); }
  void text(std::uint32_t field, std::string_view value) {
    if (!value.empty()) bytes(field, value);
  }
  void bytes(std::uint32_t field, std::string_view value) {
    tag(field, Wire::length), varint(value.size());
    out_ += value;
  }

 private:
  std::string& out_;
};

inline std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  while (value >>= 7) ++size;
  return size;
}

}  // namespace falaj::protocol
