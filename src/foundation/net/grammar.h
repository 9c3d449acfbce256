// SPDX-License-Identifier: Apache-2.0
#pragma once

// The character classes of RFC 9110 and 3986 that our parsers agree on.

#include <array>
#include <string_view>

namespace falaj::net {

namespace grammar {
enum : unsigned char { kToken = 1, kField = 2, kPath = 4, kDigit = 8 };

constexpr std::array<unsigned char, 256> make_classes() {
  std::array<unsigned char, 256> classes{};
  for (unsigned c = 0; c < 256; ++c) {
    const bool digit = c >= '0' && c <= '9';
    const bool alphanumeric = digit || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const auto one_of = [c](std::string_view set) { return c != 0 && set.find(static_cast<char>(c)) != set.npos; };
    classes[c] = static_cast<unsigned char>(
        (alphanumeric || one_of("!#$%&'*+-.^_`|~") ? kToken : 0) | (c == '\t' || (c >= ' ' && c != 127) ? kField : 0) |
        (alphanumeric || one_of("-._~!$&'()*+,;=:@/%") ? kPath : 0) | (digit ? kDigit : 0));
  }
  return classes;
}
inline constexpr auto kClasses = make_classes();
constexpr bool is(char c, unsigned char wanted) { return (kClasses[static_cast<unsigned char>(c)] & wanted) != 0; }
constexpr bool all(std::string_view text, unsigned char wanted) {
  for (const char c : text)
    if (!is(c, wanted)) return false;
  return true;
}
}  // namespace grammar

constexpr bool is_digit(char c) { return grammar::is(c, grammar::kDigit); }
constexpr bool is_field_char(char c) { return grammar::is(c, grammar::kField); }
constexpr bool is_token(std::string_view text) { return !text.empty() && grammar::all(text, grammar::kToken); }

constexpr char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
constexpr bool equal_without_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (to_lower(a[i]) != to_lower(b[i])) return false;
  return true;
}
constexpr int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  c = to_lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace falaj::net
