// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/export_tar.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::track {

namespace {

// Where the fields of a header are, as POSIX has them.
struct Place {
  std::size_t at, bytes;
};
constexpr Place kName{0, 100}, kMode{100, 8}, kUser{108, 8}, kGroup{116, 8}, kSize{124, 12}, kModified{136, 12},
    kChecksum{148, 8}, kType{156, 1}, kMagic{257, 8}, kPrefix{345, 155};
constexpr std::string_view kUstar("ustar\00000", 8);
constexpr std::uint64_t kOctalMax = (std::uint64_t{1} << 33) - 1;
constexpr std::size_t kPaxBytesMax = 8192, kSlackBytesMax = 64 * 1024;

using Block = std::array<std::byte, kTarBlockBytes>;

[[noreturn]] void refuse_archive(std::string_view why) {
  throw Error(Code::invalid, fmt::format("not an export of runs: {}", why));
}

void put(Block& block, Place place, std::string_view text) {
  std::memcpy(block.data() + place.at, text.data(), std::min(text.size(), place.bytes));
}

void put_octal(Block& block, Place place, std::uint64_t value) {
  put(block, place, fmt::format("{:0{}o}", value, place.bytes - 1));
}

std::string_view field(const Block& block, Place place) {
  const auto text = as_text(block).substr(place.at, place.bytes);
  return text.substr(0, text.find('\0'));
}

std::uint64_t octal(const Block& block, Place place) {
  const auto text = trim(field(block, place));
  if (text.empty()) refuse_archive("a header without a number");
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '7' || value > kOctalMax) refuse_archive("a header with a bad number");
    value = value * 8 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

// The sum of a header's bytes, with spaces in place of the sum itself.
std::uint64_t checksum(const Block& block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i)
    sum += i >= kChecksum.at && i < kChecksum.at + kChecksum.bytes ? std::uint64_t{' '}
                                                                   : std::to_integer<std::uint64_t>(block[i]);
  return sum;
}

void append_block(Bytes& out, char type, std::string_view name, std::uint64_t bytes, std::int64_t modified_unix_s) {
  Block block{};
  put(block, kName, name);
  put_octal(block, kMode, 0644);
  put_octal(block, kUser, 0);
  put_octal(block, kGroup, 0);
  put_octal(block, kSize, bytes);
  put_octal(block, kModified, static_cast<std::uint64_t>(std::clamp<std::int64_t>(modified_unix_s, 0, kOctalMax)));
  put(block, kType, std::string_view(&type, 1));
  put(block, kMagic, kUstar);
  put(block, kChecksum, fmt::format("{:06o}", checksum(block)) + std::string("\0 ", 2));
  out.insert(out.end(), block.begin(), block.end());
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

// "LENGTH key=value\n", where LENGTH counts itself too.
std::string pax_record(std::string_view key, std::string_view value) {
  const auto rest = key.size() + value.size() + 3;
  auto length = rest + 1;
  while (std::to_string(length).size() + rest != length) length = std::to_string(length).size() + rest;
  return fmt::format("{} {}={}\n", length, key, value);
}

std::string pax_of(const TarMember& member) {
  std::string out;
  if (member.name.size() > kName.bytes || !is_ascii(member.name)) out += pax_record("path", member.name);
  if (member.bytes > kOctalMax) out += pax_record("size", std::to_string(member.bytes));
  return out;
}

// What a pax header says in place of the header that follows.
struct Pax {
  std::optional<std::string> path;
  std::optional<std::uint64_t> size;
};

Pax parse_pax(std::string_view text) {
  Pax out;
  while (!text.empty()) {
    const auto space = text.find(' ');
    const auto length = parse_int(text.substr(0, space));
    if (space == std::string_view::npos || !length || *length < static_cast<std::int64_t>(space) + 4 ||
        *length > static_cast<std::int64_t>(text.size()))
      refuse_archive("a damaged pax header");
    const auto record = text.substr(space + 1, static_cast<std::size_t>(*length) - space - 1);
    text.remove_prefix(static_cast<std::size_t>(*length));
    const auto equals = record.find('=');
    if (equals == std::string_view::npos || !record.ends_with('\n')) refuse_archive("a damaged pax header");
    const auto key = record.substr(0, equals), value = record.substr(equals + 1, record.size() - equals - 2);
    if (key == "path" && !out.path) {
      out.path = value;
    } else if (const auto size = parse_int(value); key == "size" && !out.size && size && *size >= 0) {
      out.size = static_cast<std::uint64_t>(*size);
    } else {
      refuse_archive(fmt::format("a pax header with '{}'", key.substr(0, 40)));
    }
  }
  return out;
}

}  // namespace

