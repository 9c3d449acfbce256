// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/models/tables.h"
#include "lifecycle/track/filter.h"

namespace falaj::models {

namespace {

using track::Comparison;
using track::Entity;
using track::Op;
using track::Order;

using Values = std::map<std::int64_t, std::string>;                                  // by model
using VersionValues = std::map<std::pair<std::int64_t, std::int64_t>, std::string>;  // and number

bool asks_for_prompts(const std::vector<Comparison>& filter) {
  return std::any_of(filter.begin(), filter.end(),
                     [](const Comparison& c) { return c.entity == Entity::tag && c.key == kPromptTag; });
}

// Prompts are models with a tag. Whoever does not ask for them does not get them, and what lacks the tag is none.
std::vector<Comparison> without_prompts(std::vector<Comparison> filter) {
  if (!asks_for_prompts(filter)) {
    Comparison none;
    none.entity = Entity::tag;
    none.key = kPromptTag;
    none.op = Op::ne;
    none.text = "true";
    filter.push_back(std::move(none));
  }
  return filter;
}

template <class Map, class Key>
bool tag_matches(const Comparison& c, const Map& values, const Key& key) {
  const auto found = values.find(key);
  if (found != values.end()) return matches(c, found->second);
  return c.key == kPromptTag && matches(c, std::string_view("false"));
}

template <class T, class F>
void drop_unless(std::vector<T>& items, F&& good) {
  items.erase(std::remove_if(items.begin(), items.end(), [&](const T& item) { return !good(item); }), items.end());
}

// The page of `items` in the order of `before`.
template <class T, class Before>
Found<T> page_of(std::vector<T> items, const Search& search, Before&& before) {
  const auto begin = std::min(search.offset, items.size());
  const auto end = begin + std::min(search.limit, items.size() - begin);
  std::partial_sort(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(end), items.end(), before);
  Found<T> found;
  found.more = end < items.size();
  for (auto i = begin; i < end; ++i) found.items.push_back(std::move(items[i]));
  return found;
}

int compare(std::int64_t a, std::int64_t b) { return (a > b) - (a < b); }

}  // namespace

Found<Model> Registry::search_models(const Where& where, const Search& search) {
  if (search.limit > kSearchModelsMax)
    throw Error(Code::invalid, fmt::format("max_results: at most {}, got {}", kSearchModelsMax, search.limit));
  const auto filter = without_prompts(track::parse_filter(search.filter, track::kRegisteredModelGrammar));
  const auto order = track::parse_order_by(search.order_by, track::kRegisteredModelGrammar);
  check_project(where);
  return database_.read([&](sql::Reader& r) {
    auto models = models_of(r, where);
    for (const auto& c : filter) {
      if (c.entity == Entity::attribute) {
        drop_unless(models, [&](const Model& m) { return matches(c, m.name); });
        continue;
      }
      Values values;
      r.query(
          "SELECT t.model, t.value FROM models_model m JOIN models_model_tag t ON t.model = m.id"
          " WHERE m.tenant = ? AND m.project = ? AND t.key = ?",
          {where.tenant.str(), where.project.str(), c.key},
          [&](const sql::Row& row) { values[row.integer(0)] = row.text(1); });
      drop_unless(models, [&](const Model& m) { return tag_matches(c, values, m.row); });
    }
    const auto before = [&](const Model& a, const Model& b) {
      for (const auto& item : order) {
        const int less = item.key == "name"                 ? a.name.compare(b.name)
                         : item.key == "creation_timestamp" ? compare(a.created_ms, b.created_ms)
                                                            : compare(a.updated_ms, b.updated_ms);
        if (less != 0) return item.ascending ? less < 0 : less > 0;
      }
      return a.name < b.name;
    };
    auto found = page_of(std::move(models), search, before);
    for (auto& one : found.items) one = load_model(r, std::move(one));
    return found;
  });
}

Found<Version> Registry::search_versions(const Where& where, const Search& search) {
  if (search.limit > kSearchVersionsMax)
    throw Error(Code::invalid, fmt::format("max_results: at most {}, got {}", kSearchVersionsMax, search.limit));
  const auto filter = without_prompts(track::parse_filter(search.filter, track::kModelVersionGrammar));
  const auto order = track::parse_order_by(search.order_by, track::kModelVersionGrammar);
  check_project(where);
  return database_.read([&](sql::Reader& r) {
    // Most searches name the model: then only its versions are looked at.
    const auto named = std::find_if(filter.begin(), filter.end(), [](const Comparison& c) {
      return c.entity == Entity::attribute && c.key == "name" && c.op == Op::eq;
    });
    std::optional<ModelRow> model;
    if (named != filter.end()) {
      model = find_model(r, where, named->text);
      if (!model) return Found<Version>{};
    }
    auto versions = versions_of(r, where, model ? &model->model : nullptr);
    for (const auto& c : filter) {
      if (c.entity == Entity::attribute) {
        drop_unless(versions, [&](const Version& v) {
          if (c.key == "version_number") return matches(c, static_cast<double>(v.number));
          return matches(c, c.key == "name" ? v.model : c.key == "run_id" ? v.run_id : v.source);
        });
        continue;
      }
      VersionValues values;
      const auto put = [&](const sql::Row& row) { values[{row.integer(0), row.integer(1)}] = row.text(2); };
      if (model)
        r.query("SELECT model, version, value FROM models_version_tag WHERE model = ? AND key = ?",
                {model->model.row, c.key}, put);
      else
        r.query(
            "SELECT t.model, t.version, t.value FROM models_model m JOIN models_version_tag t ON t.model = m.id"
            " WHERE m.tenant = ? AND m.project = ? AND t.key = ?",
            {where.tenant.str(), where.project.str(), c.key}, put);
      drop_unless(versions, [&](const Version& v) { return tag_matches(c, values, std::pair(v.model_row, v.number)); });
    }
    const auto before = [&](const Version& a, const Version& b) {
      for (const auto& item : order) {
        const int less = item.key == "name"                 ? a.model.compare(b.model)
                         : item.key == "version_number"     ? compare(a.number, b.number)
                         : item.key == "creation_timestamp" ? compare(a.created_ms, b.created_ms)
                                                            : compare(a.updated_ms, b.updated_ms);
        if (less != 0) return item.ascending ? less < 0 : less > 0;
      }
      return a.model != b.model ? a.model < b.model : a.number > b.number;
    };
    auto found = page_of(std::move(versions), search, before);
    load_versions(r, where, model ? &model->model : nullptr, found.items);
    return found;
  });
}

}  // namespace falaj::models
