// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/event_cursor.h"

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::features {
namespace {

using table::identifier;

// Columns: the key, at_us, available_us, the number of the row, the inputs, the row's features.
std::string events_sql(const Definition& of, const std::string& rows, const std::string& condition) {
  const auto& plan = of.plan;
  const auto time = [](const std::string& column) {
    return fmt::format("epoch_us({}::TIMESTAMP)", identifier(column));
  };
  std::string select, keys, there;
  for (std::size_t i = 0; i < plan.key.size(); ++i) {
    select += fmt::format("{}CAST({} AS {}) AS falaj_key{}", i == 0 ? "" : ", ", identifier(plan.key[i]),
                          table::sql_name(plan.key_types[i]), i);
    keys += fmt::format("{}falaj_key{}", i == 0 ? "" : ", ", i);
    there += fmt::format(" AND falaj_key{} IS NOT NULL", i);
  }
  select += fmt::format(", {} AS at_us, {} AS available_us, falaj_source_row", time(plan.at),
                        time(plan.available.empty() ? plan.at : plan.available));
  for (const auto& input : plan.inputs) select += fmt::format(", ({})::DOUBLE", input);
  for (const auto& feature : plan.rows)
    select += fmt::format(", CAST({} AS {})", identifier(feature.column), table::sql_name(feature.type));
  return fmt::format(
      "SELECT * FROM (SELECT {} FROM (SELECT row_number() OVER () AS falaj_source_row, * FROM {}))"
      " WHERE at_us IS NOT NULL AND available_us IS NOT NULL{}{}{} ORDER BY {}, falaj_source_row",
      select, rows, there, condition.empty() ? "" : " AND ", condition, keys);
}

}  // namespace

lookup::Value value_of(const table::Chunk& chunk, std::size_t column, std::size_t row) {
  using table::Type;
  if (chunk.is_null(column, row)) return {};
  switch (chunk.type(column)) {
    case Type::boolean:
      return chunk.integer(column, row) != 0;
    case Type::float32:
    case Type::float64:
      return chunk.real(column, row);
    case Type::text:
    case Type::bytes:
      return std::string(chunk.text(column, row));
    default:
      return chunk.integer(column, row);
  }
}

EventCursor::EventCursor(table::Workspace& room, const Definition& of, const std::string& condition)
    : of_(of),
      cursor_(room.open(events_sql(of, lay_out_rows(room, of, "falaj rows"), condition))),
      writer_(of.view->layout) {
  event_.cells.resize(of.plan.inputs.size());
  step();
}

void EventCursor::step() {
  do chunk_ = cursor_.next();
  while (chunk_ && chunk_->rows() == 0);
  at_ = 0;
  if (chunk_) load();
}

void EventCursor::next() {
  if (++at_ == chunk_->rows())
    step();
  else
    load();
}

void EventCursor::load() {
  const auto first = of_.plan.key.size();
  event_.at_us = chunk_->integer(first, at_);
  event_.available_us = chunk_->integer(first + 1, at_);
  event_.row = static_cast<std::uint64_t>(chunk_->integer(first + 2, at_));
  for (std::size_t i = 0; i < event_.cells.size(); ++i)
    event_.cells[i] = chunk_->is_null(first + 3 + i, at_) ? Cell() : chunk_->real(first + 3 + i, at_);
}

Bytes EventCursor::key() const {
  std::vector<lookup::Value> values;
  for (std::size_t i = 0; i < of_.plan.key.size(); ++i) values.push_back(value_of(*chunk_, i, at_));
  return lookup::entity_key(of_.view->key, values);
}

Bytes EventCursor::row() {
  using table::Type;
  const auto first = of_.plan.key.size() + 3 + of_.plan.inputs.size();
  for (std::size_t i = 0; i < of_.plan.rows.size(); ++i) {
    if (chunk_->is_null(first + i, at_)) continue;
    switch (of_.plan.rows[i].type) {
      case Type::boolean:
        writer_.set_bool(i, chunk_->integer(first + i, at_) != 0);
        break;
      case Type::float32:
      case Type::float64:
        writer_.set_real(i, chunk_->real(first + i, at_));
        break;
      case Type::text:
      case Type::bytes:
        writer_.set_text(i, chunk_->text(first + i, at_));
        break;
      default:
        writer_.set_int(i, chunk_->integer(first + i, at_));
    }
  }
  return writer_.finish();
}

}  // namespace falaj::features
