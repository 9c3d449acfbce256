// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/statistics.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::data {
namespace {

using table::Type;

constexpr std::size_t kColumnsAtOnce = 64;  // a wide table is read a few columns at a time: each takes memory
constexpr int kTopMax = 20;
constexpr std::size_t kTextBytesMax = 200;  // of a value shown
constexpr double kQuantiles[] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

bool is_number(Type type) {
  return type == Type::int32 || type == Type::int64 || type == Type::float32 || type == Type::float64;
}
bool is_counted(Type type) { return type == Type::text || type == Type::boolean; }

// Seven results for every column, whatever its type, so that their places are known.
std::string questions(const table::Column& column) {
  const auto c = table::identifier(column.name);
  // NaN is neither the least nor the greatest, and no part of a mean.
  const auto finite = column.type == Type::float32 || column.type == Type::float64
                          ? fmt::format("CASE WHEN isfinite({0}) THEN {0}::DOUBLE END", c)
                          : c + "::DOUBLE";
  const auto extreme = [&](std::string_view which) {
    if (column.type == Type::bytes) return std::string("NULL");
    const bool real = column.type == Type::float32 || column.type == Type::float64;
    return fmt::format("left({}({})::VARCHAR, {})", which, real ? finite : c, kTextBytesMax);
  };
  std::string out =
      fmt::format("count(*) - count({0}), approx_count_distinct({0}), {1}, {2}", c, extreme("min"), extreme("max"));
  if (is_number(column.type)) {
    out += fmt::format(", avg({0}), stddev_pop({0}), approx_quantile({0}, [", finite);
    for (const auto q : kQuantiles) out += fmt::format("{}{}", q == kQuantiles[0] ? "" : ", ", q);
    out += "])::VARCHAR";
  } else {
    out += ", NULL, NULL, NULL";
  }
  return out;
}
constexpr std::size_t kAnswers = 7;

// "[1.0, 2.5]"; nothing when it is made of NULL, as for a column without a value.
std::vector<double> numbers_of(std::string_view list) {
  std::vector<double> out;
  for (const auto part : split(list.substr(1, list.size() - 2), ',')) {
    const auto text = trim(part);
    double number = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc()) out.push_back(number);
  }
  return out;
}

ColumnStats answers(const table::Chunk& chunk, std::size_t first, const table::Column& column) {
  ColumnStats s;
  s.name = column.name;
  s.type = table::name(column.type);
  s.nulls = chunk.integer(first, 0);
  s.distinct = chunk.integer(first + 1, 0);
  if (!chunk.is_null(first + 2, 0)) s.min = chunk.text(first + 2, 0);
  if (!chunk.is_null(first + 3, 0)) s.max = chunk.text(first + 3, 0);
  if (!is_number(column.type)) return s;
  if (!chunk.is_null(first + 4, 0)) s.mean = chunk.real(first + 4, 0);
  if (!chunk.is_null(first + 5, 0)) s.deviation = chunk.real(first + 5, 0);
  if (!chunk.is_null(first + 6, 0)) s.quantiles = numbers_of(chunk.text(first + 6, 0));
  return s;
}

void most_frequent(table::Workspace& room, const std::string& relation, ColumnStats& stats,
                   const table::Workspace::Watch& watch) {
  const auto c = table::identifier(stats.name);
  room.query(
      fmt::format("SELECT left({0}::VARCHAR, {1}), count(*) FROM {2} WHERE {0} IS NOT NULL GROUP BY 1"
                  " ORDER BY 2 DESC, 1 LIMIT {3}",
                  c, kTextBytesMax, relation, kTopMax),
      {},
      [&](const table::Chunk& chunk) {
        for (std::size_t i = 0; i < chunk.rows(); ++i) {
          stats.top.emplace_back(chunk.text(0, i));
          stats.top_counts.push_back(chunk.integer(1, i));
        }
        return true;
      },
      watch);
}

}  // namespace

std::vector<ColumnStats> statistics(table::Workspace& room, const std::string& relation, const table::Schema& schema,
                                    const table::Workspace::Watch& watch) {
  std::vector<ColumnStats> out;
  for (std::size_t first = 0; first < schema.size(); first += kColumnsAtOnce) {
    const auto end = std::min(schema.size(), first + kColumnsAtOnce);
    std::string sql = "SELECT ";
    for (auto i = first; i < end; ++i) sql += (i == first ? "" : ", ") + questions(schema[i]);
    sql += " FROM " + relation;
    room.query(
        sql, {},
        [&](const table::Chunk& chunk) {
          for (auto i = first; i < end; ++i) out.push_back(answers(chunk, (i - first) * kAnswers, schema[i]));
          return true;
        },
        watch);
  }
  for (std::size_t i = 0; i < out.size(); ++i)
    // Of a column where nearly every value is different, none is frequent.
    if (is_counted(schema[i].type) && out[i].distinct <= 100'000) most_frequent(room, relation, out[i], watch);
  return out;
}

}  // namespace falaj::data
