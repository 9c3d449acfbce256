// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/sys/files.h"

namespace falaj::loader {

// memcpy takes no null pointer, not even to copy nothing.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// A group's number as what a row has of it: another for each, rising. Converted, those above 2^24 would be shared; as
// bits of normal numbers they are not, and survive arithmetic that flushes small ones.
inline float group_word(std::int64_t number) {
  constexpr std::uint32_t kSmallestNormal = 0x0080'0000;
  return std::bit_cast<float>(kSmallestNormal + static_cast<std::uint32_t>(number));
}

// What a row has once it is ready for a model.
struct Layout {
  std::size_t numbers = 0;  // float
  std::size_t ids = 0;      // int32: an entry of an embedding's table each
  std::size_t pixels = 0;   // bytes of an image
  friend bool operator==(const Layout&, const Layout&) = default;

  // Packed: numbers, ids, label, weight, group, pixels.
  std::size_t bytes() const { return (numbers + ids + 3) * 4 + pixels; }
  std::size_t label_at() const { return (numbers + ids) * 4; }
};

// Rows, one array for each part of them.
struct RowBlock {
  std::size_t rows = 0;
  std::vector<float> numbers;
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> pixels;
  std::vector<float> labels, weights, groups;
  Bytes packed;  // the same as it was read, kept for its memory

  void resize(const Layout& layout, std::size_t n);
  void put(const Layout& layout, std::size_t to, const std::byte* row);  // one that is packed
};

// Rows of one part of the data, preprocessed once and then read as often as wanted, at any place: an epoch in another
// order, the rows of another rank, a position of a checkpoint cost nothing. They lie in a file without a name, so data
// larger than memory is fine, and nothing is left of it whatever happens. Reading is thread-safe.
class Packed {
 public:
  Packed(sys::Files& scratch, Layout layout) : layout_(layout), file_(scratch.scratch()) {}

  void append(const RowBlock& block);                                // throws exhausted when the disk is full
  void read(std::size_t first, std::size_t n, RowBlock& out) const;  // Requires: first + n <= rows()
  // The same as they lie: n * layout().bytes(), row by row, in the order of Layout.
  void read_packed(std::size_t first, std::size_t n, std::byte* out) const;
  std::size_t rows() const { return rows_; }
  // How many rows to read at a time: `most`, or fewer when they are long.
  std::size_t rows_at_once(std::size_t most) const {
    constexpr std::size_t kBytes = 64 << 20;
    return std::clamp<std::size_t>(kBytes / layout_.bytes(), 1, most);
  }
  const Layout& layout() const { return layout_; }

 private:
  const Layout layout_;
  const std::unique_ptr<sys::ScratchFile> file_;
  std::size_t rows_ = 0;
  Bytes buffer_;  // of append
};

}  // namespace falaj::loader
