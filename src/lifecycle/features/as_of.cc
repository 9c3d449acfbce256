// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/as_of.h"

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::features {
namespace {

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

// The newest row that was known, for each row of the spine. Rows are put in the order in which they became known; one
// that is older than a row known before it never counts. What is left grows in both times, which is what an ASOF join
// wants; and no two are known at once, so that the join has nothing to choose from.
std::string newest_sql(const ViewPlan& view, const std::string& spine, const std::string& spine_time,
                       const std::string& entities) {
  const auto at = time_of("s", view.at);
  const auto available = view.available.empty() ? at : time_of("s", view.available);
  std::string columns, features;
  for (const auto& feature : view.rows) {
    columns += fmt::format(", s.{} AS {}", identifier(feature.column), identifier(feature.name));
    features += view.ttl_us ? fmt::format(", CASE WHEN k.at_us >= p.now_us - {} THEN k.{} END AS {}", *view.ttl_us,
                                          identifier(feature.name), identifier(feature.name))
                            : fmt::format(", k.{}", identifier(feature.name));
  }
  const auto now = time_of("p", spine_time);
  return fmt::format(
      "WITH known AS (SELECT n.e, {0} AS at_us, greatest({0}, {1}) AS known_us{2} FROM"
      " (SELECT row_number() OVER () AS falaj_source_row, * FROM {3}) s JOIN {4} n ON {5}"
      " WHERE {0} IS NOT NULL AND {1} IS NOT NULL"
      " QUALIFY row_number() OVER (PARTITION BY n.e, greatest({0}, {1})"
      " ORDER BY {0} DESC, {1} DESC, s.falaj_source_row DESC) = 1),"
      " counting AS (SELECT * FROM known QUALIFY at_us >= coalesce(max(at_us) OVER (PARTITION BY e ORDER BY known_us"
      " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), at_us)),"
      " asked AS (SELECT n.e, {6} AS now_us, p.{7} FROM {8} p JOIN {4} n ON {9} WHERE {6} IS NOT NULL)"
      " SELECT p.{7}{10} FROM asked p ASOF LEFT JOIN counting k ON p.e = k.e AND p.now_us >= k.known_us",
      at, available, columns, identifier(view.relation), entities, same_key(view.key, view.spine_key, "s", "n"), now,
      kSpineRow, spine, same_key(view.spine_key, view.spine_key, "p", "n"), features);
}

bool is_whole(Aggregate aggregate) { return aggregate == Aggregate::count || aggregate == Aggregate::distinct_approx; }

// Goes through time, entity by entity, over events in the order in which they became known.
void sweep(table::Workspace& room, Rows& events, Rows& spine, const ViewPlan& view, const std::string& into) {
  auto filler = room.fill(into);
  const auto features = view.windows.features().size();
  std::vector<Cell> cells(features);
  Event event;
  event.cells.resize(view.inputs.size());
  while (!spine.at_end()) {
    const auto entity = spine.integer(0);
    while (!events.at_end() && events.integer(0) < entity) events.next();
    Tiles tiles(view.windows);
    for (; !spine.at_end() && spine.integer(0) == entity; spine.next()) {
      const auto now = spine.integer(1);
      for (; !events.at_end() && events.integer(0) == entity; events.next()) {
        event.at_us = events.integer(1);
        event.available_us = events.integer(2);
        if (event.known_us() > now) break;
        event.row = static_cast<std::uint64_t>(events.integer(3));
        for (std::size_t i = 0; i < event.cells.size(); ++i) event.cells[i] = events.cell(4 + i);
        tiles.add(event);
      }
      tiles.forget(now);
      filler.add(spine.integer(2));
      tiles.read(now, cells);
      for (std::size_t f = 0; f < features; ++f) {
        if (!cells[f])
          filler.null();
        else if (is_whole(view.windows.features()[f].aggregate))
          filler.add(static_cast<std::int64_t>(*cells[f]));
        else
          filler.add(*cells[f]);
      }
      filler.end_row();
    }
  }
  filler.finish();
}

// Makes table "OUT windows" with kSpineRow and a column for each window.
void join_windows(table::Workspace& room, const std::string& spine, const std::string& spine_time, const ViewPlan& view,
                  const std::string& entities, const std::string& out) {
  std::string columns;
  for (std::size_t i = 0; i < view.window_names.size(); ++i)
    columns += fmt::format(", {} {}", identifier(view.window_names[i]),
                           is_whole(view.windows.features()[i].aggregate) ? "BIGINT" : "DOUBLE");
  room.run(fmt::format("CREATE OR REPLACE TABLE {}({} BIGINT{})", identifier(out), kSpineRow, columns));
  Rows events(room, events_sql(view, entities));
  const auto now = time_of("p", spine_time);
  Rows asked(room, fmt::format("SELECT n.e, {0} AS now_us, p.{1} FROM {2} p JOIN {3} n ON {4} WHERE {0} IS NOT NULL"
                               " ORDER BY n.e, now_us, p.{1}",
                               now, kSpineRow, spine, entities, same_key(view.spine_key, view.spine_key, "p", "n")));
  sweep(room, events, asked, view, out);
}

}  // namespace

void number_spine(table::Workspace& room, const std::string& relation, const std::string& table) {
  room.run(fmt::format("CREATE OR REPLACE TABLE {} AS SELECT row_number() OVER () - 1 AS {}, * FROM {}",
                       identifier(table), kSpineRow, identifier(relation)));
}

void join_as_of(table::Workspace& room, const std::string& spine, const std::string& spine_time, const ViewPlan& view,
                const std::string& out) {
  CHECK(view.key.size() == view.spine_key.size() && !view.key.empty(), "a view has a key, and the spine has it too");
  CHECK(view.window_names.size() == view.windows.features().size(), "every feature has a name");
  const auto entities = identifier(out + " entities"), quoted = identifier(spine);
  number_entities(room, quoted, view, entities);
  const auto windows = out + " windows", rows = out + " rows";
  if (!view.window_names.empty()) join_windows(room, quoted, spine_time, view, entities, windows);
  if (!view.rows.empty())
    room.run(fmt::format("CREATE OR REPLACE TABLE {} AS {}", identifier(rows),
                         newest_sql(view, quoted, spine_time, entities)));
  const auto both = !view.rows.empty() && !view.window_names.empty();
  room.run(both ? fmt::format("CREATE OR REPLACE VIEW {0} AS SELECT * FROM {1} JOIN {2} USING ({3})", identifier(out),
                              identifier(rows), identifier(windows), kSpineRow)
                : fmt::format("CREATE OR REPLACE VIEW {0} AS SELECT * FROM {1}", identifier(out),
                              identifier(view.rows.empty() ? windows : rows)));
}

}  // namespace falaj::features
