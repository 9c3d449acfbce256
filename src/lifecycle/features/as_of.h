// SPDX-License-Identifier: Apache-2.0
#pragma once

// Point-in-time joins: what was known of an entity at the moment of each row of a spine, and nothing that was known
// later.

#include <optional>
#include <string>
#include <vector>

#include "lifecycle/lookup/window.h"
#include "storage/table/workspace.h"

namespace falaj::features {

using lookup::Cell;
using lookup::Event;
using lookup::Windows;

// A feature view as a room sees it. All names are columns of `relation` unless they say otherwise.
struct ViewPlan {
  std::string relation;                // of the room; it gives the same rows in the same order whenever it is read
  std::vector<std::string> key;        // what names the entity
  std::vector<table::Type> key_types;  // as the entity declares them
  std::vector<std::string> spine_key;  // the same, as the spine calls it
  std::string at;                      // when a row happened; rows without are left out
  std::string available;               // when it could be known; "" = when it happened. Null: never
  std::optional<std::int64_t> ttl_us;  // of row features: older rows count as none

  // The newest row: of those at one time the later available, of those the later in the relation.
  struct RowFeature {
    std::string name, column;
    table::Type type = table::Type::text;
  };
  std::vector<RowFeature> rows;

  std::vector<std::string> inputs;  // SQL expressions of ours over the relation that give a DOUBLE
  Windows windows{1, {}};
  std::vector<std::string> window_names;  // one for each feature of `windows`
};

// The spine: a table of the room with the rows to be described, numbered 0, 1, 2, ... in column kSpineRow.
inline constexpr std::string_view kSpineRow = "falaj_row";
void number_spine(table::Workspace& room, const std::string& relation, const std::string& table);

// Makes table `out` with kSpineRow and one column for each feature: one row for each of the spine's, in their order;
// where a key or the time is missing nothing is known. Deterministic, whatever the number of threads.
// Tables in the order of the spine are read side by side (POSITIONAL JOIN), whatever their number and size: hash joins
// of all of them at once do not spill together.
void join_as_of(table::Workspace& room, const std::string& spine, const std::string& spine_time, const ViewPlan& view,
                const std::string& out, const table::Workspace::Watch& watch = {});

}  // namespace falaj::features
