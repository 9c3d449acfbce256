// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/features.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/error.h"
#include "lifecycle/features/event_cursor.h"

namespace falaj::features {

namespace {

std::optional<std::size_t> computed_at(const Definition& view, const std::string& feature) {
  for (std::size_t i = 0; i < view.computed.size(); ++i)
    if (view.computed.name(i) == feature) return i;
  return std::nullopt;
}

// What must be joined: what is asked for, and what expressions that are asked for are made of.
std::vector<std::string> stored_features(const Selected& wanted) {
  std::set<std::string> names;
  for (const auto& feature : wanted.features) {
    const auto computed = computed_at(*wanted.from, feature);
    if (!computed) names.insert(feature);
    if (!computed) continue;
    for (const auto input : wanted.from->computed.uses(*computed))
      if (input >= wanted.from->computed.request().size()) names.insert(wanted.from->computed.inputs()[input].name);
  }
  return {names.begin(), names.end()};
}

void add(table::Workspace::Filler& filler, const lookup::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value))
    filler.add(static_cast<std::int64_t>(*flag));
  else if (const auto* whole = std::get_if<std::int64_t>(&value))
    filler.add(*whole);
  else if (const auto* real = std::get_if<double>(&value))
    filler.add(*real);
  else if (const auto* text = std::get_if<std::string>(&value))
    filler.add(std::string_view(*text));
  else
    filler.null();
}

// Names that no dataset has.
constexpr const char *kGiven = "spine as given", *kSpine = "spine numbered";

// Joining takes about so much of the time, making a version the rest.
constexpr double kJoining = 0.6;

// A column of what was computed, as a filler put it in, and as it is.
std::string filled_as(lookup::Type type) {
  return type == lookup::Type::float64 ? "DOUBLE" : type == lookup::Type::text ? "VARCHAR" : "BIGINT";
}
std::string shown_as(const std::string& column, lookup::Type type) {
  if (type == lookup::Type::boolean) return column + "::BOOLEAN";
  return type == lookup::Type::timestamp ? fmt::format("make_timestamp({})", column) : column;
}

}  // namespace

Features::Joined Features::join(table::Workspace& room, const Where& where, const Selected& wanted, std::size_t index,
                                const std::string& time, const table::Workspace::Watch& watch) {
  const auto& view = *wanted.from;
  Joined joined;
  const auto stored = stored_features(wanted);
  if (stored.empty()) return joined;
  const auto version = datasets_.version(where, view.spec.dataset, std::nullopt);
  // By the dataset's own name, as the view's SQL calls it.
  datasets_.open(room, where, version, view.spec.dataset);
  auto plan = compile(view.spec, view.entity, view.rows, stored);
  plan.relation = fmt::format("view {}", index);
  const auto table = fmt::format("rows {}", index);
  const auto rows = lay_out_rows(room, view, table, [&](double) {
    if (watch) watch(0);
  });
  room.run(fmt::format("CREATE OR REPLACE VIEW {} AS SELECT * FROM {}", table::identifier(plan.relation), rows));
  joined.stored = fmt::format("joined {}", index);
  joined.from = fmt::format("{} ({}@{})", view.name, view.spec.dataset, version.number);
  joined.input = data::Input{version.dataset, version.row, version.number};
  for (std::size_t i = 0; i < plan.key.size(); ++i)
    if (plan.key[i] == plan.spine_key[i]) joined.input->columns.push_back(plan.key[i]);
  for (const auto& feature : plan.rows)
    if (feature.name == feature.column) joined.input->columns.push_back(feature.name);
  join_as_of(room, kSpine, time, plan, joined.stored, watch);
  room.run("DROP VIEW " + table::identifier(plan.relation));
  room.run("DROP TABLE IF EXISTS " + table::identifier(table));
  return joined;
}

