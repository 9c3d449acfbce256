// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/id.h"

#include "foundation/base/error.h"

namespace falaj {
namespace {
constexpr std::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr std::size_t kLength = 26;  // 130 bits; the first character holds only three
}  // namespace

std::string format_id(IdBits bits) {
  std::string out;
  append_id(out, bits);
  return out;
}

void append_id(std::string& out, IdBits bits) {
  out.resize(out.size() + kLength);
  auto at = out.size();
  const auto put = [&](std::uint64_t word, int digits) {
    for (; digits > 0; --digits, word >>= 5) out[--at] = kAlphabet[word & 31];
  };
  // Words of twelve digits, sixty bits, from the end.
  put(bits.low, 12);
  put(bits.low >> 60 | bits.high << 4, 12);
  put(bits.high >> 56, 2);
}

IdBits parse_id(std::string_view text) {
  if (text.size() != kLength || text[0] > '7')
    throw Error(Code::invalid, "not an id: 26 characters of base32 expected");
  IdBits bits;
  for (const char c : text) {
    const auto v = kAlphabet.find(c);
    if (v == std::string_view::npos) throw Error(Code::invalid, "not an id: 26 characters of base32 expected");
    bits.high = (bits.high << 5) | (bits.low >> 59);
    bits.low = (bits.low << 5) | v;
  }
  return bits;
}

}  // namespace falaj
