// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/local/tar_reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::execute::local {
namespace {

constexpr std::int64_t kBlock = 512;
constexpr std::int64_t kTextBytesMax = 1 << 20;
constexpr std::size_t kNameBytesMax = 4096;

[[noreturn]] void broken(const char* what) {
  throw Error(Code::corrupt, std::string("reading a tar archive: ") + what);
}

std::string_view field(const char* at, std::size_t size) { return {at, ::strnlen(at, size)}; }

// Octal digits, or, with the first bit set, a big-endian number.
std::int64_t number(std::string_view raw) {
  std::int64_t out = 0;
  if (!raw.empty() && (static_cast<unsigned char>(raw[0]) & 0x80)) {
    for (std::size_t i = 0; i < raw.size(); ++i) {
      const auto digit = static_cast<unsigned char>(raw[i]) & (i == 0 ? 0x7f : 0xff);
      if (out >> 54) broken("a number too large");
      out = (out << 8) | digit;
    }
    return out;
  }
  for (const char c : raw) {
    if (c == ' ' || c == '\0') continue;
    if (c < '0' || c > '7' || (out >> 59)) broken("a number that is none");
    out = out * 8 + (c - '0');
  }
  return out;
}

}  // namespace

struct TarReader::Header {
  char name[100], mode[8], uid[8], gid[8], size[12], time[12], sum[8], type, link[100], magic[6], version[2], user[32],
      group[32], major[8], minor[8], prefix[155], rest[12];

  bool is_empty() const {
    const auto* bytes = reinterpret_cast<const char*>(this);
    return std::all_of(bytes, bytes + sizeof *this, [](char c) { return c == 0; });
  }
  bool sums_up() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(this);
    std::int64_t sum_of = 0;
    for (std::size_t i = 0; i < sizeof *this; ++i) sum_of += i >= 148 && i < 156 ? ' ' : bytes[i];
    return sum_of == number({sum, sizeof sum});
  }
};

void TarReader::fill(std::span<std::byte> out) {
  if (source_(out) != out.size()) broken("it ends early");
}

void TarReader::skip(std::int64_t bytes) {
  std::array<std::byte, 16'384> waste;
  while (bytes > 0) {
    const auto now = static_cast<std::size_t>(std::min<std::int64_t>(bytes, waste.size()));
    fill(std::span(waste).first(now));
    bytes -= static_cast<std::int64_t>(now);
  }
}

std::string TarReader::text_of(std::int64_t bytes) {
  if (bytes > kTextBytesMax) broken("a name too long");
  std::string out(static_cast<std::size_t>(bytes), '\0');
  fill(std::as_writable_bytes(std::span(out)));
  skip((kBlock - bytes % kBlock) % kBlock);
  return out;
}

// "<length> <key>=<value>\n", the length of the whole.
void TarReader::take_pax(std::string_view records) {
  while (!records.empty()) {
    const auto space = records.find(' ');
    const auto length = space == std::string_view::npos ? std::nullopt : parse_int(records.substr(0, space));
    if (!length || *length <= static_cast<std::int64_t>(space) + 1 ||
        *length > static_cast<std::int64_t>(records.size()))
      broken("an extended header");
    const auto record = records.substr(space + 1, static_cast<std::size_t>(*length) - space - 2);
    const auto equals = record.find('=');
    if (equals == std::string_view::npos) broken("an extended header");
    pax_[std::string(record.substr(0, equals))] = std::string(record.substr(equals + 1));
    records.remove_prefix(static_cast<std::size_t>(*length));
  }
}

std::optional<TarEntry> TarReader::next() {
  static_assert(sizeof(Header) == kBlock);
  skip(left_ + padding_);
  left_ = padding_ = 0;
  for (;;) {
    Header header;
    const auto got = source_(std::as_writable_bytes(std::span(&header, 1)));
    if (got == 0) return std::nullopt;  // some writers leave out the blocks that end it
    if (got != sizeof header) broken("it ends early");
    if (header.is_empty()) return std::nullopt;
    if (!header.sums_up()) broken("a header's checksum does not match");
    const std::int64_t bytes = number({header.size, sizeof header.size});
    switch (header.type) {
      case 'x':
        take_pax(text_of(bytes));
        continue;
      case 'g':
        text_of(bytes);
        continue;
      case 'L':
        pax_["path"] = field(text_of(bytes).c_str(), kNameBytesMax + 1);
        continue;
      case 'K':
        pax_["linkpath"] = field(text_of(bytes).c_str(), kNameBytesMax + 1);
        continue;
      default:
        break;
    }
    TarEntry entry;
    entry.path = field(header.name, sizeof header.name);
    if (std::string_view(header.magic, 5) == "ustar" && header.prefix[0] != 0 && header.magic[5] == 0)
      entry.path = std::string(field(header.prefix, sizeof header.prefix)) + "/" + entry.path;
    entry.target = field(header.link, sizeof header.link);
    entry.bytes = bytes;
    if (const auto path = pax_.find("path"); path != pax_.end()) entry.path = path->second;
    if (const auto target = pax_.find("linkpath"); target != pax_.end()) entry.target = target->second;
    if (const auto size = pax_.find("size"); size != pax_.end()) entry.bytes = parse_int(size->second).value_or(-1);
    pax_.clear();
    if (entry.path.size() > kNameBytesMax || entry.target.size() > kNameBytesMax) broken("a name too long");
    if (entry.bytes < 0) broken("a size below 0");
    entry.mode = static_cast<unsigned>(number({header.mode, sizeof header.mode})) & 0777;
    switch (header.type) {
      case '\0':
      case '0':
      case '7':
        entry.kind = entry.path.ends_with('/') ? TarEntry::Kind::directory : TarEntry::Kind::file;
        break;
      case '1':
        entry.kind = TarEntry::Kind::hard_link;
        break;
      case '2':
        entry.kind = TarEntry::Kind::link;
        break;
      case '5':
        entry.kind = TarEntry::Kind::directory;
        break;
      default:
        break;
    }
    if (entry.kind == TarEntry::Kind::hard_link || entry.kind == TarEntry::Kind::link) entry.bytes = 0;
    left_ = entry.bytes;
    padding_ = (kBlock - entry.bytes % kBlock) % kBlock;
    return entry;
  }
}

void TarReader::read(const std::function<void(BytesView part)>& take) {
  std::array<std::byte, 65'536> part;
  while (left_ > 0) {
    const auto now = std::span(part).first(static_cast<std::size_t>(std::min<std::int64_t>(left_, part.size())));
    fill(now);
    left_ -= static_cast<std::int64_t>(now.size());
    take(now);
  }
}

}  // namespace falaj::execute::local
