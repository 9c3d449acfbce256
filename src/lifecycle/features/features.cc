// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/features.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/error.h"

namespace falaj::features {

std::vector<Features::Joined> Features::join(table::Workspace& room, const Where& where,
                                             const std::vector<Selected>& wanted, const std::string& time) {
  std::vector<Joined> out;
  for (const auto& [definition, features] : wanted) {
    const auto& view = *definition;
    const auto version = datasets_.version(where, view.spec.dataset, std::nullopt);
    // By the dataset's own name, as the view's SQL calls it.
    datasets_.open(room, where, version, view.spec.dataset);
    auto plan = compile(view.spec, view.entity, view.rows, features);
    plan.relation = fmt::format("view {}@{}", view.name, view.revision);
    room.run(fmt::format("CREATE OR REPLACE VIEW {} AS {}", table::identifier(plan.relation), view.select));
    Joined joined{fmt::format("joined {}@{}", view.name, view.revision),
                  features,
                  fmt::format("{} ({}@{})", view.name, view.spec.dataset, version.number),
                  {version.dataset, version.row, version.number}};
    for (std::size_t i = 0; i < plan.key.size(); ++i)
      if (plan.key[i] == plan.spine_key[i]) joined.input.columns.push_back(plan.key[i]);
    for (const auto& feature : plan.rows)
      if (feature.name == feature.column) joined.input.columns.push_back(feature.name);
    join_as_of(room, "spine", time, plan, joined.relation);
    out.push_back(std::move(joined));
  }
  return out;
}

data::Version Features::train_set(const Where& where, const TrainSet& wanted, const resource::Authorise& authorise,
                                  const sql::Act& act, const table::Workspace::Watch& watch) {
  const auto features = definitions_.select(where, definitions_.service(where, wanted.service).features);
  const auto spine = datasets_.version(where, wanted.spine.name, wanted.spine.number);
  const auto time = wanted.time.empty() ? datasets_.spec(where, wanted.spine.name).time : wanted.time;
  if (!table::find(spine.schema, time))
    throw Error(Code::invalid, fmt::format("time: '{}' is none of the columns of '{}'; name the one that says as of "
                                           "when each row is described",
                                           time, wanted.spine.name));
  const auto room = datasets_.room();
  datasets_.open(*room, where, spine, "spine rows");
  number_spine(*room, "spine rows", "spine");
  const auto joined = join(*room, where, features, time);
  std::string columns, joins;
  std::vector<std::string> from{fmt::format("{}@{}", spine.dataset, spine.number)};
  for (const auto& column : spine.schema)
    columns += fmt::format("{}p.{}", columns.empty() ? "" : ", ", table::identifier(column.name));
  for (std::size_t i = 0; i < joined.size(); ++i) {
    for (const auto& feature : joined[i].features) {
      if (table::find(spine.schema, feature))
        throw Error(Code::invalid, fmt::format("the spine has a column '{}' already, as a feature is called", feature));
      columns += fmt::format(", j{}.{}", i, table::identifier(feature));
    }
    joins += fmt::format(" LEFT JOIN {} j{} ON j{}.{} = p.{}", table::identifier(joined[i].relation), i, i, kSpineRow,
                         kSpineRow);
    from.push_back(joined[i].from);
  }
  const auto select = fmt::format("SELECT {} FROM spine p{} ORDER BY p.{}", columns, joins, kSpineRow);
  declare(where, wanted.into, room->describe(select), time, authorise, act);
  data::Finish how{data::Format::parquet,
                   data::Mode::overwrite,
                   fmt::format("features {} of {}", wanted.service, fmt::join(from, ", ")),
                   "",
                   {}};
  auto& input = how.inputs.emplace_back(data::Input{spine.dataset, spine.row, spine.number});
  for (const auto& column : spine.schema) input.columns.push_back(column.name);
  for (const auto& view : joined) how.inputs.push_back(view.input);
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
