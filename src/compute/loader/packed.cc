// SPDX-License-Identifier: Apache-2.0
#include "compute/loader/packed.h"

#include <cstring>

#include "foundation/base/error.h"

namespace falaj::loader {

void RowBlock::resize(const Layout& layout, std::size_t n) {
  rows = n;
  numbers.resize(n * layout.numbers);
  ids.resize(n * layout.ids);
  pixels.resize(n * layout.pixels);
  labels.resize(n);
  weights.resize(n);
  groups.resize(n);
}

void Packed::append(const RowBlock& block) {
  const auto row_bytes = layout_.bytes(), numbers = layout_.numbers * 4, ids = layout_.ids * 4;
  buffer_.resize(block.rows * row_bytes);
  auto* at = buffer_.data();
  for (std::size_t i = 0; i < block.rows; ++i) {
    copy_bytes(at, block.numbers.data() + i * layout_.numbers, numbers);
    copy_bytes(at + numbers, block.ids.data() + i * layout_.ids, ids);
    const float rest[3] = {block.labels[i], block.weights[i], block.groups[i]};
    copy_bytes(at + numbers + ids, rest, sizeof rest);
    copy_bytes(at + numbers + ids + sizeof rest, block.pixels.data() + i * layout_.pixels, layout_.pixels);
    at += row_bytes;
  }
  file_->write(rows_ * row_bytes, buffer_);
  rows_ += block.rows;
}

void RowBlock::put(const Layout& layout, std::size_t to, const std::byte* row) {
  const auto label_at = layout.label_at();
  copy_bytes(numbers.data() + to * layout.numbers, row, layout.numbers * 4);
  copy_bytes(ids.data() + to * layout.ids, row + layout.numbers * 4, layout.ids * 4);
  float rest[3];
  std::memcpy(rest, row + label_at, sizeof rest);
  labels[to] = rest[0];
  weights[to] = rest[1];
  groups[to] = rest[2];
  copy_bytes(pixels.data() + to * layout.pixels, row + label_at + sizeof rest, layout.pixels);
}

void Packed::read_packed(std::size_t first, std::size_t n, std::byte* out) const {
  CHECK(first + n <= rows_, "rows that are there are read");
  const auto row_bytes = layout_.bytes();
  if (file_->read(first * row_bytes, std::span(out, n * row_bytes)) != n * row_bytes)
    throw Error(Code::corrupt, "packed rows end too early");
}

void Packed::read(std::size_t first, std::size_t n, RowBlock& out) const {
  const auto row_bytes = layout_.bytes();
  out.packed.resize(n * row_bytes);
  read_packed(first, n, out.packed.data());
  out.resize(layout_, n);
  for (std::size_t i = 0; i < n; ++i) out.put(layout_, i, out.packed.data() + i * row_bytes);
}

}  // namespace falaj::loader
