// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace falaj {

using Bytes = std::vector<std::byte>;
using BytesView = std::span<const std::byte>;

inline BytesView as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string_view as_text(BytesView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
inline Bytes to_bytes(std::string_view text) {
  const auto view = as_bytes(text);
  return {view.begin(), view.end()};
}
// For C libraries that want unsigned char; as const as the bytes are.
template <class Container>
auto* raw(Container&& bytes) {
  using Byte = std::remove_pointer_t<decltype(bytes.data())>;
  static_assert(std::is_same_v<const Byte, const std::byte>);
  return reinterpret_cast<std::conditional_t<std::is_const_v<Byte>, const unsigned char, unsigned char>*>(bytes.data());
}

std::string to_hex(BytesView bytes);
Bytes from_hex(std::string_view text);  // throws invalid
std::string to_base64(BytesView bytes);
Bytes from_base64(std::string_view text);     // throws invalid; padding required
std::string to_base64url(BytesView bytes);    // no padding
Bytes from_base64url(std::string_view text);  // throws invalid; no padding

// 32 bytes that name other bytes. Which function made them is the business of whoever made them.
struct Digest {
  std::array<std::byte, 32> bytes{};

  static Digest parse(std::string_view hex);  // throws invalid
  std::string hex() const { return to_hex(bytes); }
  BytesView view() const { return bytes; }
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

// Little-endian fixed-width integers and length-prefixed bytes: the one binary encoding of our own formats.
class ByteWriter {
 public:
  void u8(std::uint8_t v) { out_.push_back(std::byte{v}); }
  void u32(std::uint32_t v) { fixed(v); }
  void u64(std::uint64_t v) { fixed(v); }
  void raw(BytesView v) { out_.insert(out_.end(), v.begin(), v.end()); }
  void blob(BytesView v);  // u32 length, then the bytes
  void text(std::string_view v) { blob(as_bytes(v)); }
  const Bytes& bytes() const { return out_; }
  Bytes take() { return std::move(out_); }

 private:
  template <class T>
  void fixed(T v) {
    for (std::size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<std::byte>(v >> (8 * i)));
  }
  Bytes out_;
};

// Reads what ByteWriter wrote. Every read past the end, and every length above `blob_max`, throws corrupt.
class ByteReader {
 public:
  explicit ByteReader(BytesView in, std::size_t blob_max = std::size_t{1} << 30) : in_(in), blob_max_(blob_max) {}
  std::uint8_t u8() { return static_cast<std::uint8_t>(raw(1)[0]); }
  std::uint32_t u32() { return fixed<std::uint32_t>(); }
  std::uint64_t u64() { return fixed<std::uint64_t>(); }
  BytesView raw(std::size_t n);
  BytesView blob();
  std::string text() { return std::string(as_text(blob())); }
  std::size_t left() const { return in_.size(); }
  void expect_end() const;

 private:
  template <class T>
  T fixed() {
    const auto b = raw(sizeof(T));
    T v = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) v |= static_cast<T>(static_cast<T>(b[i]) << (8 * i));
    return v;
  }
  BytesView in_;
  std::size_t blob_max_;
};

}  // namespace falaj

template <>
struct std::hash<falaj::Digest> {
  std::size_t operator()(const falaj::Digest& d) const noexcept {
    std::size_t h = 0;  // already uniform: the first eight bytes are as good as any
    for (std::size_t i = 0; i < sizeof h; ++i) h = (h << 8) | static_cast<std::size_t>(d.bytes[i]);
    return h;
  }
};
