// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/online_views.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/features/view_checks.h"
#include "lifecycle/lookup/values.h"

namespace falaj::features {
namespace {

constexpr int kReadTries = 10;
constexpr std::string_view kMarks = "falaj online store", kMarkKey = "id", kWhole = "whole";

bool same(const Where& a, const Where& b) { return a.tenant == b.tenant && a.project == b.project; }

// The columns of the request that a view's expressions name, if some of those are asked for.
std::vector<const std::vector<lookup::Value>*> request_of(const Definition& definition, const Entities& entities) {
  std::vector<const std::vector<lookup::Value>*> out;
  for (const auto& field : definition.computed.request()) {
    const auto found = std::find_if(entities.columns.begin(), entities.columns.end(),
                                    [&](const auto& column) { return column.first == field.name; });
    if (found == entities.columns.end())
      throw Error(Code::invalid, fmt::format("entities: '{}' is missing, which expressions of feature view '{}' need",
                                             field.name, definition.name));
    out.push_back(&found->second);
  }
  return out;
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

std::vector<data::CheckResult> OnlineViews::checks(const Where& where, const std::string& view,
                                                   std::int64_t limit) const {
  return database_.read([&](sql::Reader& r) { return list_view_checks(r, where, view, limit); });
}

void OnlineViews::forget_examples(const Where& where, const sql::Act& act) {
  if (!database_.read([&](sql::Reader& r) { return has_view_examples(r, where); })) return;
  database_.write(act, [&](sql::Writer& w) { forget_view_examples(w, where); });
}

std::shared_ptr<const Definition> OnlineViews::definition_of(const OnlineView& view) {
  // Today's first: what it expects, and how often it is to be brought online, may have changed without its meaning.
  for (const auto revision : {std::optional<std::int64_t>(), std::optional(view.revision)}) try {
      auto definition = definitions_.view(view.where, view.view, revision);
      if (definition->meaning == view.meaning) return definition;
    } catch (const Error& e) {
      if (e.code() != Code::not_found && e.code() != Code::invalid && e.code() != Code::denied) throw;
    }
  return nullptr;
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
    space = make_space(name.bytes());
  }
  return space;
}

online::Space::Secret OnlineViews::share(const Digest& meaning, std::int64_t generation) {
  const auto rows = space(meaning, generation);
  Lock marking(marking_);
  {
    Lock lock(mu_);
    const auto online = views_.find(meaning);
    if (online == views_.end() || !online->second.done || online->second.done->generation != generation)
      throw Error(Code::conflict, "what is asked for is not, or no more, what is read online");
    shared_.emplace(meaning, generation);
  }
  const auto now_us = clock_.wall().count();
  const online::Write mark{lookup::kWholeMark, {now_us, now_us, as_bytes(kWhole)}, 0};
  store_.put(*rows, std::span(&mark, 1));
  return rows->secret();
}

bool OnlineViews::is_shared(const Digest& meaning, std::int64_t generation) const {
  Lock lock(mu_);
  return shared_.contains({meaning, generation});
}

void OnlineViews::erase_generation(const Digest& meaning, std::int64_t generation) {
  const auto rows = space(meaning, generation);
  {
    Lock marking(marking_);
    const BytesView mark[] = {lookup::kWholeMark};
    store_.erase(*rows, mark);
  }
  store_.erase_before(*rows);
  Lock lock(mu_);
  shared_.erase({meaning, generation});
}

std::shared_ptr<const online::Space> OnlineViews::make_space(BytesView name) const {
  std::vector<online::NumberedKey> keys;
  keys.push_back({1, seal_key_.copy()});
  return std::make_shared<const online::Space>(online::Space(name, address_key_, std::move(keys)));
}

std::size_t OnlineViews::recognise_store(const sql::Act& act) {
  const auto known = database_.read([](sql::Reader& r) { return store_id(r); });
  if (known.empty()) return 0;  // nothing was ever brought into one
  {
    const auto snapshot = store_.snapshot();
    const BytesView key[] = {as_bytes(kMarkKey)};
    std::optional<online::Row> mark[1];
    snapshot->get(*make_space(as_bytes(kMarks)), key, mark);
    if (mark[0] && as_text(mark[0]->payload) == known) return 0;
  }
  std::size_t lost = 0;
  for (const auto& view : list(std::nullopt)) {
    if (!view.done && !view.running) continue;
    ++lost;
    change(act, view.meaning, [&](std::optional<OnlineView> row) {
      CHECK(row, "it is there");
      auto pass = row->done ? *row->done : *row->running;
      pass.number = ++row->passes;
      pass.generation = ++row->generations;
      row->running = pass;
      row->done.reset();
      row->problem.clear();
      return *row;
    });
  }
  mark_store(act);  // last, so that a kill before this begins again
  return lost;
}

void OnlineViews::need_mark(const sql::Act& act) {
  if (database_.read([](sql::Reader& r) { return store_id(r); }).empty()) mark_store(act);
}

void OnlineViews::mark_store(const sql::Act& act) {
  const auto id = to_hex(crypto::Key::random().view().first(16));
  const auto now_us = clock_.wall().count();
  // The store first: a kill in between leaves a mark that nobody knows, and is made good by the next.
  const online::Write write{as_bytes(kMarkKey), {now_us, now_us, as_bytes(id)}, 0};
  store_.put(*make_space(as_bytes(kMarks)), std::span(&write, 1));
  database_.write(act, [&](sql::Writer& w) { put_store_id(w, id); });
}

std::vector<OnlineViews::Live> OnlineViews::live(const Where& where, const std::string& dataset) {
  std::vector<Live> out;
  for (const auto& view : list(where)) {
    if (view.dataset != dataset || (!view.done && !view.running)) continue;
    Live live;
    live.definition = definition_of(view);
    if (!live.definition) continue;
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

std::int64_t OnlineViews::generation(const Selected& wanted) const {
  const auto& definition = *wanted.from;
  if (!definition.has_entity()) return 0;
  {
    Lock lock(mu_);
    const auto online = views_.find(definition.meaning);
    if (online != views_.end() && online->second.done) return online->second.done->generation;
  }
  const auto name = wanted.pinned ? fmt::format("{}@{}", definition.name, *wanted.pinned) : definition.name;
  throw Error(Code::conflict,
              fmt::format("feature view '{0}' is not online: 'falaj features materialize {0}' brings it there", name));
}

std::int64_t OnlineViews::get(const Selection& wanted, const Entities& entities, std::optional<std::int64_t> as_of_us,
                              FeatureSink& into) {
  const auto generations = [&] {
    std::vector<std::int64_t> out;
    for (const auto& view : wanted) out.push_back(generation(view));
    return out;
  };
  // A generation is whole before it is the one to read, and is erased only after it was: when it is the same before and
  // after, all of it was there.
  for (int tries_left = kReadTries;; --tries_left) {
    const auto before = generations();
    into.begin();
    try {
      const auto now_us = tell(wanted, before, entities, as_of_us, into);
      if (generations() == before) return now_us;
    } catch (const Error& e) {
      // Written after we had looked at the clock: it is later now.
      if (e.code() != Code::conflict || as_of_us || tries_left == 0) throw;
    }
  }
}

std::int64_t OnlineViews::tell(const Selection& wanted, const std::vector<std::int64_t>& generations,
                               const Entities& entities, std::optional<std::int64_t> as_of_us, FeatureSink& into) {
  const auto snapshot = store_.snapshot();
  const auto now_us = as_of_us.value_or(clock_.wall().count());  // after the snapshot: nothing in it is later
  std::size_t first = 0;                                         // feature of the view
  for (std::size_t v = 0; v < wanted.size(); ++v) {
    const auto& places = wanted[v].places;
    const auto& definition = *wanted[v].from;
    std::vector<const std::vector<lookup::Value>*> request;
    if (lookup::computes(places)) request = request_of(definition, entities);
    std::shared_ptr<const online::Space> rows;
    std::vector<Bytes> keys;
    if (definition.has_entity()) {
      rows = space(definition.meaning, generations[v]);
      keys = keys_of(definition, entities);
    }
    const std::vector<BytesView> key_views(keys.begin(), keys.end());
    lookup::read_features(
        snapshot.get(),
        {*definition.view, definition.computed, places, rows.get(), key_views, entities.size(), request}, now_us, first,
        into);
    first += places.size();
  }
  return now_us;
}

}  // namespace falaj::features
