// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/ask.h"

#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::data {
namespace {

constexpr std::size_t kTablesMax = 100;

// About what a row of an answer takes.
std::uint64_t bytes_of(const table::Chunk& chunk, std::size_t row) {
  std::uint64_t out = 0;
  for (std::size_t c = 0; c < chunk.columns(); ++c) {
    out += sizeof(double);
    const auto type = chunk.type(c);
    if ((type == table::Type::text || type == table::Type::bytes) && !chunk.is_null(c, row))
      out += chunk.text(c, row).size();
  }
  return out;
}

}  // namespace

table::Workspace::Watch patience(const sys::Clock& clock, sys::Micros time_max, std::function<bool()> is_abandoned) {
  return [&clock, time_max, end = clock.now() + time_max, is_abandoned = std::move(is_abandoned)](double) {
    if (clock.now() > end)
      throw Error(Code::deadline,
                  fmt::format("the query took longer than {} and was stopped", format_duration_us(time_max.count())));
    if (is_abandoned && is_abandoned()) throw Error(Code::cancelled, "nobody waits for the answer any more");
  };
}

Answered ask(Datasets& datasets, const Where& where, const Ask& question, const sys::Clock& clock,
             const std::function<void(const std::string& dataset)>& may_read,
             const std::function<void(const table::Chunk&, std::size_t rows)>& each) {
  const auto watch = patience(clock, question.time_max, question.is_abandoned);
  const auto room = datasets.room();
  room->check_user_sql(question.sql);
  std::set<std::string> opened;
  while (const auto table = room->missing_table(question.sql)) {
    if (opened.size() == kTablesMax)
      throw Error(Code::exhausted, fmt::format("a query has at most {} tables", kTablesMax));
    // "elsewhere.flights" stays missing whatever is opened here.
    if (!opened.insert(*table).second)
      throw Error(Code::invalid, fmt::format("'{}': a dataset is named alone, without a schema before it", *table));
    const auto named = parse_version_name(*table);
    may_read(named.name);
    watch(0);
    datasets.open(*room, where, datasets.version(where, named.name, named.number), *table);
  }
  if (opened.empty()) may_read("");
  room->confine();
  Answered out;
  std::uint64_t given = 0, bytes = 0;
  out.schema = room->query(
      question.sql, {},
      [&](const table::Chunk& chunk) {
        std::uint64_t rows = 0;
        while (rows < chunk.rows() && given < question.rows_max && bytes < question.bytes_max) {
          bytes += bytes_of(chunk, rows);
          ++rows, ++given;
        }
        each(chunk, rows);
        out.whole = rows == chunk.rows();
        return out.whole;
      },
      watch);
  return out;
}

}  // namespace falaj::data
