// SPDX-License-Identifier: Apache-2.0
#include "storage/online/row.h"

#include <bit>
#include <limits>
#include <string>
#include <utility>

namespace falaj::online {

namespace {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

constexpr std::uint8_t kFormat = 1;
constexpr std::size_t kHeadBytes = 12;  // format, 3 zeros, view version, fingerprint

bool is_text(Type type) { return type == Type::text || type == Type::bytes; }

std::uint32_t width(Type type) {
  switch (type) {
    case Type::boolean:
      return 1;
    case Type::int32:
    case Type::float32:
    case Type::date:
    case Type::text:
    case Type::bytes:
      return 4;
    case Type::int64:
    case Type::float64:
    case Type::timestamp:
      return 8;
  }
  CHECK(false, "every type has a width");
  return 0;
}

std::uint32_t word_at(BytesView row, std::size_t at) {
  std::uint32_t v;
  std::memcpy(&v, row.data() + at, sizeof v);
  return v;
}

}  // namespace

RowLayout::RowLayout(std::uint32_t view_version, std::vector<Type> columns)
    : view_version_(view_version), types_(std::move(columns)) {
  if (types_.size() > kColumnsMax)
    throw Error(Code::invalid, "a feature view has at most 4096 features, got " + std::to_string(types_.size()));
  offsets_.resize(types_.size());
  before_.resize(types_.size());
  std::uint32_t hash = 2166136261;  // FNV-1a
  for (const auto type : types_) hash = (hash ^ static_cast<std::uint32_t>(type)) * 16777619;
  fingerprint_ = hash;

  nulls_at_ = kHeadBytes;
  std::uint32_t at = static_cast<std::uint32_t>(kHeadBytes + (types_.size() + 7) / 8);
  for (const std::uint32_t wanted : {8U, 4U, 1U})
    for (std::size_t i = 0; i < types_.size(); ++i)
      if (!is_text(types_[i]) && width(types_[i]) == wanted) offsets_[i] = std::exchange(at, at + wanted);
  std::uint32_t before = 0;
  for (std::size_t i = 0; i < types_.size(); ++i) {
    if (!is_text(types_[i])) continue;
    before_[i] = before;
    before = offsets_[i] = std::exchange(at, at + 4);
  }
  fixed_bytes_ = at;
}

std::optional<RowView> RowLayout::view(BytesView row) const {
  if (row.size() < kHeadBytes) throw Error(Code::corrupt, "a stored row is too short");
  if (word_at(row, 0) != kFormat || word_at(row, 4) != view_version_ || word_at(row, 8) != fingerprint_)
    return std::nullopt;
  if (row.size() < fixed_bytes_) throw Error(Code::corrupt, "a stored row is too short");
  return RowView(*this, row);
}

RowWriter::RowWriter(const RowLayout& layout) : layout_(layout) { begin(); }

void RowWriter::begin() {
  row_.assign(layout_.fixed_bytes_, std::byte{0});
  row_[0] = std::byte{kFormat};
  std::memcpy(row_.data() + 4, &layout_.view_version_, 4);
  std::memcpy(row_.data() + 8, &layout_.fingerprint_, 4);
  for (std::size_t i = 0; i < layout_.columns(); ++i)
    row_[layout_.nulls_at_ + i / 8] |= static_cast<std::byte>(1U << i % 8);
  next_text_ = 0;
  finished_ = false;
}

template <class T>
void RowWriter::put(std::size_t column, T v) {
  if (finished_) begin();
  std::memcpy(row_.data() + layout_.offsets_[column], &v, sizeof v);
  row_[layout_.nulls_at_ + column / 8] &= ~static_cast<std::byte>(1U << column % 8);
}

void RowWriter::set_bool(std::size_t column, bool v) {
  CHECK(layout_.types_[column] == Type::boolean, "a column is set with its type");
  put(column, static_cast<std::uint8_t>(v));
}

void RowWriter::set_int(std::size_t column, std::int64_t v) {
  switch (layout_.types_[column]) {
    case Type::int64:
    case Type::timestamp:
      return put(column, v);
    case Type::int32:
    case Type::date:
      if (v != static_cast<std::int32_t>(v))
        throw Error(Code::invalid, "a value does not fit 32 bits: " + std::to_string(v));
      return put(column, static_cast<std::int32_t>(v));
    default:
      CHECK(false, "a column is set with its type");
  }
}

void RowWriter::set_real(std::size_t column, double v) {
  if (layout_.types_[column] == Type::float64) return put(column, v);
  CHECK(layout_.types_[column] == Type::float32, "a column is set with its type");
  put(column, static_cast<float>(v));
}

void RowWriter::set_bytes(std::size_t column, BytesView v) {
  CHECK(is_text(layout_.types_[column]), "a column is set with its type");
  if (finished_) begin();
  CHECK(column >= next_text_, "texts are set in the order of their columns");
  if (v.size() > std::numeric_limits<std::uint32_t>::max() - row_.size())
    throw Error(Code::invalid, "a row is larger than 4 GiB");
  // Texts left out end where the one before them ends.
  const auto end_before = static_cast<std::uint32_t>(row_.size());
  for (; next_text_ < column; ++next_text_)
    if (is_text(layout_.types_[next_text_])) std::memcpy(row_.data() + layout_.offsets_[next_text_], &end_before, 4);
  row_.insert(row_.end(), v.begin(), v.end());
  put(column, static_cast<std::uint32_t>(row_.size()));
  next_text_ = column + 1;
}

const Bytes& RowWriter::finish() {
  if (finished_) begin();
  const auto end = static_cast<std::uint32_t>(row_.size());
  for (; next_text_ < layout_.columns(); ++next_text_)
    if (is_text(layout_.types_[next_text_])) std::memcpy(row_.data() + layout_.offsets_[next_text_], &end, 4);
  finished_ = true;
  return row_;
}

BytesView RowView::bytes(std::size_t column) const {
  CHECK(is_text(layout_->types_[column]), "a column is read with its type");
  const auto before = layout_->before_[column];
  const std::size_t begin = before == 0 ? layout_->fixed_bytes_ : word_at(row_, before);
  const std::size_t end = word_at(row_, layout_->offsets_[column]);
  if (begin < layout_->fixed_bytes_ || begin > end || end > row_.size())
    throw Error(Code::corrupt, "a stored row holds a text that lies outside of it");
  return row_.subspan(begin, end - begin);
}

}  // namespace falaj::online