void Features::compute(table::Workspace& room, const Selected& wanted, const table::Schema& spine,
                       const std::string& stored, const std::string& into) {
  const auto& computed = wanted.from->computed;
  std::vector<std::size_t> features;
  std::set<std::size_t> used;
  for (const auto& name : wanted.features)
    if (const auto feature = computed_at(*wanted.from, name)) {
      features.push_back(*feature);
      used.insert(computed.uses(*feature).begin(), computed.uses(*feature).end());
    }
  const std::vector<std::size_t> inputs(used.begin(), used.end());
  auto select = fmt::format("SELECT p.{}", kSpineRow);
  for (const auto input : inputs) {
    const auto& column = computed.inputs()[input];
    const bool of_request = input < computed.request().size();
    if (of_request && !table::find(spine, column.name))
      throw Error(Code::invalid,
                  fmt::format("the spine has no column '{}', which expressions of feature view '{}' take "
                              "from the request",
                              column.name, wanted.from->name));
    select += fmt::format(", CAST({}.{} AS {})", of_request ? "p" : "j", table::identifier(column.name),
                          table::sql_name(static_cast<table::Type>(column.type)));
  }
  select += fmt::format(" FROM {} p", table::identifier(kSpine));
  if (!stored.empty()) select += fmt::format(" POSITIONAL JOIN {} j", table::identifier(stored));
  std::string columns;
  for (const auto feature : features)
    columns += fmt::format("{}{} {}", columns.empty() ? "" : ", ", table::identifier(computed.name(feature)),
                           filled_as(computed.type(feature)));
  room.run(fmt::format("CREATE OR REPLACE TABLE {}({})", table::identifier(into), columns));
  auto filler = room.fill(into);
  auto rows = room.open(select);
  lookup::Computed::Inputs values(computed.inputs().size());
  std::vector<lookup::Value> held(inputs.size());  // texts are borrowed from here
  while (const auto* chunk = rows.next()) {
    for (std::size_t row = 0; row < chunk->rows(); ++row) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        held[i] = value_of(*chunk, i + 1, row);
        values[inputs[i]] = lookup::Computed::input(held[i], computed.inputs()[inputs[i]].type);
      }
      for (const auto feature : features) add(filler, computed.compute(feature, values));
      filler.end_row();
    }
  }
  filler.finish();
}

std::shared_ptr<const Selection> Features::may_select(const Where& where, const TrainSet& wanted,
                                                      const resource::Authorise& authorise, const sql::Act& act) {
  const auto need = [&](std::string_view action, const char* kind, const std::string& name) {
    const resource::Key key{kind, where.tenant.str(), where.project.str(), name};
    if (auto why = authorise(action, key.scope())) throw Error(Code::denied, std::move(*why));
  };
  // Before anything is looked up: whoever may not read is not told what there is.
  need("dataset.read", "Dataset", wanted.spine.name);
  need("feature.read", "FeatureService", wanted.service);
  auto selection = definitions_.select_service(where, wanted.service);
  bool personal = false;
  for (const auto& view : *selection) {
    need("feature.read", "FeatureView", view.from->name);
    personal |= view.from->personal();
  }
  if (personal) {
    auto read = act;
    read.verb = "features.read";
    database_.write(read, [](sql::Writer&) {});
  }
  return selection;
}

