// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/online_views.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/lookup/values.h"

namespace falaj::features {
namespace {

bool same(const Where& a, const Where& b) { return a.tenant == b.tenant && a.project == b.project; }

bool is_whole(lookup::Aggregate aggregate) {
  return aggregate == lookup::Aggregate::count || aggregate == lookup::Aggregate::distinct_approx;
}

// Where a feature is found in what a view says of an entity.
struct Place {
  bool window = false;
  std::size_t index = 0;
};

Place place_of(const lookup::View& view, const std::string& name) {
  for (std::size_t i = 0; i < view.rows.size(); ++i)
    if (view.rows[i].name == name) return {false, i};
  const auto found = std::find(view.window_names.begin(), view.window_names.end(), name);
  CHECK(found != view.window_names.end(), "a selected feature is one of its view");
  return {true, static_cast<std::size_t>(found - view.window_names.begin())};
}

void add_window(FeatureColumn& column, lookup::Cell cell) {
  if (!cell)
    column.values.emplace_back();
  else if (column.type == online::Type::int64)
    column.values.emplace_back(static_cast<std::int64_t>(*cell));
  else
    column.values.emplace_back(*cell);
  column.statuses.push_back(cell ? online::Status::present : online::Status::null);
  column.event_us.push_back(0);
}

void add_row_value(FeatureColumn& column, std::size_t index, const lookup::Found& found) {
  lookup::Value value;
  auto status = found.row;
  if (found.columns) {
    value = lookup::value_of(*found.columns, index, column.type);
    if (std::holds_alternative<std::monostate>(value)) status = online::Status::null;
  }
  column.values.push_back(std::move(value));
  column.statuses.push_back(status);
  column.event_us.push_back(found.row == online::Status::missing ? 0 : found.event_us);
}

}  // namespace

OnlineViews::OnlineViews(sql::Database& database, Definitions& definitions, online::Store& store,
                         const crypto::Key& key, const sys::Clock& clock)
    : database_(database),
      definitions_(definitions),
      store_(store),
      address_key_(crypto::derive(key, {}, "addresses")),
      seal_key_(crypto::derive(key, {}, "rows")),
      clock_(clock) {
  const auto all = database_.read([](sql::Reader& r) { return list_views(r, std::nullopt); });
  Lock lock(mu_);
  for (const auto& view : all) views_.emplace(view.meaning, view);
}

std::optional<OnlineView> OnlineViews::find(const Digest& meaning) const {
  Lock lock(mu_);
  const auto found = views_.find(meaning);
  return found == views_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<OnlineView> OnlineViews::list(const std::optional<Where>& where) const {
  std::vector<OnlineView> out;
  Lock lock(mu_);
  for (const auto& [meaning, view] : views_)
    if (!where || same(view.where, *where)) out.push_back(view);
  return out;
}

OnlineView OnlineViews::change(const sql::Act& act, const Digest& meaning,
                               const std::function<OnlineView(std::optional<OnlineView>)>& change) {
  return database_.write(act, [&](sql::Writer& w) {
    auto view = change(find_view(w, meaning));
    view.changed_us = clock_.wall().count();
    put_view(w, view);
    w.after_commit([this, view] {
      Lock lock(mu_);
      views_.insert_or_assign(view.meaning, view);
    });
    return view;
  });
}

void OnlineViews::forget(const sql::Act& act, const Digest& meaning) {
  database_.write(act, [&](sql::Writer& w) {
    delete_view(w, meaning);
    w.after_commit([this, meaning] {
      Lock lock(mu_);
      views_.erase(meaning);
      std::erase_if(spaces_, [&](const auto& space) { return space.first.first == meaning; });
    });
  });
}

std::shared_ptr<const online::Space> OnlineViews::space(const Digest& meaning, std::int64_t generation) {
  Lock lock(mu_);
  auto& space = spaces_[{meaning, generation}];
  if (!space) {
    ByteWriter name;
    name.raw(meaning.view());
    name.u64(static_cast<std::uint64_t>(generation));
    std::vector<online::NumberedKey> keys;
    keys.push_back({1, seal_key_.copy()});
    space = std::make_shared<const online::Space>(online::Space(name.bytes(), address_key_, std::move(keys)));
  }
  return space;
}

std::vector<OnlineViews::Live> OnlineViews::live(const Where& where, const std::string& dataset) {
  std::vector<Live> out;
  for (const auto& view : list(where)) {
    if (view.dataset != dataset || (!view.done && !view.running)) continue;
    Live live;
    try {
      live.definition = definitions_.view(where, view.view, view.revision);
    } catch (const Error& e) {
      if (e.code() != Code::not_found && e.code() != Code::invalid) throw;
    }
    // What it is made of has changed: this meaning cannot be computed any more, and is not read.
    if (!live.definition || live.definition->meaning != view.meaning) continue;
    if (view.done) live.spaces.push_back(space(view.meaning, view.done->generation));
    if (view.running && (!view.done || view.running->generation != view.done->generation))
      live.spaces.push_back(space(view.meaning, view.running->generation));
    out.push_back(std::move(live));
  }
  return out;
}

std::vector<Bytes> OnlineViews::keys_of(const Definition& definition, const Entities& entities) const {
  std::vector<const std::vector<lookup::Value>*> columns;
  for (const auto& name : definition.plan.spine_key) {
    const auto found = std::find_if(entities.columns.begin(), entities.columns.end(),
                                    [&](const auto& column) { return column.first == name; });
    if (found == entities.columns.end())
      throw Error(Code::invalid, fmt::format("entities: '{}' is missing, by which feature view '{}' finds its rows",
                                             name, definition.name));
    columns.push_back(&found->second);
  }
  std::vector<Bytes> out;
  std::vector<lookup::Value> values(columns.size());
  for (std::size_t i = 0; i < entities.size(); ++i) {
    for (std::size_t c = 0; c < columns.size(); ++c) values[c] = (*columns[c])[i];
    out.push_back(lookup::entity_key(definition.view->key, values));
  }
  return out;
}

std::vector<FeatureColumn> OnlineViews::get(const Where&, const std::vector<Selected>& wanted, const Entities& entities,
                                            std::optional<std::int64_t> as_of_us) {
  const auto now_us = as_of_us.value_or(clock_.wall().count());
  std::vector<FeatureColumn> out;
  const auto snapshot = store_.snapshot();
  for (const auto& selected : wanted) {
    const auto& definition = *selected.from;
    const auto online = find(definition.meaning);
    if (!online || !online->done)
      throw Error(Code::conflict, fmt::format("feature view '{}' is not online: 'falaj features materialize {}' brings "
                                              "it there",
                                              definition.name, definition.name));
    const auto& view = *definition.view;
    const auto first = out.size();
    std::vector<Place> places;
    for (const auto& name : selected.features) {
      const auto place = places.emplace_back(place_of(view, name));
      const auto type = !place.window                                              ? view.rows[place.index].type
                        : is_whole(view.windows.features()[place.index].aggregate) ? online::Type::int64
                                                                                   : online::Type::float64;
      auto& column = out.emplace_back(FeatureColumn{definition.name, name, type, {}, {}, {}});
      column.values.reserve(entities.size());
    }
    const auto keys = keys_of(definition, entities);
    const std::vector<BytesView> key_views(keys.begin(), keys.end());
    lookup::read(*snapshot, *space(definition.meaning, online->done->generation), view, key_views, now_us,
                 [&](std::size_t, const lookup::Found& found) {
                   for (std::size_t f = 0; f < places.size(); ++f) {
                     if (places[f].window)
                       add_window(out[first + f], found.windows[places[f].index]);
                     else
                       add_row_value(out[first + f], places[f].index, found);
                   }
                 });
    snapshot->clear();
  }
  return out;
}

}  // namespace falaj::features
