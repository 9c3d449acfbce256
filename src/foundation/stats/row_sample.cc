// SPDX-License-Identifier: Apache-2.0
#include "foundation/stats/row_sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "foundation/base/error.h"
#include "foundation/stats/wire.h"

namespace falaj::stats {

namespace {

constexpr std::size_t kSampleNameMax = 512;

float narrow(double value) {
  const auto out = static_cast<float>(value);
  return std::isfinite(out) ? out : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

RowSample::RowSample(std::vector<Column> columns, std::uint32_t limit) : columns_(std::move(columns)), limit_(limit) {
  CHECK(columns_.size() <= kWidthMax && limit >= 1 && limit <= kRowsMax, "a sample is within its limits");
}

std::uint64_t RowSample::key(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t z = seed + (number + 1) * 0x9e3779b97f4a7c15;  // splitmix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return std::min(z ^ (z >> 31), UINT64_MAX - 1);  // below the bound of a sample that has all rows
}

void RowSample::add(std::uint64_t key, std::span<const double> row) {
  CHECK(row.size() == columns_.size(), "a row has every column");
  ++seen_;
  if (key >= bound_) return;
  keys_.push_back(key);
  for (const double value : row) values_.push_back(narrow(value));
  if (keys_.size() > limit_ + limit_ / 4) drop_beyond();  // not at every row: each time moves all of them
}

void RowSample::drop_beyond() {
  if (keys_.size() > limit_) {
    auto ordered = keys_;
    std::nth_element(ordered.begin(), ordered.begin() + limit_, ordered.end());
    bound_ = std::min(bound_, ordered[limit_]);
  }
  const std::size_t width = columns_.size();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] >= bound_) continue;
    if (kept != i) {
      keys_[kept] = keys_[i];
      std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                  values_.begin() + static_cast<std::ptrdiff_t>(kept * width));
    }
    ++kept;
  }
  keys_.resize(kept);
  values_.resize(kept * width);
}

void RowSample::merge(const RowSample& other) {
  if (other.columns_.empty()) return;
  if (columns_ != other.columns_) *this = RowSample(other.columns_, std::max(limit_, other.limit_));
  seen_ += other.seen_;
  bound_ = std::min(bound_, other.bound_);
  keys_.insert(keys_.end(), other.keys_.begin(), other.keys_.end());
  values_.insert(values_.end(), other.values_.begin(), other.values_.end());
  drop_beyond();
}

void RowSample::set_limit(std::uint32_t limit) {
  CHECK(limit >= 1 && limit <= kRowsMax, "a sample is within its limits");
  limit_ = limit;
  drop_beyond();
}

void RowSample::encode(ByteWriter& out) const {
  if (keys_.size() > limit_) {
    auto fewer = *this;
    fewer.drop_beyond();
    return fewer.encode(out);
  }
  out.u32(limit_);
  out.u64(bound_);
  out.u64(seen_);
  out.u8(static_cast<std::uint8_t>(columns_.size()));
  for (const auto& column : columns_) {
    out.text(column.name);
    out.u8(column.text ? 1 : 0);
  }
  out.u32(static_cast<std::uint32_t>(keys_.size()));
  for (const auto key : keys_) out.u64(key);
  for (const double value : values_) out.u32(std::bit_cast<std::uint32_t>(narrow(value)));
}

RowSample RowSample::decode(ByteReader& in) {
  RowSample out;
  out.limit_ = in.u32();
  must_be(out.limit_ >= 1 && out.limit_ <= kRowsMax, "its limit");
  out.bound_ = in.u64();
  out.seen_ = get_count(in);
  const std::size_t width = in.u8();
  must_be(width <= kWidthMax, "its columns");
  for (std::size_t i = 0; i < width; ++i) {
    Column column;
    column.name = in.text();
    const auto text = in.u8();
    must_be(text <= 1 && column.name.size() <= kSampleNameMax, "a column");
    column.text = text == 1;
    out.columns_.push_back(std::move(column));
  }
  const std::size_t rows = in.u32();
  must_be(rows <= out.limit_ && rows <= out.seen_ && rows <= in.left() / (8 + 4 * width) && (width > 0 || rows == 0),
          "its rows");
  for (std::size_t i = 0; i < rows; ++i) {
    out.keys_.push_back(in.u64());
    must_be(out.keys_.back() < out.bound_, "a key");
  }
  out.values_.reserve(rows * width);
  for (std::size_t i = 0; i < rows * width; ++i) out.values_.push_back(narrow(double{std::bit_cast<float>(in.u32())}));
  return out;
}

double text_code(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<double>((hash ^ (hash >> 24) ^ (hash >> 48)) & 0xffffff);
}

}  // namespace falaj::stats
