// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/removal.h"

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/models/tables.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj::models {

namespace {

std::optional<std::string> held(sql::Reader& r, const Where& where, const std::string& run_id) {
  const auto row = track::find_run(r, where, run_id);
  if (!row) return std::nullopt;
  const auto value = [](const sql::Row& row) { return std::string(row.text(0)); };
  auto why = r.first("SELECT value FROM track_tag WHERE experiment = ? AND key = ? AND place = ?",
                     {row->experiment, kHoldTag, row->place}, value);
  if (!why)
    why = r.first("SELECT value FROM track_experiment_tag WHERE experiment = ? AND key = ?",
                  {row->experiment, kHoldTag}, value);
  if (!why) return std::nullopt;
  return fmt::format("its tag {} keeps it: {}", kHoldTag, track::shortened(*why, 200));
}

}  // namespace

std::optional<std::string> why_kept(sql::Reader& r, const Where& where, const Thing& thing) {
  if (thing.kind == Thing::Kind::run)
    if (auto why = held(r, where, thing.id)) return why;
  const auto lineage = down(r, where, thing);
  for (const auto& made : lineage.things) {
    if (made.kind != Thing::Kind::version) continue;
    const auto slash = made.id.rfind('/');
    const auto model = need_model(r, where, made.id.substr(0, slash));
    const auto version =
        load_version(r, need_version(r, model.model, *parse_int(std::string_view(made.id).substr(slash + 1))));
    if (!version.aliases.empty())
      return fmt::format("version {} of model '{}', which the alias '{}' points at, came from it", version.number,
                         version.model, version.aliases.front());
    if (version.stage == Stage::production || version.stage == Stage::staging)
      return fmt::format("version {} of model '{}', which is in stage {}, came from it", version.number, version.model,
                         models::name(version.stage));
  }
  if (!lineage.whole) return "too much came from it to know that nothing of it is in use";
  return std::nullopt;
}

std::optional<std::string> Registry::descends(const Where& where, const std::string& run_id) {
  return database_.read([&](sql::Reader& r) { return descends(r, where, run_id); });
}

std::optional<std::string> Registry::descends(sql::Reader& r, const Where& where, const std::string& run_id) {
  return why_kept(r, where, {Thing::Kind::run, run_id});
}

}  // namespace falaj::models
