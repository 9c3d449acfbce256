// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/as_of.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/lookup/computed.h"
#include "storage/table/ordered.h"

namespace falaj::features {
namespace {

using lookup::Aggregate;
using lookup::Tiles;
using table::identifier;

// A cursor one row at a time.
class Rows {
 public:
  Rows(table::Workspace& room, const std::string& sql) : cursor_(room.open(sql)) { step(); }
  bool at_end() const { return chunk_ == nullptr; }
  void next() {
    if (++row_ == chunk_->rows()) step();
  }
  std::int64_t integer(std::size_t column) const { return chunk_->as<std::int64_t>(column)[row_]; }
  Cell cell(std::size_t column) const {
    if (chunk_->is_null(column, row_)) return std::nullopt;
    return chunk_->as<double>(column)[row_];
  }

 private:
  void step() {
    chunk_ = cursor_.next();
    row_ = 0;
  }
  table::Workspace::Cursor cursor_;
  const table::Chunk* chunk_ = nullptr;
  std::size_t row_ = 0;
};

std::string list(const std::vector<std::string>& columns, std::string_view before = "") {
  std::string out;
  for (const auto& column : columns) out += fmt::format("{}{}{}", out.empty() ? "" : ", ", before, identifier(column));
  return out;
}

std::string time_of(std::string_view alias, const std::string& column) {
  return fmt::format("epoch_us({}.{}::TIMESTAMP)", alias, identifier(column));
}

// Those of the spine, numbered, so that what is sorted and compared from here on is one integer.
void number_entities(table::Workspace& room, const std::string& spine, const ViewPlan& view, const std::string& table) {
  std::string there;
  for (const auto& key : view.spine_key)
    there += fmt::format("{}{} IS NOT NULL", there.empty() ? "" : " AND ", identifier(key));
  const auto keys = list(view.spine_key);
  room.run(
      fmt::format("CREATE OR REPLACE TABLE {0} AS SELECT row_number() OVER () AS falaj_entity, {1} FROM"
                  " (SELECT DISTINCT {1} FROM {2} WHERE {3} ORDER BY {1})",
                  table, keys, spine, there));
}

// What is computed of a row is computed where there are no other columns than the row's.
std::string events_sql(const ViewPlan& view, const std::string& entities) {
  const auto time = [](const std::string& column) {
    return fmt::format("epoch_us({}::TIMESTAMP)", identifier(column));
  };
  std::string of_row, inputs, same_key;
  for (std::size_t i = 0; i < view.key.size(); ++i) {
    of_row += fmt::format(", {} AS falaj_key{}", identifier(view.key[i]), i);
    same_key += fmt::format("{}s.falaj_key{} = n.{}", i == 0 ? "" : " AND ", i, identifier(view.spine_key[i]));
  }
  for (std::size_t i = 0; i < view.inputs.size(); ++i) {
    of_row += fmt::format(", ({})::DOUBLE AS falaj_input{}", view.inputs[i], i);
    inputs += fmt::format(", s.falaj_input{}", i);
  }
  return fmt::format(
      "SELECT n.falaj_entity, s.falaj_at, s.falaj_available, s.falaj_source_row{0} FROM (SELECT row_number() OVER () AS"
      " falaj_source_row, {1} AS falaj_at, {2} AS falaj_available{3} FROM {4}) s JOIN {5} n ON {6} WHERE s.falaj_at IS"
      " NOT NULL AND s.falaj_available IS NOT NULL ORDER BY n.falaj_entity, greatest(s.falaj_at, s.falaj_available),"
      " s.falaj_source_row",
      inputs, time(view.at), time(view.available.empty() ? view.at : view.available), of_row, identifier(view.relation),
      entities, same_key);
}

struct Newest {
  std::int64_t at_us = 0, available_us = 0, row = 0;
  bool there = false;
  void offer(const Event& event) {
    const auto r = static_cast<std::int64_t>(event.row);
    if (there && std::tie(event.at_us, event.available_us, r) < std::tie(at_us, available_us, row)) return;
    *this = {event.at_us, event.available_us, r, true};
  }
};

constexpr std::int64_t kNobody = 0;  // the entity of rows without key or time, of which nothing is known
constexpr std::size_t kWatchEvery = 16'384;

// Goes through time, entity by entity, over events in the order in which they became known.
void sweep(table::Workspace& room, Rows& events, Rows& spine, const ViewPlan& view, const std::string& into,
           const std::function<void(std::size_t rows)>& watch) {
  auto filler = room.fill(into);
  const auto features = view.windows.features().size();
  std::vector<Cell> cells(features);
  Event event;
  event.cells.resize(view.inputs.size());
  std::size_t rows = 0;
  const auto end_row = [&] {
    filler.end_row();
    if (++rows % kWatchEvery == 0) watch(rows);
  };
  for (; !spine.at_end() && spine.integer(0) == kNobody; spine.next()) {
    filler.add(spine.integer(2));
    for (std::size_t i = 0; i < features + 1; ++i) filler.null();
    end_row();
  }
  while (!spine.at_end()) {
    const auto entity = spine.integer(0);
    while (!events.at_end() && events.integer(0) < entity) events.next();
    Tiles tiles(view.windows);
    Newest newest;
    for (; !spine.at_end() && spine.integer(0) == entity; spine.next()) {
      const auto now = spine.integer(1);
      for (; !events.at_end() && events.integer(0) == entity; events.next()) {
        event.at_us = events.integer(1);
        event.available_us = events.integer(2);
        if (event.known_us() > now) break;
        event.row = static_cast<std::uint64_t>(events.integer(3));
        for (std::size_t i = 0; i < event.cells.size(); ++i) event.cells[i] = events.cell(4 + i);
        newest.offer(event);
        tiles.add(event);
      }
      tiles.forget(now);
      filler.add(spine.integer(2));
      if (newest.there && (!view.ttl_us || newest.at_us >= now - *view.ttl_us))
        filler.add(newest.row);
      else
        filler.null();
      tiles.read(now, cells);
      for (const auto& cell : cells) cell ? filler.add(*cell) : filler.null();
      end_row();
    }
  }
  filler.finish();
}

}  // namespace

void number_spine(table::Workspace& room, const std::string& relation, const std::string& table) {
  room.run(fmt::format("CREATE OR REPLACE TABLE {} AS SELECT row_number() OVER () - 1 AS {}, * FROM {}",
                       identifier(table), kSpineRow, identifier(relation)));
}

void join_as_of(table::Workspace& room, const std::string& spine, const std::string& spine_time, const ViewPlan& view,
                const std::string& out, const table::Workspace::Watch& watch) {
  CHECK(view.key.size() == view.spine_key.size() && !view.key.empty(), "a view has a key, and the spine has it too");
  CHECK(view.window_names.size() == view.windows.features().size(), "every feature has a name");
  const auto raw = identifier(out + " raw"), entities = identifier(out + " entities"), quoted = identifier(spine);
  number_entities(room, quoted, view, entities);
  std::string columns;
  for (std::size_t i = 0; i < view.window_names.size(); ++i) columns += fmt::format(", w{} DOUBLE", i);
  room.run(fmt::format("CREATE OR REPLACE TABLE {}({} BIGINT, source_row BIGINT{})", raw, kSpineRow, columns));
  std::int64_t all = 1;
  room.query("SELECT count(*) FROM " + quoted, {}, [&](const table::Chunk& chunk) {
    all = std::max(all, chunk.integer(0, 0));
    return true;
  });
  {
    Rows events(room, events_sql(view, entities));
    std::string same_key;
    for (const auto& key : view.spine_key)
      same_key += fmt::format("{0}p.{1} = n.{1}", same_key.empty() ? "" : " AND ", identifier(key));
    Rows asked(
        room,
        fmt::format("SELECT CASE WHEN n.falaj_entity IS NULL OR {0} IS NULL THEN {5} ELSE"
                    " n.falaj_entity END AS who, coalesce({0}, 0) AS now_us, p.{1} FROM {2} p LEFT JOIN {3} n ON {4}"
                    " ORDER BY who, now_us, p.{1}",
                    time_of("p", spine_time), kSpineRow, quoted, entities, same_key, kNobody));
    sweep(room, events, asked, view, out + " raw", [&](std::size_t rows) {
      if (watch) watch(static_cast<double>(rows) / static_cast<double>(all));
    });
  }
  std::string features;
  for (const auto& feature : view.rows)
    features += fmt::format(", s.{} AS {}", identifier(feature.column), identifier(feature.name));
  for (std::size_t i = 0; i < view.window_names.size(); ++i)
    features += fmt::format(", {} AS {}",
                            lookup::is_whole(view.windows.features()[i].aggregate) ? fmt::format("r.w{}::BIGINT", i)
                                                                                   : fmt::format("r.w{}", i),
                            identifier(view.window_names[i]));
  // Rows of long texts are fetched for some rows of the spine at a time, as many as can be put in order in memory.
  const bool texts = std::any_of(view.rows.begin(), view.rows.end(),
                                 [](const auto& feature) { return feature.type == table::Type::text; });
  const auto pieces = texts ? table::pieces_to_sort(room, view.relation, all, watch) : 1;
  for (std::int64_t i = 0; i < pieces; ++i) {
    auto from = raw + " r";
    if (!view.rows.empty())
      from = fmt::format(
          "(SELECT row_number() OVER () AS falaj_source_row, * FROM {}) s RIGHT JOIN (SELECT * FROM {} WHERE {} >= {} "
          "AND"
          " {} < {}) r ON s.falaj_source_row = r.source_row",
          identifier(view.relation), raw, kSpineRow, all * i / pieces, kSpineRow, all * (i + 1) / pieces);
    room.run(
        fmt::format("{} {} {} SELECT r.{}{} FROM {} ORDER BY r.{}", i == 0 ? "CREATE OR REPLACE TABLE" : "INSERT INTO",
                    identifier(out), i == 0 ? "AS" : "", kSpineRow, features, from, kSpineRow),
        {}, watch);
  }
  room.run("DROP TABLE " + raw);
  room.run("DROP TABLE " + entities);
}

}  // namespace falaj::features
