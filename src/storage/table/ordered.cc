// SPDX-License-Identifier: Apache-2.0
#include "storage/table/ordered.h"

#include <fmt/format.h>

namespace falaj::table {
namespace {

constexpr double kShareOfMemory = 0.25;  // that a piece's texts may take: threads sort and merge runs of it at once

struct Size {
  std::int64_t rows = 0, text_bytes = 0;
};
Size size_of(Workspace& room, const std::string& table, const Workspace::Watch& watch) {
  std::string texts;
  for (const auto& column : room.describe("SELECT * FROM " + identifier(table)))
    if (column.type == Type::text || column.type == Type::bytes)
      texts += fmt::format(" + coalesce(octet_length(CAST({} AS BLOB)), 0)", identifier(column.name));
  Size out;
  room.query(
      fmt::format("SELECT count(*), CAST(coalesce(sum(0{}), 0) AS BIGINT) FROM {}", texts, identifier(table)), {},
      [&](const Chunk& chunk) {
        out = {chunk.integer(0, 0), chunk.integer(1, 0)};
        return true;
      },
      watch);
  return out;
}

std::int64_t pieces_of(Workspace& room, double bytes) {
  return static_cast<std::int64_t>(bytes / (static_cast<double>(room.memory_bytes()) * kShareOfMemory)) + 1;
}

}  // namespace

std::int64_t pieces_to_sort(Workspace& room, const std::string& table, std::optional<std::int64_t> rows,
                            const Workspace::Watch& watch) {
  const auto size = size_of(room, table, watch);
  if (size.rows == 0) return 1;
  const double each = static_cast<double>(size.text_bytes) / static_cast<double>(size.rows);
  return pieces_of(room, each * static_cast<double>(rows.value_or(size.rows)));
}

void put_in_order(Workspace& room, const std::string& from, const std::string& by, const std::string& into,
                  const Workspace::Watch& watch) {
  const auto whole = identifier(from), places = identifier(into + " places"), out = identifier(into);
  const auto size = size_of(room, from, watch);
  const auto pieces = pieces_of(room, static_cast<double>(size.text_bytes));
  if (pieces == 1)
    return room.run(fmt::format("CREATE OR REPLACE TABLE {} AS SELECT * FROM {} ORDER BY {}", out, whole, by), {},
                    watch);
  room.run(fmt::format("CREATE OR REPLACE TABLE {} AS SELECT row_number() OVER () AS place, was FROM"
                       " (SELECT rowid AS was FROM {} ORDER BY {})",
                       places, whole, by),
           {}, watch);
  room.run(fmt::format("CREATE OR REPLACE TABLE {} AS SELECT * FROM {} LIMIT 0", out, whole));
  for (std::int64_t i = 0; i < pieces; ++i)
    room.run(fmt::format("INSERT INTO {0} SELECT f.* FROM {1} f JOIN {2} p ON p.was = f.rowid"
                         " WHERE p.place > {3} AND p.place <= {4} ORDER BY p.place",
                         out, whole, places, size.rows * i / pieces, size.rows * (i + 1) / pieces),
             {}, watch);
  room.run("DROP TABLE " + places);
}

}  // namespace falaj::table
