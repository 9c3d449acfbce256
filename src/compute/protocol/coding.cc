// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/coding.h"

#include <algorithm>

#include <fmt/format.h>
#include <zlib.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::protocol {
namespace {

constexpr std::size_t kUnpackBytesMin = 64 * 1024;

int window_of(Coding coding) { return coding == Coding::gzip ? 15 + 16 : 15; }

// zlib's streams, ended when they go.
struct Inflating {
  z_stream z{};
  explicit Inflating(Coding coding) {
    if (inflateInit2(&z, window_of(coding)) != Z_OK) throw Error(Code::exhausted, "no memory to unpack a body");
  }
  ~Inflating() { inflateEnd(&z); }
};
struct Deflating {
  z_stream z{};
  explicit Deflating(Coding coding) {
    if (deflateInit2(&z, 1, Z_DEFLATED, window_of(coding), 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw Error(Code::exhausted, "no memory to pack a body");
  }
  ~Deflating() { deflateEnd(&z); }
};

Bytef* raw_text(const char* text) { return reinterpret_cast<Bytef*>(const_cast<char*>(text)); }

}  // namespace

std::string_view name(Coding coding) { return coding == Coding::gzip ? "gzip" : "deflate"; }

std::optional<Coding> parse_coding(std::string_view content_encoding) {
  const auto text = lower(trim(content_encoding));
  if (text.empty() || text == "identity") return std::nullopt;
  for (const auto coding : {Coding::gzip, Coding::deflate})
    if (text == name(coding)) return coding;
  throw Error(Code::invalid, fmt::format("Content-Encoding is gzip or deflate, not '{}'", text.substr(0, 32)));
}

std::optional<Coding> accepted_coding(std::string_view accept_encoding) {
  for (const auto item : split(accept_encoding, ',')) {
    const auto parts = split(item, ';');
    const auto wanted = lower(trim(parts[0]));
    const bool refused = parts.size() > 1 && trim(parts[1]).starts_with("q=0") &&
                         trim(parts[1]).substr(2).find_first_not_of("0.") == std::string_view::npos;
    if (refused) continue;
    for (const auto coding : {Coding::gzip, Coding::deflate})
      if (wanted == name(coding)) return coding;
  }
  return std::nullopt;
}

std::string unpacked(std::string_view body, Coding coding, std::uint64_t bytes_max) {
  Inflating stream(coding);
  auto& z = stream.z;
  z.next_in = raw_text(body.data());
  z.avail_in = static_cast<uInt>(body.size());
  std::string out;
  std::size_t have = 0;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    // Memory grows with what has come out, one byte past the limit at most.
    if (have == out.size())
      out.resize(std::min<std::uint64_t>(std::max<std::size_t>(have * 2, kUnpackBytesMin), bytes_max + 1));
    z.next_out = raw_text(out.data() + have);
    z.avail_out = static_cast<uInt>(out.size() - have);
    state = inflate(&z, Z_NO_FLUSH);
    have = out.size() - z.avail_out;
    if (have > bytes_max)
      throw Error(Code::invalid, fmt::format("the body is more than {} bytes long when unpacked", bytes_max));
    if (state != Z_STREAM_END && (state != Z_OK || (z.avail_in == 0 && z.avail_out > 0)))
      throw Error(Code::invalid, fmt::format("the body is not whole {}", name(coding)));
  }
  if (z.avail_in > 0) throw Error(Code::invalid, fmt::format("something follows the {} of the body", name(coding)));
  out.resize(have);
  return out;
}

std::string packed(std::string_view body, Coding coding) {
  Deflating stream(coding);
  auto& z = stream.z;
  std::string out(deflateBound(&z, body.size()), '\0');
  z.next_in = raw_text(body.data());
  z.avail_in = static_cast<uInt>(body.size());
  z.next_out = raw_text(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END, "what deflateBound says is enough");
  out.resize(out.size() - z.avail_out);
  return out;
}

}  // namespace falaj::protocol
