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

void Packed::read(std::size_t first, std::size_t n, RowBlock& out) const {
  CHECK(first + n <= rows_, "rows that are there are read");
  const auto row_bytes = layout_.bytes(), numbers = layout_.numbers * 4, ids = layout_.ids * 4;
  Bytes bytes(n * row_bytes);
  if (file_->read(first * row_bytes, bytes) != bytes.size()) throw Error(Code::corrupt, "packed rows end too early");
  out.resize(layout_, n);
  const auto* at = bytes.data();
  for (std::size_t i = 0; i < n; ++i) {
    copy_bytes(out.numbers.data() + i * layout_.numbers, at, numbers);
    copy_bytes(out.ids.data() + i * layout_.ids, at + numbers, ids);
    float rest[3];
    copy_bytes(rest, at + numbers + ids, sizeof rest);
    copy_bytes(out.pixels.data() + i * layout_.pixels, at + numbers + ids + sizeof rest, layout_.pixels);
    out.labels[i] = rest[0];
    out.weights[i] = rest[1];
    out.groups[i] = rest[2];
    at += row_bytes;
  }
}

}  // namespace falaj::loader
