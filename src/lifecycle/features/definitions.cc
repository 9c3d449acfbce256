// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/definitions.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::features {
namespace {

constexpr std::size_t kKeptMax = 10'000;
// Raised when the same definition would give other rows: also when DuckDB's hash(), which distinct_approx is of,
// changes.
constexpr std::string_view kMeaning = "falaj feature view 1";

Digest meaning_of(const Where& where, const Definition& d) {
  ByteWriter out;
  for (const auto& text : {std::string(kMeaning), where.tenant.str(), where.project.str(), d.name, d.spec.dataset,
                           d.select, d.spec.time, d.spec.available})
    out.text(text);
  out.u64(static_cast<std::uint64_t>(d.spec.tile_us));
  out.u32(static_cast<std::uint32_t>(d.plan.key.size()));
  for (std::size_t i = 0; i < d.plan.key.size(); ++i) {
    out.text(d.plan.key[i]);
    out.text(table::name(d.plan.key_types[i]));
  }
  out.u32(static_cast<std::uint32_t>(d.plan.rows.size()));
  for (const auto& feature : d.plan.rows) {
    out.text(feature.name);
    out.text(feature.column);
    out.text(table::name(feature.type));
  }
  for (const auto& input : d.plan.inputs) out.text(input);
  for (std::size_t i = 0; i < d.plan.window_names.size(); ++i) {
    const auto& window = d.plan.windows.features()[i];
    out.text(d.plan.window_names[i]);
    out.text(lookup::name(window.aggregate));
    out.u64(window.input);
    out.u64(static_cast<std::uint64_t>(window.window_us));
  }
  return crypto::sha256(out.bytes());
}

std::shared_ptr<const lookup::View> view_of(const Definition& d) {
  std::vector<lookup::Type> key;
  for (const auto type : d.plan.key_types) key.push_back(online_type(type));
  std::vector<lookup::Column> rows;
  for (const auto& feature : d.plan.rows) rows.push_back({feature.name, online_type(feature.type)});
  ByteReader version(d.meaning.view());
  return std::make_shared<const lookup::View>(version.u32(), std::move(key), std::move(rows), d.plan.windows,
                                              d.plan.window_names, d.spec.ttl_us);
}

// A table without rows, as the dataset is.
std::string empty_table(const std::string& name, const table::Schema& schema) {
  std::string columns;
  for (const auto& column : schema)
    columns += fmt::format("{}{} {}", columns.empty() ? "" : ", ", table::identifier(column.name),
                           table::sql_name(column.type));
  return fmt::format("CREATE TABLE {} ({})", table::identifier(name), columns);
}

}  // namespace

online::Type online_type(table::Type type) { return static_cast<online::Type>(type); }
static_assert(static_cast<int>(table::Type::boolean) == static_cast<int>(online::Type::boolean) &&
              static_cast<int>(table::Type::timestamp) == static_cast<int>(online::Type::timestamp));

std::shared_ptr<const Definition> Definitions::view(const Where& where, const std::string& name,
                                                    std::optional<std::int64_t> revision) {
  const Name id{where.tenant.str(), where.project.str(), name, revision.value_or(0)};
  Kept kept;
  {
    Lock lock(mu_);
    if (const auto found = kept_.find(id); found != kept_.end()) kept = found->second;
  }
  const bool holds = kept.definition && std::all_of(kept.texts.begin(), kept.texts.end(), [&](const auto& text) {
                       return resources_.get_text(text.first) == text.second;
                     });
  if (holds) return kept.definition;
  Kept made;
  made.definition = make(where, name, revision, made);
  Lock lock(mu_);
  if (kept_.size() >= kKeptMax) kept_.clear();
  return (kept_[id] = std::move(made)).definition;
}

