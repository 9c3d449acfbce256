// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "foundation/base/bytes.h"
#include "storage/blob/object.h"

namespace falaj::track {

// The part of POSIX tar that an export is made of: plain files. A name that is long or not ASCII, and a size past
// 8 GiB, stand in a pax header before the file's own.
struct TarMember {
  std::string name;
  std::uint64_t bytes = 0;
  friend bool operator==(const TarMember&, const TarMember&) = default;
};

inline constexpr std::size_t kTarBlockBytes = 512, kTarEndBytes = 2 * kTarBlockBytes;

Bytes tar_header(const TarMember& member, std::int64_t modified_unix_s);
std::size_t tar_padding(std::uint64_t bytes);      // zeros after so many bytes of content
std::uint64_t tar_bytes(const TarMember& member);  // that header, content and padding take

// Reads members in the order of the file. Anything but plain files (links, devices, directories), a damaged header and
// a file that ends early throw invalid.
class TarReader {
 public:
  explicit TarReader(blob::Source source) : source_(std::move(source)) {}

  // The next member; nothing at the end, which must be the end of the file too. Requires: the one before was read to
  // its end.
  std::optional<TarMember> next();
  std::size_t read(std::span<std::byte> out);  // of the member; 0 at its end
  // All of the member. Throws invalid when it has more bytes than that.
  std::string read_all(const TarMember& member, std::size_t bytes_max);

 private:
  struct Header {
    char type = 0;  // 0: the end
    TarMember member;
  };
  Header header();
  void fill(std::span<std::byte> out);
  void expect_nothing_more();

  blob::Source source_;
  std::uint64_t left_ = 0;
  std::size_t padding_ = 0;
};

}  // namespace falaj::track
