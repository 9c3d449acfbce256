// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/dataset_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

namespace falaj::watch {
namespace {

using table::Type;

constexpr std::int64_t kDatasetRowsMax = 100'000, kDatasetBlocks = 32;
constexpr std::uint64_t kDatasetSeed = 1;

bool is_time(Type type) { return type == Type::date || type == Type::timestamp; }

// Rows that come one after the other, in blocks.
class Filling {
 public:
  Filling(std::vector<table::Column> columns, std::int64_t rows, bool whole)
      : columns_(std::move(columns)), rows_(rows), whole_(whole), blocks_(kDatasetBlocks), samples_(kDatasetBlocks) {
    std::vector<stats::RowSample::Column> of_rows;
    for (std::size_t c = 0; c < columns_.size() && of_rows.size() < stats::RowSample::kWidthMax; ++c) {
      if (is_time(columns_[c].type)) continue;
      of_rows.push_back({columns_[c].name, columns_[c].type == Type::text});
      places_.push_back(c);
    }
    for (auto& sample : samples_) sample = stats::RowSample(of_rows, kReferenceRows);
  }

  void add(const table::Chunk& chunk, std::size_t row) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    const auto block = static_cast<std::size_t>(std::min(kDatasetBlocks - 1, next_ * kDatasetBlocks / rows_));
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      auto& to = blocks_[block][columns_[c].name];
      if (columns_[c].type == Type::text)
        to.add(chunk.is_null(c, row) ? std::string_view() : chunk.text(c, row));
      else
        to.add(chunk.is_null(c, row) ? kNone : chunk.real(c, row));
    }
    if (whole_) {
      whole_row_.clear();
      for (const auto c : places_) {
        const bool text = columns_[c].type == Type::text;
        whole_row_.push_back(chunk.is_null(c, row) || (text && chunk.text(c, row).empty()) ? kNone
                             : text ? stats::text_code(chunk.text(c, row))
                                    : chunk.real(c, row));
      }
      samples_[block].add(stats::RowSample::key(kDatasetSeed, static_cast<std::uint64_t>(next_)), whole_row_);
    }
    ++next_;
  }

  Reference made(std::string is) const {
    auto out = whole_ ? make_reference(blocks_, std::move(is), samples_) : make_reference(blocks_, std::move(is));
    for (const auto& column : columns_)
      if (const auto found = out.columns.find(column.name); found != out.columns.end())
        found->second.time = is_time(column.type);
    return out;
  }

 private:
  std::vector<table::Column> columns_;
  const std::int64_t rows_;
  const bool whole_;
  std::int64_t next_ = 0;
  std::vector<traffic::Sketches> blocks_;
  std::vector<stats::RowSample> samples_;
  std::vector<std::size_t> places_;  // of the columns of whole rows
  std::vector<double> whole_row_;
};

}  // namespace

Reference read_dataset(data::Datasets& datasets, const vault::Where& where, const std::string& name,
                       std::int64_t number, const std::string& time, bool whole) {
  const auto version = datasets.version(where, name, number);
  std::vector<table::Column> columns;
  for (const auto& column : version.schema)
    if (column.type != Type::bytes && columns.size() < traffic::kWatchedColumnsMax) columns.push_back(column);
  if (columns.empty())
    throw Error(Code::invalid, fmt::format("{}@{} has no column that can be compared", name, number));
  const auto room = datasets.room();
  datasets.open(*room, where, version, "r");
  std::int64_t rows = 0;
  room->query("SELECT COUNT(*) FROM r", {}, [&](const table::Chunk& chunk) {
    rows = chunk.integer(0, 0);
    return true;
  });
  if (rows == 0) throw Error(Code::invalid, fmt::format("{}@{} has no rows", name, number));
  const auto step = (rows + kDatasetRowsMax - 1) / kDatasetRowsMax;
  std::string list;
  for (const auto& column : columns) list += (list.empty() ? "" : ", ") + table::identifier(column.name);
  const auto order = time.empty() ? std::string() : fmt::format("ORDER BY {}", table::identifier(time));
  const auto ordered = fmt::format("SELECT {} FROM r {}", list, order);
  Filling filling(std::move(columns), (rows + step - 1) / step, whole);
  std::int64_t at = 0;
  room->query(ordered, {}, [&](const table::Chunk& chunk) {
    for (std::size_t row = 0; row < chunk.rows(); ++row)
      if (at++ % step == 0) filling.add(chunk, row);
    return true;
  });
  return filling.made(fmt::format("{}@{}", name, number));
}

}  // namespace falaj::watch