std::size_t tar_padding(std::uint64_t bytes) {
  return static_cast<std::size_t>((kTarBlockBytes - bytes % kTarBlockBytes) % kTarBlockBytes);
}

Bytes tar_header(const TarMember& member, std::int64_t modified_unix_s) {
  Bytes out;
  if (const auto pax = pax_of(member); !pax.empty()) {
    append_block(out, 'x', "pax", pax.size(), modified_unix_s);
    const auto view = as_bytes(pax);
    out.insert(out.end(), view.begin(), view.end());
    out.resize(out.size() + tar_padding(pax.size()));
  }
  const bool plain = member.name.size() <= kName.bytes && is_ascii(member.name);
  append_block(out, '0', plain ? std::string_view(member.name) : "long-name",
               member.bytes > kOctalMax ? 0 : member.bytes, modified_unix_s);
  return out;
}

std::uint64_t tar_bytes(const TarMember& member) {
  const auto pax = pax_of(member).size();
  return kTarBlockBytes + (pax == 0 ? 0 : kTarBlockBytes + pax + tar_padding(pax)) + member.bytes +
         tar_padding(member.bytes);
}

void TarReader::fill(std::span<std::byte> out) {
  while (!out.empty()) {
    const auto n = source_(out);
    if (n == 0) refuse_archive("the file ends too early");
    out = out.subspan(n);
  }
}

TarReader::Header TarReader::header() {
  Block block;
  fill(block);
  if (std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; })) return {};
  if (octal(block, kChecksum) != checksum(block)) refuse_archive("a header's checksum is wrong");
  if (!field(block, kPrefix).empty()) refuse_archive("a header with a prefix");
  const char type = std::to_integer<char>(block[kType.at]);
  return {type == '\0' ? '0' : type, {std::string(field(block, kName)), octal(block, kSize)}};
}

std::optional<TarMember> TarReader::next() {
  CHECK(left_ == 0, "the member before was not read to its end");
  std::array<std::byte, kTarBlockBytes> zeros;
  fill(std::span(zeros).first(padding_));
  padding_ = 0;
  Header found = header();
  if (found.type == 0) {
    expect_nothing_more();
    return std::nullopt;
  }
  if (found.type == 'x') {
    if (found.member.bytes > kPaxBytesMax) refuse_archive("a pax header that is too long");
    std::string text(found.member.bytes, '\0');
    fill(std::as_writable_bytes(std::span(text)));
    fill(std::span(zeros).first(tar_padding(text.size())));
    const auto pax = parse_pax(text);
    found = header();
    if (pax.path) found.member.name = *pax.path;
    if (pax.size) found.member.bytes = *pax.size;
  }
  if (found.type != '0') refuse_archive(fmt::format("'{}' is not a plain file", found.member.name.substr(0, 200)));
  left_ = found.member.bytes;
  padding_ = tar_padding(left_);
  return std::move(found.member);
}

std::size_t TarReader::read(std::span<std::byte> out) {
  if (left_ == 0 || out.empty()) return 0;
  const auto n = source_(out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), left_))));
  if (n == 0) refuse_archive("the file ends too early");
  left_ -= n;
  return n;
}

std::string TarReader::read_all(const TarMember& member, std::size_t bytes_max) {
  if (member.bytes > bytes_max)
    refuse_archive(fmt::format("'{}' has {} bytes, more than {}", member.name.substr(0, 200), member.bytes, bytes_max));
  std::string text(static_cast<std::size_t>(member.bytes), '\0');
  auto rest = std::as_writable_bytes(std::span(text));
  while (!rest.empty()) rest = rest.subspan(read(rest));
  return text;
}

// The second block of zeros, and the zeros that other programs fill up with.
void TarReader::expect_nothing_more() {
  std::array<std::byte, 4096> piece;
  std::size_t slack = 0;
  for (std::size_t n = 0; (n = source_(piece)) > 0;) {
    slack += n;
    if (slack > kSlackBytesMax || std::any_of(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(n),
                                              [](std::byte b) { return b != std::byte{0}; }))
      refuse_archive("something stands after its end");
  }
  if (slack < kTarBlockBytes) refuse_archive("the file ends too early");
}

}  // namespace falaj::track
