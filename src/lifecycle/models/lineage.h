// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/json.h"
#include "lifecycle/models/types.h"
#include "storage/sql/database.h"

namespace falaj::models {

// Something that was made of others, or that others were made of.
struct Thing {
  enum class Kind { dataset, run, logged_model, version, endpoint };
  Kind kind = Kind::run;
  std::string
      id;  // a run's or logged model's id; a dataset's "name@digest"; a version's "name/number"; an endpoint's name
  friend auto operator<=>(const Thing&, const Thing&) = default;
};
std::string_view name(Thing::Kind kind);  // "dataset", "run", "logged_model", "version", "endpoint"
std::optional<Thing::Kind> parse_thing_kind(std::string_view name);

struct Edge {
  Thing from, to;   // `to` was made with `from`
  std::string how;  // "input", "output", "registered", "copied", "rows" (from dataset to dataset), "answers" (of a
                    // version, in a dataset), "served" (a version, by an endpoint)
  friend auto operator<=>(const Edge&, const Edge&) = default;
};
struct Lineage {
  std::vector<Thing> things;  // nearest first, what was asked for the very first
  std::vector<Edge> edges;
  bool whole = true;  // false: there is more than the limit
};

inline constexpr std::size_t kLineageMax = 5'000;

// Where it came from, and what came of it, through any number of steps. Nothing of it is stored: what runs logged and
// what was registered says it all. Throws not_found when the project has no such thing.
Lineage up(sql::Reader& reader, const Where& where, const Thing& thing, std::size_t things_max = kLineageMax);
Lineage down(sql::Reader& reader, const Where& where, const Thing& thing, std::size_t things_max = kLineageMax);

// What others know. `upward`: what a dataset was made of, other datasets and versions whose answers it holds, and which
// versions an endpoint serves; else which datasets were made of a dataset, and which datasets and endpoints of a
// version. Nothing when there is no such dataset or endpoint. Without it only runs connect datasets, and nothing
// endpoints.
using Links = std::function<std::optional<std::vector<Thing>>(sql::Reader& reader, const Thing& thing, bool upward)>;
Lineage up(sql::Reader& reader, const Where& where, const Thing& thing, std::size_t things_max, const Links& links);
Lineage down(sql::Reader& reader, const Where& where, const Thing& thing, std::size_t things_max, const Links& links);

json::object to_json(const Lineage& lineage);
// The run as OpenLineage 2-0-2 tells it: START, then how it ended, with its datasets and models as inputs and outputs.
json::array to_open_lineage(sql::Reader& reader, const Where& where, const std::string& run_id,
                            std::string_view producer);

}  // namespace falaj::models