data::Version Features::train_set(const Where& where, const TrainSet& wanted, const resource::Authorise& authorise,
                                  const sql::Act& act, const table::Workspace::Watch& watch) {
  const auto selection = may_select(where, wanted, authorise, act);
  const auto& selected = *selection;
  const auto spine = datasets_.version(where, wanted.spine.name, wanted.spine.number);
  const auto time = wanted.time.empty() ? datasets_.spec(where, wanted.spine.name).time : wanted.time;
  if (!table::find(spine.schema, time))
    throw Error(Code::invalid, fmt::format("time: '{}' is none of the columns of '{}'; name the one that says as of "
                                           "when each row is described",
                                           time, wanted.spine.name));
  const auto room = datasets_.room();
  datasets_.open(*room, where, spine, kGiven);
  number_spine(*room, kGiven, kSpine);
  data::Finish how{data::Format::parquet, data::Mode::overwrite, "", "", {}};
  auto& input = how.inputs.emplace_back(data::Input{spine.dataset, spine.row, spine.number});
  for (const auto& column : spine.schema) input.columns.push_back(column.name);
  how.done_before = kJoining;
  if (!wanted.key.empty()) {
    how.upload = datasets_.begin(where, wanted.into, act, wanted.key);
    if (auto done = datasets_.finished(where, wanted.into, how.upload)) return std::move(*done);
  }
  struct Ending {
    ~Ending() { datasets.note_progress(upload, 0); }
    data::Datasets& datasets;
    const std::string& upload;
  } const ending{datasets_, how.upload};
  std::string columns, beside;
  std::vector<std::string> from{fmt::format("{}@{}", spine.dataset, spine.number)};
  for (const auto& column : spine.schema)
    columns += fmt::format("{}p.{}", columns.empty() ? "" : ", ", table::identifier(column.name));
  for (std::size_t i = 0; i < selected.size(); ++i) {
    const auto& view = *selected[i].from;
    auto joined = join(*room, where, selected[i], i, time, [&](double done) {
      if (watch) watch(done);
      const auto of_all = (static_cast<double>(i) + std::clamp(done, 0.0, 1.0)) / static_cast<double>(selected.size());
      datasets_.note_progress(how.upload, kJoining * of_all);
    });
    bool computes = false;
    for (const auto& feature : selected[i].features) {
      if (table::find(spine.schema, feature))
        throw Error(Code::invalid, fmt::format("the spine has a column '{}' already, as a feature is called", feature));
      const auto computed = computed_at(view, feature);
      computes |= computed.has_value();
      const auto column = fmt::format("{}{}.{}", computed ? "c" : "j", i, table::identifier(feature));
      columns += fmt::format(", {} AS {}", computed ? shown_as(column, view.computed.type(*computed)) : column,
                             table::identifier(feature));
    }
    if (computes) {
      joined.computed = fmt::format("computed {}", i);
      compute(*room, selected[i], spine.schema, joined.stored, joined.computed);
      beside += fmt::format(" POSITIONAL JOIN {} c{}", table::identifier(joined.computed), i);
    }
    if (joined.stored.empty()) continue;
    beside += fmt::format(" POSITIONAL JOIN {} j{}", table::identifier(joined.stored), i);
    from.push_back(joined.from);
    how.inputs.push_back(*joined.input);
  }
  const auto select = fmt::format("SELECT {} FROM {} p{}", columns, table::identifier(kSpine), beside);
  how.source = fmt::format("features {} of {}", wanted.service, fmt::join(from, ", "));
  declare(where, wanted.into, room->describe(select), time, authorise, act);
  return datasets_.store(where, wanted.into, *room, select, how, act, watch);
}

void Features::declare(const Where& where, const std::string& name, const table::Schema& schema,
                       const std::string& time, const resource::Authorise& authorise, const sql::Act& act) {
  try {
    datasets_.spec(where, name);
    return;
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  json::array columns;
  for (const auto& column : schema)
    columns.push_back(json::object{{"name", column.name}, {"type", table::name(column.type)}});
  const json::object resource{
      {"apiVersion", resource::kApiVersion},
      {"kind", "Dataset"},
      {"metadata", json::object{{"tenant", where.tenant.str()}, {"project", where.project.str()}, {"name", name}}},
      {"spec", json::object{{"columns", std::move(columns)}, {"time", time}}}};
  const resource::Document documents[] = {resource::json_document("train set", resource)};
  auto declaring = act;
  declaring.verb = declaring.resource = "";
  resources_.apply(declaring, documents, authorise);
}

}  // namespace falaj::features
