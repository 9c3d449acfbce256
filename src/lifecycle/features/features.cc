// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/features.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/error.h"

namespace falaj::features {
namespace {

// Those that a service takes, by view, in the order in which it names them first.
std::vector<std::pair<std::string, std::vector<std::string>>> by_view(const FeatureServiceSpec& service) {
  std::vector<std::pair<std::string, std::vector<std::string>>> out;
  for (const auto& text : service.features) {
    const auto named = parse_feature_name(text);
    CHECK(named, "a service that was applied names features");
    auto found = std::find_if(out.begin(), out.end(), [&](const auto& view) { return view.first == named->view; });
    if (found == out.end()) found = out.insert(out.end(), {named->view, {}});
    if (named->feature != "*") found->second.push_back(named->feature);
  }
  return out;
}

}  // namespace

template <class Spec>
Spec Features::spec(const char* kind, const Where& where, const std::string& name) {
  return decode<Spec>(resources_.get({kind, where.tenant.str(), where.project.str(), name}).resource.spec, kind);
}

std::vector<Features::Joined> Features::join(table::Workspace& room, const Where& where,
                                             const FeatureServiceSpec& service, const std::string& time) {
  std::vector<Joined> out;
  for (const auto& [name, wanted] : by_view(service)) {
    const auto view = spec<FeatureViewSpec>("FeatureView", where, name);
    const auto version = datasets_.version(where, view.dataset, std::nullopt);
    // By the dataset's own name, as the view's SQL calls it.
    datasets_.open(room, where, version, view.dataset);
    const auto rows = view.sql.empty() ? fmt::format("SELECT * FROM {}", table::identifier(view.dataset)) : view.sql;
    room.check_user_sql(rows);
    const auto schema = room.describe(rows);
    auto plan = compile(view, spec<EntitySpec>("Entity", where, view.entity), schema, wanted);
    plan.relation = fmt::format("view {}", name);
    room.run(fmt::format("CREATE OR REPLACE VIEW {} AS {}", table::identifier(plan.relation), rows));
    Joined joined{fmt::format("joined {}", name), {}, fmt::format("{} ({}@{})", name, view.dataset, version.number)};
    join_as_of(room, "spine", time, plan, joined.relation);
    for (const auto& feature : plan.rows) joined.features.push_back(feature.name);
    joined.features.insert(joined.features.end(), plan.window_names.begin(), plan.window_names.end());
    out.push_back(std::move(joined));
  }
  return out;
}

data::Version Features::train_set(const Where& where, const TrainSet& wanted, const resource::Authorise& authorise,
                                  const sql::Act& act, const table::Workspace::Watch& watch) {
  const auto service = spec<FeatureServiceSpec>("FeatureService", where, wanted.service);
  const auto spine = datasets_.version(where, wanted.spine.name, wanted.spine.number);
  const auto time = wanted.time.empty() ? datasets_.spec(where, wanted.spine.name).time : wanted.time;
  if (!table::find(spine.schema, time))
    throw Error(Code::invalid, fmt::format("time: '{}' is none of the columns of '{}'; name the one that says as of "
                                           "when each row is described",
                                           time, wanted.spine.name));
  const auto room = datasets_.room();
  datasets_.open(*room, where, spine, "spine rows");
  number_spine(*room, "spine rows", "spine");
  const auto joined = join(*room, where, service, time);
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
  return datasets_.store(where, wanted.into, *room, select,
                         {data::Format::parquet, data::Mode::overwrite,
                          fmt::format("features {} of {}", wanted.service, fmt::join(from, ", ")), ""},
                         act, watch);
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
