// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "foundation/base/bytes.h"

namespace falaj::execute::local {

// One member of an archive, as it names itself: nothing in it is to be trusted.
struct TarEntry {
  enum class Kind { file, directory, link, hard_link, other };
  Kind kind = Kind::other;
  std::string path;
  std::string target;  // of links
  unsigned mode = 0;   // permissions only
  std::int64_t bytes = 0;
};

// Reads tar archives (POSIX ustar and pax, and GNU's long names) from a stream of any length. Throws corrupt.
class TarReader {
 public:
  // Fills as much of `out` as there is; less only at the end.
  using Source = std::function<std::size_t(std::span<std::byte> out)>;
  explicit TarReader(Source source) : source_(std::move(source)) {}

  std::optional<TarEntry> next();                              // skips what was not read of the one before
  void read(const std::function<void(BytesView part)>& take);  // the bytes of the entry that next() gave

 private:
  struct Header;
  void fill(std::span<std::byte> out);
  std::string text_of(std::int64_t bytes);
  void take_pax(std::string_view records);
  void skip(std::int64_t bytes);

  const Source source_;
  std::int64_t left_ = 0, padding_ = 0;                  // of the entry
  std::map<std::string, std::string, std::less<>> pax_;  // what the next entry is told by the one before
};

}  // namespace falaj::execute::local
