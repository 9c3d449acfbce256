// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/push_room.h"

#include <fmt/format.h>

#include "foundation/base/bytes.h"

namespace falaj::features {
namespace {

using table::Type;

// As what a filler can put it in, and how it becomes what it is.
std::string_view stored_as(Type type) {
  switch (type) {
    case Type::float32:
    case Type::float64:
      return "DOUBLE";
    case Type::text:
    case Type::bytes:
      return "VARCHAR";
    default:
      return "BIGINT";
  }
}

std::string as_column(const table::Column& column) {
  const auto name = table::identifier(column.name);
  switch (column.type) {
    case Type::bytes:
      return fmt::format("from_base64({})", name);
    case Type::date:
      return fmt::format("(DATE '1970-01-01' + {}::INTEGER)", name);
    case Type::timestamp:
      return fmt::format("make_timestamp({})", name);
    default:
      return fmt::format("CAST({} AS {})", name, table::sql_name(column.type));
  }
}

}  // namespace

std::string PushRoom::name_of(const std::string& dataset, const table::Schema& schema) {
  std::string out = dataset;
  for (const auto& column : schema) out += fmt::format("\n{} {}", column.name, table::name(column.type));
  return out;
}

PushRoom::PushRoom(std::unique_ptr<table::Workspace> room, const std::string& dataset, table::Schema schema)
    : room_(std::move(room)), schema_(std::move(schema)) {
  std::string stored, columns;
  for (const auto& column : schema_) {
    stored +=
        fmt::format("{}{} {}", stored.empty() ? "" : ", ", table::identifier(column.name), stored_as(column.type));
    columns +=
        fmt::format("{}{} AS {}", columns.empty() ? "" : ", ", as_column(column), table::identifier(column.name));
  }
  room_->run("SET threads = 1");  // a push is small
  room_->run(fmt::format("CREATE TABLE \"falaj pushed\" ({})", stored));
  room_->run(fmt::format("CREATE VIEW {} AS SELECT {} FROM \"falaj pushed\"", table::identifier(dataset), columns));
}

void PushRoom::fill(const std::vector<std::vector<lookup::Value>>& rows) {
  room_->run("TRUNCATE \"falaj pushed\"");
  auto filler = room_->fill("falaj pushed");
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (const auto* flag = std::get_if<bool>(&row[i]))
        filler.add(static_cast<std::int64_t>(*flag));
      else if (const auto* whole = std::get_if<std::int64_t>(&row[i]))
        filler.add(*whole);
      else if (const auto* real = std::get_if<double>(&row[i]))
        filler.add(*real);
      else if (const auto* text = std::get_if<std::string>(&row[i]))
        filler.add(schema_[i].type == Type::bytes ? std::string_view(to_base64(as_bytes(*text)))
                                                  : std::string_view(*text));
      else
        filler.null();
    }
    filler.end_row();
  }
  filler.finish();
}

}  // namespace falaj::features