std::shared_ptr<const Definition> Definitions::make(const Where& where, const std::string& name,
                                                    std::optional<std::int64_t> revision, Kept& kept) {
  // The text before the value: a change between the two makes the text differ, and the value is read again.
  const auto read = [&](const char* kind, const std::string& which) {
    const resource::Key key{kind, where.tenant.str(), where.project.str(), which};
    kept.texts.emplace_back(key, resources_.get_text(key));
    return resources_.get(key);
  };
  auto d = std::make_shared<Definition>();
  d->name = name;
  auto stored = read("FeatureView", name);
  d->revision = stored.revision;
  auto spec = stored.resource.spec;
  if (revision && *revision != stored.revision) {
    const auto history = resources_.history(stored.resource.key());
    const auto found = std::find_if(history.begin(), history.end(),
                                    [&](const auto& r) { return r.revision == *revision && r.resource; });
    if (found == history.end())
      throw Error(Code::not_found, fmt::format("feature view '{}' has no revision {}", name, *revision));
    d->revision = *revision;
    spec = found->resource->spec;
  }
  d->spec = decode<FeatureViewSpec>(spec, "reading a feature view");
  std::vector<lookup::Column> request;
  for (const auto& field : d->spec.request)
    request.push_back({field.name, online_type(*table::parse_type(field.type))});
  std::vector<lookup::ComputedText> expressions;
  for (const auto& expression : d->spec.expressions) expressions.push_back({expression.name, expression.is});
  if (!d->has_entity()) {
    d->view = view_of(*d);
    d->computed = lookup::Computed(std::move(request), *d->view, expressions);
    return d;
  }
  d->entity = decode<EntitySpec>(read("Entity", d->spec.entity).resource.spec, "reading an entity");
  d->dataset = decode<data::DatasetSpec>(read("Dataset", d->spec.dataset).resource.spec, "reading a dataset");
  d->select = d->spec.sql.empty() ? fmt::format("SELECT * FROM {}", table::identifier(d->spec.dataset)) : d->spec.sql;
  d->rows = d->dataset.schema();
  if (!d->spec.sql.empty()) {
    const auto room = datasets_.room();
    room->check_user_sql(d->select);
    room->run(empty_table(d->spec.dataset, d->rows));
    d->rows = room->describe(d->select);
    d->row_by_row = room->is_row_by_row(d->select);
  }
  d->plan = compile(d->spec, d->entity, d->rows, {});
  d->meaning = meaning_of(where, *d);
  d->view = view_of(*d);
  d->computed = lookup::Computed(std::move(request), *d->view, expressions);
  return d;
}

std::vector<Selected> Definitions::select(const Where& where, const std::vector<std::string>& features) {
  std::vector<Selected> out;
  for (const auto& text : features) {
    const auto named = parse_feature_name(text);
    if (!named)
      throw Error(Code::invalid, fmt::format("features: '{}' must be VIEW:FEATURE or VIEW:*", text.substr(0, 80)));
    const auto definition = view(where, named->view, named->revision);
    auto found = std::find_if(out.begin(), out.end(), [&](const auto& s) { return s.from == definition; });
    if (found == out.end()) found = out.insert(out.end(), {definition, {}});
    const auto all = names_of(definition->spec);
    if (named->feature == "*")
      found->features.insert(found->features.end(), all.begin(), all.end());
    else if (std::find(all.begin(), all.end(), named->feature) != all.end())
      found->features.push_back(named->feature);
    else
      throw Error(Code::not_found, fmt::format("feature view '{}' has no feature '{}'; it has {}", named->view,
                                               named->feature, fmt::join(all, ", ")));
  }
  return out;
}

FeatureServiceSpec Definitions::service(const Where& where, const std::string& name) {
  return decode<FeatureServiceSpec>(
      resources_.get({"FeatureService", where.tenant.str(), where.project.str(), name}).resource.spec,
      "reading a feature service");
}

PushSourceSpec Definitions::push_source(const Where& where, const std::string& name) {
  return decode<PushSourceSpec>(
      resources_.get({"PushSource", where.tenant.str(), where.project.str(), name}).resource.spec,
      "reading a push source");
}

}  // namespace falaj::features
