// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/definitions.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::features {
namespace {

constexpr std::size_t kKeptMax = 10'000, kSelectionsMax = 1'000, kSelectionNameMax = 8192;
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

Place place_of(const Definition& definition, const std::string& name) {
  const auto place = lookup::find_place(*definition.view, definition.computed, name);
  CHECK(place, "a selected feature is one of its view");
  return *place;
}

}  // namespace

std::string lay_out_rows(table::Workspace& room, const Definition& of, const std::string& table,
                         const table::Workspace::Watch& watch) {
  if (of.row_by_row) return fmt::format("({})", of.select);
  std::vector<std::string> columns;
  for (const auto& column : of.rows) columns.push_back(column.name);
  room.run(fmt::format("CREATE OR REPLACE TABLE {} AS SELECT * FROM ({}) ORDER BY {}", table::identifier(table),
                       of.select, table::identifiers(columns)),
           {}, watch);
  return table::identifier(table);
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

lookup::Computed computed_of(const FeatureViewSpec& spec, const lookup::View& view) {
  std::vector<lookup::Column> request;
  for (const auto& field : spec.request) request.push_back({field.name, online_type(*table::parse_type(field.type))});
  std::vector<lookup::ComputedText> expressions;
  for (const auto& expression : spec.expressions) expressions.push_back({expression.name, expression.is});
  return lookup::Computed(std::move(request), view, expressions);
}

online::Type online_type(table::Type type) { return static_cast<online::Type>(type); }
static_assert(static_cast<int>(table::Type::boolean) == static_cast<int>(online::Type::boolean) &&
              static_cast<int>(table::Type::timestamp) == static_cast<int>(online::Type::timestamp));

std::shared_ptr<const Definition> Definitions::view(const Where& where, const std::string& name,
                                                    std::optional<std::int64_t> revision) {
  const Name id{where.tenant.str(), where.project.str(), name, revision.value_or(0)};
  std::shared_ptr<const Kept> kept;
  {
    Lock lock(mu_);
    if (const auto found = kept_.find(id); found != kept_.end()) kept = found->second;
  }
  const bool holds = kept && std::all_of(kept->texts.begin(), kept->texts.end(), [&](const auto& text) {
                       return resources_.get_text(text.first) == text.second;
                     });
  if (holds) return kept->definition;
  auto made = std::make_shared<Kept>();
  made->definition = make(where, name, revision, *made);
  Lock lock(mu_);
  if (kept_.size() >= kKeptMax) kept_.clear();
  kept_[id] = made;
  return made->definition;
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
  if (!d->has_entity()) {
    d->view = view_of(*d);
    d->computed = computed_of(d->spec, *d->view);
    return d;
  }
  d->entity = decode<EntitySpec>(read("Entity", d->spec.entity).resource.spec, "reading an entity");
  d->dataset = decode<data::DatasetSpec>(read("Dataset", d->spec.dataset).resource.spec, "reading a dataset");
  d->select = d->spec.sql.empty() ? fmt::format("SELECT * FROM {}", table::identifier(d->spec.dataset)) : d->spec.sql;
  d->rows = d->dataset.schema();
  if (!d->spec.sql.empty()) {
    const auto room = datasets_.room();
    d->rows = describe_rows(*room, d->spec.dataset, d->rows, d->select);
    d->row_by_row = room->is_row_by_row(d->select);
  }
  d->plan = compile(d->spec, d->entity, d->rows, {});
  d->meaning = meaning_of(where, *d);
  d->view = view_of(*d);
  d->computed = computed_of(d->spec, *d->view);
  return d;
}

Selection Definitions::make_selection(const Where& where, const std::vector<std::string>& features) {
  Selection out;
  for (const auto& text : features) {
    const auto named = parse_feature_name(text);
    if (!named)
      throw Error(Code::invalid, fmt::format("features: '{}' must be VIEW:FEATURE or VIEW:*", text.substr(0, 80)));
    const auto definition = view(where, named->view, named->revision);
    auto found = std::find_if(out.begin(), out.end(), [&](const auto& s) { return s.from == definition; });
    if (found == out.end()) found = out.insert(out.end(), {definition, named->revision, {}, {}});
    const auto all = names_of(definition->spec);
    if (named->feature == "*")
      found->features.insert(found->features.end(), all.begin(), all.end());
    else if (std::find(all.begin(), all.end(), named->feature) != all.end())
      found->features.push_back(named->feature);
    else
      throw Error(Code::not_found, fmt::format("feature view '{}' has no feature '{}'; it has {}", named->view,
                                               named->feature, fmt::join(all, ", ")));
  }
  for (auto& selected : out)
    for (const auto& name : selected.features) selected.places.push_back(place_of(*selected.from, name));
  return out;
}

std::shared_ptr<const Selection> Definitions::find_selection(const std::string& name,
                                                             const resource::TextCache::Text& text,
                                                             const Where& where) {
  std::shared_ptr<const KeptSelection> kept;
  {
    Lock lock(mu_);
    if (const auto found = selections_.find(name); found != selections_.end()) kept = found->second;
  }
  if (!kept || kept->text != text) return nullptr;
  for (const auto& selected : *kept->selection)
    if (view(where, selected.from->name, selected.pinned) != selected.from) return nullptr;
  return kept->selection;
}

std::shared_ptr<const Selection> Definitions::keep_selection(const std::string& name, resource::TextCache::Text text,
                                                             Selection selection) {
  const auto made = std::make_shared<const KeptSelection>(
      KeptSelection{std::move(text), std::make_shared<const Selection>(std::move(selection))});
  Lock lock(mu_);
  if (selections_.size() >= kSelectionsMax) selections_.clear();
  selections_[name] = made;
  return made->selection;
}

std::shared_ptr<const Selection> Definitions::select(const Where& where, const std::vector<std::string>& features) {
  // With their lengths: whatever is in them, lists that differ have names that do.
  auto name = fmt::format("list {}/{}", where.tenant.str(), where.project.str());
  for (const auto& feature : features)
    name.append(" ").append(std::to_string(feature.size())).append(":").append(feature);
  if (name.size() > kSelectionNameMax) return std::make_shared<const Selection>(make_selection(where, features));
  if (auto kept = find_selection(name, nullptr, where)) return kept;
  return keep_selection(name, nullptr, make_selection(where, features));
}

std::shared_ptr<const Selection> Definitions::select_service(const Where& where, const std::string& service) {
  const resource::Key key{"FeatureService", where.tenant.str(), where.project.str(), service};
  const auto name = fmt::format("service {}/{}/{}", key.tenant, key.project, service);
  auto text = resources_.get_text(key);
  if (auto kept = find_selection(name, text, where)) return kept;
  const auto spec = decode<FeatureServiceSpec>(resources_.get(key).resource.spec, "reading a feature service");
  return keep_selection(name, std::move(text), make_selection(where, spec.features));
}

PushSourceSpec Definitions::push_source(const Where& where, const std::string& name) {
  return decode<PushSourceSpec>(
      resources_.get({"PushSource", where.tenant.str(), where.project.str(), name}).resource.spec,
      "reading a push source");
}

}  // namespace falaj::features
