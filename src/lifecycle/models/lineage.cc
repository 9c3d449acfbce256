// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/lineage.h"

#include <deque>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/models/source.h"
#include "lifecycle/models/tables.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj::models {

namespace {

using Kind = Thing::Kind;

constexpr std::string_view kKindNames[] = {"dataset", "run", "logged_model", "version", "endpoint"};

Thing run_thing(std::string_view id) { return {Kind::run, std::string(id)}; }
Thing model_thing(std::string_view id) { return {Kind::logged_model, std::string(id)}; }
Thing dataset_thing(std::string_view name, std::string_view digest) {
  return {Kind::dataset, fmt::format("{}@{}", name, digest)};
}
Thing version_thing(std::string_view name, std::int64_t number) {
  return {Kind::version, fmt::format("{}/{}", name, number)};
}

// The direct neighbours of things of one project, read from what tracking and the registry keep.
class Neighbours {
 public:
  Neighbours(sql::Reader& reader, const Where& where, const Links& links)
      : reader_(reader), where_(where), links_(links) {}

  void need(const Thing& thing) {
    if (!exists(thing))
      throw Error(Code::not_found,
                  fmt::format("no {} '{}' in this project", name(thing.kind), track::shortened(thing.id, kNameMax)));
  }

  std::vector<Edge> above(const Thing& thing) {
    edges_.clear();
    if (thing.kind == Kind::dataset || thing.kind == Kind::endpoint) beside(thing, true);
    if (thing.kind == Kind::run) above_run(thing);
    if (thing.kind == Kind::logged_model) above_model(thing);
    if (thing.kind == Kind::version) above_version(thing);
    return edges_;
  }

  std::vector<Edge> below(const Thing& thing) {
    edges_.clear();
    if (thing.kind == Kind::dataset) below_dataset(thing);
    if (thing.kind == Kind::run) below_run(thing);
    if (thing.kind == Kind::logged_model) below_model(thing);
    if (thing.kind == Kind::version) below_version(thing);
    return edges_;
  }

 private:
  void add(Thing from, Thing to, const char* how) { edges_.push_back({std::move(from), std::move(to), how}); }

  bool exists(const Thing& thing) {
    if (thing.kind == Kind::run) return track::find_run(reader_, where_, thing.id).has_value();
    if (thing.kind == Kind::logged_model) return track::find_logged_model(reader_, where_, thing.id).has_value();
    if (thing.kind == Kind::version) return version_of(thing).has_value();
    if (links_ && links_(reader_, thing, true)) return true;
    if (thing.kind == Kind::endpoint) return false;
    const auto [name, digest] = dataset_of(thing);
    return reader_
        .first(
            "SELECT d.id FROM track_dataset d JOIN track_experiment e ON e.id = d.experiment"
            " WHERE e.tenant = ? AND e.project = ? AND d.name = ? AND d.digest = ? LIMIT 1",
            {where_.tenant.str(), where_.project.str(), name, digest},
            [](const sql::Row& row) { return row.integer(0); })
        .has_value();
  }

  static std::pair<std::string, std::string> dataset_of(const Thing& thing) {
    const auto at = thing.id.rfind('@');
    if (at == std::string::npos) return {thing.id, ""};
    return {thing.id.substr(0, at), thing.id.substr(at + 1)};
  }

