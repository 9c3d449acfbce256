// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/id.h"

#include "foundation/base/error.h"

namespace falaj {
namespace {
constexpr std::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr std::size_t kLength = 26;  // 130 bits; the first character holds only three
}  // namespace

std::string format_id(IdBits bits) {
  std::string out(kLength, '0');
  for (std::size_t i = kLength; i-- > 0;) {
    out[i] = kAlphabet[bits.low & 31];
    bits.low = (bits.low >> 5) | (bits.high << 59);
    bits.high >>= 5;
  }
  return out;
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
