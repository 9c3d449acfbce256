// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/sys/files.h"

namespace falaj::loader {

// What a row has once it is ready for a model.
struct Layout {
  std::size_t numbers = 0;  // float
  std::size_t ids = 0;      // int32: an entry of an embedding's table each
  friend bool operator==(const Layout&, const Layout&) = default;

  // Label, weight and group come last.
  std::size_t words() const { return numbers + ids + 3; }
};

// Rows, one array for each part of them.
struct RowBlock {
  std::size_t rows = 0;
  std::vector<float> numbers;
  std::vector<std::int32_t> ids;
  std::vector<float> labels, weights, groups;

  void resize(const Layout& layout, std::size_t n);
};

// Rows of one part of the data, preprocessed once and then read as often as wanted, at any place: an epoch in another
// order, the rows of another rank, a position of a checkpoint cost nothing. They lie in a file without a name, so data
// larger than memory is fine, and nothing is left of it whatever happens. Reading is thread-safe.
class Packed {
 public:
  Packed(sys::Files& scratch, Layout layout) : layout_(layout), file_(scratch.scratch()) {}

  void append(const RowBlock& block);                                // throws exhausted when the disk is full
  void read(std::size_t first, std::size_t n, RowBlock& out) const;  // Requires: first + n <= rows()
  std::size_t rows() const { return rows_; }
  const Layout& layout() const { return layout_; }

 private:
  const Layout layout_;
  const std::unique_ptr<sys::ScratchFile> file_;
  std::size_t rows_ = 0;
  Bytes buffer_;  // of append
};

}  // namespace falaj::loader
