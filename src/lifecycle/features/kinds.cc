// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/kinds.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/features/definitions.h"

namespace falaj::features {
namespace {

using lookup::WindowFeature;
using resource::Metadata;
using resource::Reference;
using resource::World;

// What a view of an entity must have, and one without must not.
void check_parts(const FeatureViewSpec& view, Faults& faults) {
  if (!view.entity.empty()) {
    if (view.dataset.empty()) faults.push_back({"spec.dataset", "is missing"});
    if (view.time.empty()) faults.push_back({"spec.time", "is missing"});
    return;
  }
  if (!view.dataset.empty() || !view.sql.empty() || !view.features.empty() || !view.aggregates.empty())
    faults.push_back({"spec.entity", "is missing: only expressions of the request do without"});
}

void add_faults(const Error& e, const std::string& at, Faults& faults) {
  for (const auto& fault : e.faults()) faults.push_back({at + "." + fault.where, fault.what});
  if (e.faults().empty()) faults.push_back({at, e.what()});
}

// What must hold can be said of the columns that the rows have.
void check_expectations(const FeatureViewSpec& view, const table::Schema& rows, Faults& faults) {
  for (std::size_t e = 0; e < view.expectations.size(); ++e)
    for (std::size_t r = 0; r < view.expectations[e].rules.size(); ++r) {
      const auto& rule = view.expectations[e].rules[r];
      const auto at = fmt::format("spec.expectations[{}].rules[{}]", e, r);
      data::check_rule(rule, rows, at, faults);
      if (rule.check == "distribution")
        faults.push_back({at + ".check", "distribution compares versions of a dataset: declare an Expectation of it"});
    }
}

// The SQL, the columns that it gives, and the expressions over all that.
void check_rows(const FeatureViewSpec& view, const EntitySpec& entity, const data::DatasetSpec& dataset,
                const MakeRoom& make_room, Faults& faults) {
  auto rows = dataset.schema();
  if (!view.sql.empty()) {
    if (!make_room) return;
    try {
      rows = describe_rows(*make_room(), view.dataset, rows, view.sql);
    } catch (const Error& e) {
      if (e.code() != Code::invalid && e.code() != Code::denied) throw;
      return add_faults(e, "spec.sql", faults);
    }
  }
  check_expectations(view, rows, faults);
  Definition d;
  try {
    d.plan = compile(view, entity, rows, {});
  } catch (const Error& e) {
    return add_faults(e, "spec", faults);
  }
  try {
    computed_of(view, *view_of(d));
  } catch (const Error& e) {
    add_faults(e, "spec.expressions", faults);
  }
}

void check_view(const World& world, const Metadata& metadata, const FeatureViewSpec& view, const MakeRoom& make_room,
                Faults& faults) {
  check_parts(view, faults);
  const auto names = names_of(view);
  if (names.empty()) faults.push_back({"spec", "must have features, aggregates or expressions"});
  for (std::size_t i = 0; i < names.size(); ++i)
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      faults.push_back({"spec.features", fmt::format("'{}' is there twice", names[i])});
  if (!view.aggregates.empty() && view.tile_us == 0)
    faults.push_back({"spec.tile", "is needed for aggregates: how finely their windows are cut, such as 5m"});
  for (std::size_t i = 0; i < view.aggregates.size(); ++i) {
    const auto& a = view.aggregates[i];
    if (view.tile_us > 0 && a.window_us % view.tile_us != 0)
      faults.push_back({fmt::format("spec.aggregates[{}].window", i), "must be a whole number of tiles"});
    if (a.of.empty() && a.aggregate != "count")
      faults.push_back({fmt::format("spec.aggregates[{}].of", i), fmt::format("is needed for {}", a.aggregate)});
  }
  for (const auto& field : view.request)
    if (std::find(names.begin(), names.end(), field.name) != names.end())
      faults.push_back({"spec.request", fmt::format("'{}' is also a feature", field.name)});
  if (!faults.empty()) return;
  if (view.entity.empty()) {
    try {
      computed_of(view, *view_of(Definition()));
    } catch (const Error& e) {
      add_faults(e, "spec.expressions", faults);
    }
    return;
  }
  const auto dataset = world.spec({"Dataset", metadata.tenant, metadata.project, view.dataset});
  const auto entity = world.spec({"Entity", metadata.tenant, metadata.project, view.entity});
  if (!dataset || !entity) return;  // said by refers_to
  check_rows(view, decode<EntitySpec>(*entity, "entity"), decode<data::DatasetSpec>(*dataset, "dataset"), make_room,
             faults);
}

void check_service(const World& world, const Metadata& metadata, const FeatureServiceSpec& service, Faults& faults) {
  std::map<std::string, std::string> seen;  // a feature's name -> who has it
  for (std::size_t i = 0; i < service.features.size(); ++i) {
    const auto at = fmt::format("spec.features[{}]", i);
    const auto named = parse_feature_name(service.features[i]);
    if (!named) {
      faults.push_back(
          {at, fmt::format("'{}': must be VIEW:FEATURE or VIEW:*, or VIEW@REVISION:... to pin what the view is",
                           service.features[i].substr(0, 80))});
      continue;
    }
    const auto spec = world.spec({"FeatureView", metadata.tenant, metadata.project, named->view});
    if (!spec) continue;            // said by refers_to
    if (named->revision) continue;  // what an earlier revision had is seen when it is used
    const auto all = names_of(decode<FeatureViewSpec>(*spec, "view"));
    if (named->feature != "*" && std::find(all.begin(), all.end(), named->feature) == all.end())
      faults.push_back({at, fmt::format("view '{}' has no feature '{}'", named->view, named->feature)});
    for (const auto& name : named->feature == "*" ? all : std::vector{named->feature})
      if (!seen.emplace(name, named->view).second)
        faults.push_back({at, fmt::format("'{}' is there twice, also in view '{}'", name, seen[name])});
  }
}

void check_push(const World& world, const Metadata& metadata, const PushSourceSpec& push, Faults& faults) {
  const auto spec = world.spec({"Dataset", metadata.tenant, metadata.project, push.dataset});
  if (spec && !decode<data::DatasetSpec>(*spec, "dataset").key.empty())
    faults.push_back({"spec.dataset",
                      "has a key: rows of a key can be ingested, where they are compared with all that "
                      "are there, but not pushed"});
}

std::vector<Reference> views_of(const World&, const Metadata& metadata, const FeatureServiceSpec& service) {
  std::vector<Reference> out;
  std::set<std::string> seen;
  for (const auto& text : service.features)
    if (const auto named = parse_feature_name(text); named && seen.insert(named->view).second)
      out.push_back({{"FeatureView", metadata.tenant, metadata.project, named->view}, "spec.features"});
  return out;
}

bool is_number(table::Type type) {
  using table::Type;
  return type == Type::boolean || type == Type::int32 || type == Type::int64 || type == Type::float32 ||
         type == Type::float64;
}

// The value as SQL, if it is one that the column can be compared with.
std::optional<std::string> value_of(const json::value& value, const table::Column& column) {
  if (value.is_string())
    return is_number(column.type)
               ? std::nullopt
               : std::optional(fmt::format("{}::{}", table::literal(value.get_string()), table::sql_name(column.type)));
  if (!is_number(column.type)) return std::nullopt;
  if (value.is_bool()) return value.get_bool() ? "TRUE" : "FALSE";
  if (value.is_int64()) return std::to_string(value.get_int64());
  if (value.is_double()) return fmt::format("{}::DOUBLE", value.get_double());
  return std::nullopt;
}

// The DOUBLE that an aggregate is computed of.
std::string input_of(const AggregateSpec& a, std::size_t index, const table::Schema& rows, Faults& faults) {
  const auto at = [&](std::string_view what) { return fmt::format("aggregates[{}].{}", index, what); };
  std::string value = "1";
  if (!a.of.empty()) {
    const auto* column = table::find(rows, a.of);
    if (!column)
      faults.push_back({at("of"), fmt::format("'{}' is none of the columns", a.of)});
    else if (a.aggregate == "distinct_approx" || a.aggregate == "count")
      value = fmt::format("hash({0})::DOUBLE + CASE WHEN {0} IS NULL THEN NULL ELSE 0 END", table::identifier(a.of));
    else if (!is_number(column->type))
      faults.push_back({at("of"), fmt::format("'{}' is {}, not numbers", a.of, table::name(column->type))});
    else
      value = table::identifier(a.of);
  }
  std::string condition;
  for (const auto& filter : a.where) {
    const auto* column = table::find(rows, filter.column);
    const auto compared = column ? value_of(filter.value, *column) : std::nullopt;
    if (!column)
      faults.push_back({at("where"), fmt::format("'{}' is none of the columns", filter.column)});
    else if (!compared)
      faults.push_back({at("where"), fmt::format("'{}' is {} and cannot be compared with that", filter.column,
                                                 table::name(column->type))});
    else
      condition += fmt::format("{}{} {} {}", condition.empty() ? "" : " AND ", table::identifier(filter.column),
                               filter.is, *compared);
  }
  return condition.empty() ? value : fmt::format("CASE WHEN {} THEN {} END", condition, value);
}

}  // namespace

std::vector<std::string> names_of(const FeatureViewSpec& view) {
  std::vector<std::string> out;
  for (const auto& feature : view.features) out.push_back(feature.name);
  for (const auto& aggregate : view.aggregates) out.push_back(aggregate.name);
  for (const auto& expression : view.expressions) out.push_back(expression.name);
  return out;
}

bool is_feature_name(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && text.size() <= 63 && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

std::optional<ViewName> parse_view_name(std::string_view text) {
  const auto at = text.find('@');
  ViewName out{std::string(text.substr(0, at)), std::nullopt};
  if (at != std::string_view::npos) {
    out.revision = parse_int(text.substr(at + 1));
    if (!out.revision || *out.revision < 1) return std::nullopt;
  }
  return is_name(out.view) ? std::optional(std::move(out)) : std::nullopt;
}

bool is_view_name(std::string_view text) { return parse_view_name(text).has_value(); }

std::optional<FeatureName> parse_feature_name(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  auto view = parse_view_name(text.substr(0, colon));
  const auto feature = text.substr(colon + 1);
  if (!view || (feature != "*" && !is_feature_name(feature))) return std::nullopt;
  return FeatureName{std::move(view->view), view->revision, std::string(feature)};
}

ViewPlan compile(const FeatureViewSpec& view, const EntitySpec& entity, const table::Schema& rows,
                 const std::vector<std::string>& wanted) {
  Faults faults;
  ViewPlan plan;
  const auto need = [&](const std::string& column, std::string_view field) {
    if (!table::find(rows, column))
      faults.push_back({std::string(field), fmt::format("'{}' is none of the columns", column)});
  };
  const auto need_time = [&](const std::string& column, std::string_view field) {
    const auto* found = table::find(rows, column);
    if (!found || (found->type != table::Type::timestamp && found->type != table::Type::date))
      faults.push_back({std::string(field), fmt::format("'{}' is not a column of timestamps or dates", column)});
  };
  const auto is_wanted = [&](const std::string& name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  for (const auto& column : entity.key) {
    plan.spine_key.push_back(column.name);
    plan.key_types.push_back(*table::parse_type(column.type));
  }
  plan.key = view.key.empty() ? plan.spine_key : view.key;
  if (plan.key.size() != plan.spine_key.size())
    faults.push_back(
        {"key", fmt::format("the entity has {} columns and this names {}", plan.spine_key.size(), plan.key.size())});
  for (const auto& column : plan.key) need(column, "key");
  need_time(plan.at = view.time, "time");
  if (!view.available.empty()) need_time(plan.available = view.available, "available");
  plan.ttl_us = view.ttl_us;
  for (const auto& feature : view.features) {
    if (!is_wanted(feature.name)) continue;
    plan.rows.push_back({feature.name, feature.column.empty() ? feature.name : feature.column, table::Type::text});
    need(plan.rows.back().column, "features");
    if (const auto* column = table::find(rows, plan.rows.back().column)) plan.rows.back().type = column->type;
  }
  std::vector<WindowFeature> windows;
  for (std::size_t i = 0; i < view.aggregates.size(); ++i) {
    const auto& a = view.aggregates[i];
    if (!is_wanted(a.name)) continue;
    const auto input = input_of(a, i, rows, faults);
    const auto same = std::find(plan.inputs.begin(), plan.inputs.end(), input);
    windows.push_back(
        {*lookup::parse_aggregate(a.aggregate), static_cast<std::size_t>(same - plan.inputs.begin()), a.window_us});
    if (same == plan.inputs.end()) plan.inputs.push_back(input);
    plan.window_names.push_back(a.name);
  }
  refuse_if_any("feature view", std::move(faults));
  plan.windows = Windows(std::max<std::int64_t>(view.tile_us, 1), std::move(windows));
  return plan;
}

namespace {

// A table without rows, as the dataset is.
std::string empty_table(const std::string& name, const table::Schema& schema) {
  std::string columns;
  for (const auto& column : schema)
    columns += fmt::format("{}{} {}", columns.empty() ? "" : ", ", table::identifier(column.name),
                           table::sql_name(column.type));
  return fmt::format("CREATE TABLE {} ({})", table::identifier(name), columns);
}

}  // namespace

table::Schema describe_rows(table::Workspace& room, const std::string& dataset, const table::Schema& columns,
                            const std::string& sql) {
  room.check_user_sql(sql);
  room.run(empty_table(dataset, columns));
  return room.describe(sql);
}

std::vector<resource::Kind> feature_kinds(MakeRoom make_room) {
  resource::KindOf<EntitySpec> entity{
      "Entity", "entities", "Something that features are about, and the columns that name one.", {.project = true}, {},
      {},       {}};
  resource::KindOf<FeatureViewSpec> view{
      "FeatureView",
      "featureviews",
      "Features of an entity, computed from a dataset as of any moment.",
      {.project = true},
      [make_room = std::move(make_room)](const World& world, const Metadata& metadata, const FeatureViewSpec& spec,
                                         Faults& faults) { check_view(world, metadata, spec, make_room, faults); },
      [](const World&, const Metadata& m, const FeatureViewSpec& spec) {
        if (spec.entity.empty()) return std::vector<Reference>{};
        return std::vector<Reference>{{{"Entity", m.tenant, m.project, spec.entity}, "spec.entity"},
                                      {{"Dataset", m.tenant, m.project, spec.dataset}, "spec.dataset"}};
      },
      {}};
  resource::KindOf<FeatureServiceSpec> service{"FeatureService",
                                               "featureservices",
                                               "The features that one model takes, of any views.",
                                               {.project = true},
                                               check_service,
                                               views_of,
                                               {}};
  resource::KindOf<PushSourceSpec> push{
      "PushSource",
      "pushsources",
      "Where events are pushed to: rows of a dataset, known online at once.",
      {.project = true},
      check_push,
      [](const World&, const Metadata& m, const PushSourceSpec& spec) {
        return std::vector<Reference>{{{"Dataset", m.tenant, m.project, spec.dataset}, "spec.dataset"}};
      },
      {}};
  return {resource::make_kind(std::move(entity)), resource::make_kind(std::move(view)),
          resource::make_kind(std::move(service)), resource::make_kind(std::move(push))};
}

}  // namespace falaj::features
