// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/bytes.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kStandard = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kUrl = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string encode64(BytesView in, std::string_view alphabet, bool pad) {
  std::string out;
  out.reserve((in.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < in.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, in.size() - i);
    std::uint32_t v = 0;
    for (std::size_t k = 0; k < 3; ++k) v = (v << 8) | (k < n ? static_cast<std::uint32_t>(in[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) {
      if (k <= n)
        out += alphabet[(v >> (18 - 6 * k)) & 63];
      else if (pad)
        out += '=';
    }
  }
  return out;
}

Bytes decode64(std::string_view in, std::string_view alphabet, bool padded) {
  const auto bad = [] { return Error(Code::invalid, "not valid base64"); };
  if (padded) {
    if (in.size() % 4 != 0) throw bad();
    for (int i = 0; i < 2 && !in.empty() && in.back() == '='; ++i) in.remove_suffix(1);
  }
  if (in.size() % 4 == 1) throw bad();
  Bytes out;
  out.reserve(in.size() / 4 * 3 + 2);
  std::uint32_t v = 0;
  int bits = 0;
  for (const char c : in) {
    const auto at = alphabet.find(c);
    if (at == std::string_view::npos) throw bad();
    v = (v << 6) | static_cast<std::uint32_t>(at);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<std::byte>(v >> bits));
    }
  }
  if (v & ((1U << bits) - 1)) throw bad();  // one value, one spelling
  return out;
}

}  // namespace

std::string to_hex(BytesView bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out += kHex[static_cast<unsigned>(b) >> 4];
    out += kHex[static_cast<unsigned>(b) & 15];
  }
  return out;
}

Bytes from_hex(std::string_view text) {
  if (text.size() % 2 != 0) throw Error(Code::invalid, "not valid hexadecimal: odd length");
  Bytes out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int hi = hex_value(text[i]), lo = hex_value(text[i + 1]);
    if (hi < 0 || lo < 0) throw Error(Code::invalid, "not valid hexadecimal");
    out.push_back(static_cast<std::byte>(hi << 4 | lo));
  }
  return out;
}

std::string to_base64(BytesView bytes) { return encode64(bytes, kStandard, true); }
Bytes from_base64(std::string_view text) { return decode64(text, kStandard, true); }
std::string to_base64url(BytesView bytes) { return encode64(bytes, kUrl, false); }
Bytes from_base64url(std::string_view text) { return decode64(text, kUrl, false); }

Digest Digest::parse(std::string_view hex) {
  if (hex.size() != 64)
    throw Error(Code::invalid, fmt::format("a digest has 64 hexadecimal digits, not {}", hex.size()));
  const Bytes b = from_hex(hex);
  Digest d;
  std::copy(b.begin(), b.end(), d.bytes.begin());
  return d;
}

void ByteWriter::blob(BytesView v) {
  CHECK(v.size() <= std::numeric_limits<std::uint32_t>::max(), "a field of 4 GiB or more");
  u32(static_cast<std::uint32_t>(v.size()));
  raw(v);
}

BytesView ByteReader::raw(std::size_t n) {
  if (n > in_.size()) throw Error(Code::corrupt, "record ends too early");
  const auto out = in_.first(n);
  in_ = in_.subspan(n);
  return out;
}

BytesView ByteReader::blob() {
  const std::size_t n = u32();
  if (n > blob_max_) throw Error(Code::corrupt, fmt::format("field longer than allowed: {} bytes", n));
  return raw(n);
}

void ByteReader::expect_end() const {
  if (!in_.empty()) throw Error(Code::corrupt, fmt::format("{} bytes after the end of the record", in_.size()));
}

}  // namespace falaj
