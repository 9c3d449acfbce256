// SPDX-License-Identifier: Apache-2.0
// Chunked bodies through the decoder the server uses: the same body and the same end however the bytes are cut.
#include <cstddef>
#include <cstdint>
#include <string>

#include "foundation/base/error.h"
#include "foundation/net/parse.h"

namespace falaj::net {
namespace {

struct Decoded {
  std::string body;
  bool ended = false, malformed = false;
  std::size_t used = 0;
};

Decoded decode(std::string_view in, std::size_t step, std::size_t data_max) {
  ChunkDecoder decoder;
  Decoded out;
  while (out.used < in.size() && !decoder.ended() && !decoder.malformed()) {
    const auto piece = in.substr(out.used, step);
    const auto got = decoder.next(piece, data_max);
    CHECK(got.used > 0 && got.used <= piece.size() && got.data.size() <= data_max, "no progress, or too much");
    out.body += got.data;
    out.used += got.used;
  }
  out.ended = decoder.ended();
  out.malformed = decoder.malformed();
  return out;
}

std::string encoded(std::string_view body) {
  std::string out;
  for (std::size_t size = 1; !body.empty(); size = size * 2 % 31 + 1) {
    const auto piece = body.substr(0, size);
    constexpr std::string_view kHex = "0123456789abcdef";
    ((out += kHex[piece.size() >> 4]) += kHex[piece.size() & 15]) += "\r\n";
    (out += piece) += "\r\n";
    body.remove_prefix(piece.size());
  }
  return out + "0\r\n\r\n";
}

}  // namespace
}  // namespace falaj::net

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace falaj::net;
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  const auto whole = decode(in, size, size + 1);
  const auto cut = decode(in, 3, 2);
  CHECK(
      whole.ended == cut.ended && whole.malformed == cut.malformed && whole.body == cut.body && whole.used == cut.used,
      "cutting changes the body");
  CHECK(whole.body.size() <= size, "more body than bytes");
  const auto text = encoded(in);
  const auto back = decode(text, 5, 16);
  CHECK(back.ended && back.body == in && back.used == text.size(), "a body of our own is not read back");
  return 0;
}
