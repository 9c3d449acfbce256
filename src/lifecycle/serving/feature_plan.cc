// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/serving/feature_plan.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/lookup/values.h"

namespace falaj::serving {
namespace {

traffic::FeatureColumn column_of(std::string name, lookup::Type type) {
  return {std::move(name), std::string(lookup::name(type))};
}

// The space that is read now. Throws conflict when there is none.
std::string space_of(features::Online& online, const data::Where& where, const features::Definition& definition,
                     PlannedSpaces& spaces) {
  const auto view = online.views().find(definition.meaning);
  if (!view || !view->done)
    throw Error(Code::conflict, fmt::format("feature view '{0}' is not online: 'falaj features materialize {0}' brings "
                                            "it there",
                                            definition.name));
  const auto generation = view->done->generation;
  auto name = to_hex(online.views().space(definition.meaning, generation)->prefix());
  spaces.insert_or_assign(name, PlannedSpace{where, definition.name, definition.meaning, generation});
  return name;
}

traffic::FeatureView view_of(features::Online& online, const data::Where& where, const features::Selected& selected,
                             PlannedSpaces& spaces) {
  const auto& definition = *selected.from;
  const auto& view = *definition.view;
  traffic::FeatureView out;
  out.name = definition.name;
  out.revision = definition.revision;
  out.personal = definition.personal();
  if (definition.has_entity()) out.space = space_of(online, where, definition, spaces);
  out.layout = view.layout.view_version();
  for (std::size_t i = 0; i < view.key.size(); ++i)
    out.key.push_back(column_of(definition.plan.spine_key[i], view.key[i]));
  for (const auto& column : view.rows) out.rows.push_back(column_of(column.name, column.type));
  for (const auto& field : definition.computed.request()) out.request.push_back(column_of(field.name, field.type));
  out.tile_us = view.windows.tile_us();
  const auto windows = view.windows.features();
  for (std::size_t i = 0; i < windows.size(); ++i)
    out.windows.push_back({view.window_names[i], std::string(lookup::name(windows[i].aggregate)),
                           static_cast<std::int64_t>(windows[i].input), windows[i].window_us});
  out.ttl_us = view.ttl_us;
  for (const auto& expression : definition.spec.expressions)
    out.expressions.push_back({expression.name, expression.is});
  out.features = selected.features;
  return out;
}

}  // namespace

traffic::Features plan_features(features::Online& online, resource::Resources& resources, const data::Where& where,
                                const std::string& service, PlannedSpaces& spaces) {
  traffic::Features out;
  out.service = service;
  out.prefix = online.views().store().key_prefix();
  try {
    out.revision = resources.get({"FeatureService", where.tenant.str(), where.project.str(), service}).revision;
    const auto selection = online.definitions().select_service(where, service);
    for (const auto& selected : *selection) out.views.push_back(view_of(online, where, selected, spaces));
  } catch (const Error& e) {
    out.views.clear();
    out.problem = e.what();
  }
  return out;
}

traffic::SpaceKeys share_space(features::Online& online, const std::string& name, const PlannedSpace& space) {
  const auto secret = online.views().share(space.meaning, space.generation);
  traffic::SpaceKeys out{name, to_hex(secret.address_key.view()), {}};
  for (const auto& numbered : secret.keys) out.keys.push_back({numbered.number, to_hex(numbered.key.view())});
  return out;
}

}  // namespace falaj::serving