  std::optional<Version> version_of(const Thing& thing) {
    const auto slash = thing.id.rfind('/');
    if (slash == std::string::npos) return std::nullopt;
    const auto number = parse_int(std::string_view(thing.id).substr(slash + 1));
    const auto model = find_model(reader_, where_, thing.id.substr(0, slash));
    if (!number || !model) return std::nullopt;
    try {
      return need_version(reader_, model->model, *number);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  void above_run(const Thing& run) {
    const auto row = track::find_run(reader_, where_, run.id);
    if (!row) return;
    reader_.query(
        "SELECT d.name, d.digest FROM track_input i JOIN track_dataset d ON d.id = i.dataset"
        " WHERE i.experiment = ? AND i.place = ? ORDER BY d.id",
        {row->experiment, row->place},
        [&](const sql::Row& r) { add(dataset_thing(r.text(0), r.text(1)), run, "input"); });
    for (const auto& id : links_of(*row, "in")) add(model_thing(id), run, "input");
  }

  void above_model(const Thing& model) {
    const auto found = track::find_logged_model(reader_, where_, model.id);
    if (found && !found->source_run_id.empty()) add(run_thing(found->source_run_id), model, "output");
    for (const auto& run : runs_linked(model.id, "out"))
      if (!found || run != found->source_run_id) add(run_thing(run), model, "output");
  }

  void above_version(const Thing& thing) {
    const auto version = version_of(thing);
    if (!version) return;
    if (const auto copied = copy_of(*version)) add(*copied, thing, "copied");
    if (!version->model_id.empty()) add(model_thing(version->model_id), thing, "registered");
    const auto& run = version->run_id.empty() ? version->origin_run : version->run_id;
    if (!run.empty()) add(run_thing(run), thing, "registered");
    if (!version->origin_run.empty() && version->origin_run != run)
      add(run_thing(version->origin_run), thing, "registered");
  }

  static std::optional<Thing> copy_of(const Version& version) {
    if (!version.source.starts_with("models:/")) return std::nullopt;
    try {
      const auto source = parse_source(version.source);
      if (source.kind == Source::Kind::version) return version_thing(source.id, source.version);
    } catch (const Error&) {
      // A prompt may have any source.
    }
    return std::nullopt;
  }

  void beside(const Thing& thing, bool upward) {
    if (!links_) return;
    for (auto& other : links_(reader_, thing, upward).value_or(std::vector<Thing>{})) {
      const bool served = thing.kind == Kind::endpoint || other.kind == Kind::endpoint;
      const char* how = other.kind == thing.kind ? "rows" : served ? "served" : "answers";
      upward ? add(std::move(other), thing, how) : add(thing, std::move(other), how);
    }
  }

  void below_dataset(const Thing& dataset) {
    beside(dataset, false);
    const auto [name, digest] = dataset_of(dataset);
    reader_.query(
        "SELECT r.run_id FROM track_experiment e JOIN track_dataset d ON d.experiment = e.id"
        " JOIN track_input i ON i.experiment = e.id AND i.dataset = d.id"
        " JOIN track_run r ON r.experiment = i.experiment AND r.place = i.place"
        " WHERE e.tenant = ? AND e.project = ? AND d.name = ? AND d.digest = ? ORDER BY r.experiment, r.place",
        {where_.tenant.str(), where_.project.str(), name, digest},
        [&](const sql::Row& r) { add(dataset, run_thing(r.text(0)), "input"); });
  }

  void below_run(const Thing& run) {
    const auto row = track::find_run(reader_, where_, run.id);
    if (!row) return;
    std::set<std::string> models;
    for (auto& id : links_of(*row, "out")) models.insert(std::move(id));
    reader_.query(
        "SELECT m.model_id FROM track_model m JOIN track_experiment e ON e.id = m.experiment"
        " WHERE m.source_run = ? AND m.source_run <> '' AND e.tenant = ? AND e.project = ?",
        {run.id, where_.tenant.str(), where_.project.str()},
        [&](const sql::Row& r) { models.insert(std::string(r.text(0))); });
    for (const auto& id : models) add(run, model_thing(id), "output");
    const auto registered = [&](const sql::Row& r) { add(run, version_thing(r.text(0), r.integer(1)), "registered"); };
    reader_.query(
        "SELECT m.name, v.version FROM models_version v JOIN models_model m ON m.id = v.model WHERE v.run_id = ?"
        " AND v.run_id <> '' AND v.deleted_us IS NULL AND m.tenant = ? AND m.project = ? ORDER BY m.name, v.version",
        {run.id, where_.tenant.str(), where_.project.str()}, registered);
    reader_.query(
        "SELECT m.name, v.version FROM models_version v JOIN models_model m ON m.id = v.model WHERE v.origin_run = ?"
        " AND v.origin_run <> '' AND v.run_id <> v.origin_run AND v.deleted_us IS NULL AND m.tenant = ?"
        " AND m.project = ? ORDER BY m.name, v.version",
        {run.id, where_.tenant.str(), where_.project.str()}, registered);
  }

  void below_model(const Thing& model) {
    for (const auto& run : runs_linked(model.id, "in")) add(model, run_thing(run), "input");
    reader_.query(
        "SELECT m.name, v.version FROM models_version v JOIN models_model m ON m.id = v.model WHERE v.model_id = ?"
        " AND v.model_id <> '' AND v.deleted_us IS NULL AND m.tenant = ? AND m.project = ? ORDER BY m.name, v.version",
        {model.id, where_.tenant.str(), where_.project.str()},
        [&](const sql::Row& r) { add(model, version_thing(r.text(0), r.integer(1)), "registered"); });
  }

  void below_version(const Thing& version) {
    beside(version, false);
    reader_.query(
        "SELECT m.name, v.version FROM models_model m JOIN models_version v ON v.model = m.id WHERE m.tenant = ?"
        " AND m.project = ? AND v.source = ? AND v.deleted_us IS NULL ORDER BY m.name, v.version",
        {where_.tenant.str(), where_.project.str(), "models:/" + version.id},
        [&](const sql::Row& r) { add(version, version_thing(r.text(0), r.integer(1)), "copied"); });
  }

  std::vector<std::string> links_of(const track::RunRow& row, std::string_view way) {
    return reader_.all(
        "SELECT model FROM track_model_link WHERE experiment = ? AND place = ? AND way = ? ORDER BY model",
        {row.experiment, row.place, way}, [](const sql::Row& r) { return std::string(r.text(0)); });
  }

  std::vector<std::string> runs_linked(const std::string& model_id, std::string_view way) {
    return reader_.all(
        "SELECT r.run_id FROM track_model_link l JOIN track_run r ON r.experiment = l.experiment AND r.place = l.place"
        " JOIN track_experiment e ON e.id = l.experiment WHERE l.model = ? AND l.way = ? AND e.tenant = ?"
        " AND e.project = ? ORDER BY r.experiment, r.place",
        {model_id, way, where_.tenant.str(), where_.project.str()},
        [](const sql::Row& r) { return std::string(r.text(0)); });
  }

  sql::Reader& reader_;
  const Where& where_;
  const Links& links_;
  std::vector<Edge> edges_;
};

Lineage walk(sql::Reader& reader, const Where& where, const Thing& start, std::size_t things_max, bool upward,
             const Links& datasets) {
  Neighbours neighbours(reader, where, datasets);
  neighbours.need(start);
  Lineage out;
  std::set<Thing> seen{start};
  std::set<Edge> edges;
  std::deque<Thing> next{start};
  while (!next.empty()) {
    const auto thing = std::move(next.front());
    next.pop_front();
    out.things.push_back(thing);
    for (auto& edge : upward ? neighbours.above(thing) : neighbours.below(thing)) {
      const auto& other = upward ? edge.from : edge.to;
      if (!seen.contains(other)) {
        if (seen.size() >= things_max) {
          out.whole = false;
          continue;
        }
        seen.insert(other);
        next.push_back(other);
      }
      if (edges.insert(edge).second) out.edges.push_back(std::move(edge));
    }
  }
  return out;
}

json::object to_json(const Thing& thing) { return {{"kind", name(thing.kind)}, {"id", thing.id}}; }

}  // namespace

std::string_view name(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

std::optional<Kind> parse_thing_kind(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kKindNames); ++i)
    if (kKindNames[i] == text) return static_cast<Kind>(i);
  return std::nullopt;
}

Lineage up(sql::Reader& reader, const Where& where, const Thing& thing, std::size_t things_max) {
  return walk(reader, where, thing, things_max, true, {});
}
Lineage down(sql::Reader& reader, const Where& where, const Thing& thing, std::size_t things_max) {
  return walk(reader, where, thing, things_max, false, {});
}
Lineage up(sql::Reader& reader, const Where& where, const Thing& thing, std::size_t things_max, const Links& datasets) {
  return walk(reader, where, thing, things_max, true, datasets);
}
Lineage down(sql::Reader& reader, const Where& where, const Thing& thing, std::size_t things_max,
             const Links& datasets) {
  return walk(reader, where, thing, things_max, false, datasets);
}

json::object to_json(const Lineage& lineage) {
  json::array things, edges;
  for (const auto& thing : lineage.things) things.push_back(to_json(thing));
  for (const auto& edge : lineage.edges)
    edges.push_back(json::object{{"from", to_json(edge.from)}, {"to", to_json(edge.to)}, {"how", edge.how}});
  return {{"things", std::move(things)}, {"edges", std::move(edges)}, {"whole", lineage.whole}};
}

}  // namespace falaj::models
