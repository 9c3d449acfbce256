// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace falaj {

// 128 bits: 48 of milliseconds since 1970, 80 random. Sorts by time of making, as bytes and as text.
// The text form is 26 characters of Crockford's base32, lower case.
struct IdBits {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const IdBits&, const IdBits&) = default;
};
std::string format_id(IdBits bits);
void append_id(std::string& out, IdBits bits);
IdBits parse_id(std::string_view text);  // throws invalid

// A typed id, so that place(node, job) does not compile when place(job, node) is meant.
template <class Tag>
struct Id {
  IdBits bits;

  static Id parse(std::string_view text) { return {parse_id(text)}; }
  std::string str() const { return format_id(bits); }
  bool empty() const { return bits == IdBits{}; }
  std::int64_t unix_ms() const { return static_cast<std::int64_t>(bits.high >> 16); }
  friend auto operator<=>(const Id&, const Id&) = default;
};

using RequestId = Id<struct RequestTag>;

}  // namespace falaj

template <class Tag>
struct std::hash<falaj::Id<Tag>> {
  std::size_t operator()(const falaj::Id<Tag>& id) const noexcept { return id.bits.high * 31 ^ id.bits.low; }
};
