// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/error.h"

namespace falaj::online {

// What a feature can hold; the same list as storage/table's.
enum class Type : std::uint8_t { boolean, int32, int64, float32, float64, text, bytes, date, timestamp };

class RowView;

// Where each column of one version of a view lies in a row. Columns of fixed width come first, widest first, then the
// ends of texts, so every column is found by one addition. docs/formats/online_row.md has the bytes. Immutable.
class RowLayout {
 public:
  static constexpr std::size_t kColumnsMax = 4096;
  RowLayout(std::uint32_t view_version, std::vector<Type> columns);  // throws invalid when there are too many

  std::size_t columns() const { return types_.size(); }
  Type type(std::size_t column) const { return types_[column]; }
  std::uint32_t view_version() const { return view_version_; }
  // The row, or nothing when another version of the view, or other types, wrote it: no row is ever read by a layout
  // that is not its own. Throws corrupt when it is too short to be one.
  std::optional<RowView> view(BytesView row) const;

 private:
  friend class RowWriter;
  friend class RowView;
  const std::uint32_t view_version_;
  const std::vector<Type> types_;
  std::uint32_t fingerprint_ = 0;       // of the types in order
  std::vector<std::uint32_t> offsets_;  // of the value, or of the end of the text
  std::vector<std::uint32_t> before_;   // for texts: the offset of the end of the one before, 0 for the first
  std::uint32_t nulls_at_ = 0, fixed_bytes_ = 0;
};

// Builds one row after the other. Columns not set are null. Requires: each column is set at most once with its type,
// and texts in the order of their columns.
class RowWriter {
 public:
  explicit RowWriter(const RowLayout& layout);  // which must outlive it
  void set_bool(std::size_t column, bool v);
  void set_int(std::size_t column, std::int64_t v);  // int32, int64, date, timestamp; throws invalid when out of range
  void set_real(std::size_t column, double v);       // float32, float64
  void set_bytes(std::size_t column, BytesView v);   // text, bytes
  void set_text(std::size_t column, std::string_view v) { set_bytes(column, as_bytes(v)); }
  const Bytes& finish();  // valid until the next set; then begins the next row

 private:
  void begin();
  template <class T>
  void put(std::size_t column, T v);
  const RowLayout& layout_;
  Bytes row_;
  std::size_t next_text_ = 0;  // column
  bool finished_ = true;
};

// A row in place; reading a column copies nothing but the value. Requires: the column has the type asked for. A null
// column reads as zero or empty. Valid while layout and bytes are.
class RowView {
 public:
  bool is_null(std::size_t column) const {
    return (static_cast<unsigned>(row_[layout_->nulls_at_ + column / 8]) >> column % 8 & 1U) != 0;
  }
  // Here rather than in row.cc: fifty calls a row would cost as much as finding it.
  bool boolean(std::size_t column) const {
    CHECK(layout_->types_[column] == Type::boolean, "a column is read with its type");
    return load<std::uint8_t>(column) != 0;
  }
  std::int64_t integer(std::size_t column) const {
    const auto type = layout_->types_[column];
    if (type == Type::int64 || type == Type::timestamp) return load<std::int64_t>(column);
    CHECK(type == Type::int32 || type == Type::date, "a column is read with its type");
    return load<std::int32_t>(column);
  }
  double real(std::size_t column) const {
    if (layout_->types_[column] == Type::float64) return load<double>(column);
    CHECK(layout_->types_[column] == Type::float32, "a column is read with its type");
    return load<float>(column);
  }
  BytesView bytes(std::size_t column) const;  // throws corrupt
  std::string_view text(std::size_t column) const { return as_text(bytes(column)); }

 private:
  friend class RowLayout;
  RowView(const RowLayout& layout, BytesView row) : layout_(&layout), row_(row) {}
  template <class T>
  T load(std::size_t column) const {
    T v;
    std::memcpy(&v, row_.data() + layout_->offsets_[column], sizeof v);  // view() saw that it is there
    return v;
  }
  const RowLayout* layout_;
  BytesView row_;
};

// What can be said of one feature of one entity.
enum class Status : std::uint8_t { present, null, missing, expired };
// A row is expired when it is older than `ttl_us` (0: never) at `now_us`, by the time of its event.
inline bool is_expired(std::int64_t event_us, std::int64_t now_us, std::int64_t ttl_us) {
  return ttl_us > 0 && event_us<now_us&& static_cast<std::uint64_t>(now_us) -
                                static_cast<std::uint64_t>(event_us)> static_cast<std::uint64_t>(ttl_us);
}

}  // namespace falaj::online
