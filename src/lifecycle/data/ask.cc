// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/ask.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::data {
namespace {

constexpr std::size_t kTablesMax = 100;

}  // namespace

Answered ask(Datasets& datasets, const Where& where, const Ask& question, const sys::Clock& clock,
             const std::function<void(const std::string& dataset)>& may_read,
             const std::function<void(const table::Chunk&, std::size_t rows)>& each) {
  const auto end = clock.now() + question.time_max;
  const auto watch = [&](double) {
    if (clock.now() > end)
      throw Error(Code::deadline, fmt::format("the query took longer than {} and was stopped",
                                              format_duration_us(question.time_max.count())));
  };
  const auto room = datasets.room();
  for (std::size_t tables = 0; const auto table = room->missing_table(question.sql); ++tables) {
    if (tables == kTablesMax) throw Error(Code::exhausted, fmt::format("a query has at most {} tables", kTablesMax));
    const auto named = parse_version_name(*table);
    may_read(named.name);
    datasets.open(*room, where, datasets.version(where, named.name, named.number), *table);
  }
  room->confine();
  Answered out;
  std::uint64_t given = 0;
  out.schema = room->query(
      question.sql, {},
      [&](const table::Chunk& chunk) {
        const auto rows = std::min<std::uint64_t>(chunk.rows(), question.rows_max - given);
        each(chunk, rows);
        given += rows;
        out.whole = rows == chunk.rows();
        return out.whole;
      },
      watch);
  return out;
}

}  // namespace falaj::data
