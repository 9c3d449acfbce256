// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/as_of.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/lookup/computed.h"

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

std::string same_key(const std::vector<std::string>& left, const std::vector<std::string>& right, std::string_view a,
                     std::string_view b) {
  std::string out;
  for (std::size_t i = 0; i < left.size(); ++i)
    out += fmt::format("{}{}.{} = {}.{}", i == 0 ? "" : " AND ", a, identifier(left[i]), b, identifier(right[i]));
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
      fmt::format("CREATE OR REPLACE TABLE {0} AS SELECT row_number() OVER () AS e, {1} FROM"
                  " (SELECT DISTINCT {1} FROM {2} WHERE {3} ORDER BY {1})",
                  table, keys, spine, there));
}

std::string events_sql(const ViewPlan& view, const std::string& entities) {
  const auto at = time_of("s", view.at);
  const auto available = view.available.empty() ? at : time_of("s", view.available);
  std::string inputs;
  for (const auto& input : view.inputs) inputs += fmt::format(", ({})::DOUBLE", input);
  return fmt::format(
      "SELECT n.e, {0} AS at_us, {1} AS available_us, s.falaj_source_row{2} FROM"
      " (SELECT row_number() OVER () AS falaj_source_row, * FROM {3}) s JOIN {4} n ON {5}"
      " WHERE {0} IS NOT NULL AND {1} IS NOT NULL ORDER BY n.e, greatest(at_us, available_us), s.falaj_source_row",
      at, available, inputs, identifier(view.relation), entities, same_key(view.key, view.spine_key, "s", "n"));
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
    Rows asked(room, fmt::format("SELECT CASE WHEN n.e IS NULL OR {0} IS NULL THEN {5} ELSE n.e END AS who,"
                                 " coalesce({0}, 0) AS now_us, p.{1} FROM {2} p LEFT JOIN {3} n ON {4}"
                                 " ORDER BY who, now_us, p.{1}",
                                 time_of("p", spine_time), kSpineRow, quoted, entities,
                                 same_key(view.spine_key, view.spine_key, "p", "n"), kNobody));
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
  std::string source;
  if (!view.rows.empty())
    source = fmt::format(
        " LEFT JOIN (SELECT row_number() OVER () AS falaj_source_row, * FROM {}) s"
        " ON s.falaj_source_row = r.source_row",
        identifier(view.relation));
  room.run(fmt::format("CREATE OR REPLACE TABLE {0} AS SELECT r.{1}{2} FROM {3} r{4} ORDER BY r.{1}", identifier(out),
                       kSpineRow, features, raw, source),
           {}, watch);
  room.run("DROP TABLE " + raw);
  room.run("DROP TABLE " + entities);
}

}  // namespace falaj::features
