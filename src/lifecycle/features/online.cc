// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/online.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "lifecycle/lookup/values.h"

namespace falaj::features {
namespace {

sql::Act upkeep_act(const char* verb, const Where& where) { return {"system/upkeep", verb, where.scope().str(), ""}; }

// A key's value as text names it.
std::optional<lookup::Value> value_of(const std::string& text, online::Type type) {
  if (type == online::Type::int32 || type == online::Type::int64) {
    const auto whole = parse_int(text);
    return whole ? std::optional<lookup::Value>(*whole) : std::nullopt;
  }
  return lookup::from_json(json::value(text), type);
}

}  // namespace

Online::Online(sql::Database& database, resource::Resources& resources, data::Datasets& datasets, online::Store& store,
               const crypto::Key& key, const sys::Clock& clock, Metrics& metrics, OnlineLimits limits)
    : resources_(resources),
      datasets_(datasets),
      clock_(clock),
      limits_(limits),
      metrics_(metrics),
      definitions_(resources, datasets),
      views_(database, definitions_, store, key, clock),
      pushes_(database, views_, datasets, key, clock, metrics, limits.push),
      materialiser_(database, views_, datasets, clock, metrics,
                    [this](const Where& where, const std::string& dataset, const std::function<bool()>& begin) {
                      pushes_.pause(where, dataset, begin);
                    }) {
  metrics_.before_render([this] { show(); });
}

Online::~Online() { stop(); }

void Online::show() {
  const auto now_us = clock_.wall().count();
  for (const auto& view : views_.list(std::nullopt)) {
    const Labels labels{
        {"tenant", view.where.tenant.str()}, {"project", view.where.project.str()}, {"view", view.view}};
    metrics_.gauge("falaj_features_failing", "Whether the last materialisation of a view failed.", labels)
        .Set(view.problem.empty() ? 0 : 1);
    if (!view.done) continue;
    metrics_
        .gauge("falaj_features_lag_seconds",
               "How long ago the moment is up to which events of a view were materialised.", labels)
        .Set(static_cast<double>(now_us - view.done->end_us) / 1e6);
    for (const auto& feature : view.measured) {
      auto of_feature = labels;
      of_feature["feature"] = feature.name;
      metrics_.gauge("falaj_features_null_share", "Share of entities for which a feature is null.", of_feature)
          .Set(feature.entities == 0 ? 0 : static_cast<double>(feature.nulls) / static_cast<double>(feature.entities));
      if (feature.distance)
        metrics_
            .gauge("falaj_features_distance",
                   "Greatest difference of a feature's distribution over entities from the generation before.",
                   of_feature)
            .Set(*feature.distance);
    }
  }
  for (const auto& set : pushes_.sets())
    metrics_
        .gauge("falaj_features_waiting_rows", "Pushed rows that are in no version yet.",
               {{"tenant", set.where.tenant.str()}, {"project", set.where.project.str()}, {"dataset", set.dataset}})
        .Set(static_cast<double>(set.waiting));
}

void Online::start() {
  if (const auto lost = views_.recognise_store({"system/start", "features.store", "/", ""}); lost > 0)
    log::warn("online_store_is_new", {{"views_to_bring_again", std::to_string(lost)}});
  pushes_.start();
}
void Online::stop() { pushes_.stop(); }

bool Online::is_used(const OnlineView& view) {
  const auto means = [&](std::optional<std::int64_t> revision) {
    try {
      return definitions_.view(view.where, view.view, revision)->meaning == view.meaning;
    } catch (const Error& e) {
      if (e.code() != Code::not_found && e.code() != Code::invalid) throw;
      return false;
    }
  };
  if (means(std::nullopt)) return true;
  resource::ListOptions options{view.where.tenant.str(), view.where.project.str(), "", "", 1000};
  do {
    const auto page = resources_.list("FeatureService", options, [](auto&&...) { return std::nullopt; });
    for (const auto& service : page.items)
      for (const auto& text : decode<FeatureServiceSpec>(service.resource.spec, "reading a feature service").features)
        if (const auto named = parse_feature_name(text);
            named && named->view == view.view && named->revision && means(named->revision))
          return true;
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return false;
}

void Online::erase_subject(const Where& where, const std::string& dataset, const std::string& column,
                           const std::string& subject, const sql::Act& act) {
  pushes_.flush(where, dataset, act);  // pushed rows are erased as rows of a version
  for (const auto& view : views_.list(where)) {
    const auto definition = views_.definition_of(view);
    // Which of its rows are the subject's nobody can tell, and nobody reads them.
    if (!definition) materialiser_.remove(view, act);
    if (!definition || view.dataset != dataset || definition->plan.key != std::vector{column}) continue;
    const auto value = value_of(subject, definition->view->key[0]);
    if (!value) continue;  // it can be no key of this view
    const auto key = lookup::entity_key(definition->view->key, std::span(&*value, 1));
    const BytesView keys[] = {key};
    // Also where it is read no more and not swept yet.
    for (auto g = view.swept + 1; g <= view.generations; ++g)
      views_.store().erase(*views_.space(view.meaning, g), keys);
  }
  views_.forget_examples(where, act);
}

void Online::replaced(const Where& where, const std::string& dataset, std::int64_t, const sql::Act& act) {
  for (const auto& view : views_.list(where))
    if (view.dataset == dataset && !compute_anew(view, act)) materialiser_.remove(view, act);
  views_.forget_examples(where, act);
}

// False when nobody needs it, or nobody can tell what it would have now: then it must not keep what it has.
bool Online::compute_anew(const OnlineView& view, const sql::Act& act) {
  if (!view.done && !view.running) return false;
  const auto definition = views_.definition_of(view);
  if (!definition || !is_used(view)) return false;
  try {
    materialiser_.run(view.where, view.view,
                      {view.done ? std::optional(view.done->end_us) : std::nullopt, true, definition->revision, true},
                      act);
    return true;
  } catch (const Error& e) {
    // What it expects of its rows does not hold for those that are left. It comes online again when that is mended.
    if (e.code() != Code::invalid) throw;
    log::warn("feature_view_taken_offline", {{"view", view.view}, {"problem", e.what()}});
    return false;
  }
}

std::vector<std::string_view> Online::tables() const {
  return {"feature_check", "feature_online", "feature_pushed_rows"};
}

void Online::follow(const OnlineView& view, const sql::Act& act) {
  const auto definition = views_.definition_of(view);
  if (!definition || materialiser_.is_under_way(view.meaning)) return;
  const auto& every_us = definition->spec.materialize_us;
  const bool broken_off = view.running && view.problem.empty();  // by a kill
  const bool due =
      every_us && clock_.wall().count() - view.changed_us >= *every_us &&
      (!view.done || datasets_.version(view.where, view.dataset, std::nullopt).number > view.done->version);
  if ((broken_off || due) && is_used(view))
    materialiser_.run(view.where, view.view, {std::nullopt, false, definition->revision}, act);
}

void Online::upkeep(const std::function<bool()>& go_on) {
  const auto attempt = [&](const char* what, const std::string& of, const std::function<void()>& work) {
    try {
      if (go_on()) work();
    } catch (const Error& e) {
      log::warn("feature_upkeep", {{"work", what}, {"of", of}, {"problem", e.what()}});
    }
  };
  const auto now_us = clock_.wall().count();
  bool all = false;
  {
    Lock lock(mu_);
    all = now_us - flushed_us_ >= limits_.flush_every.count();
    if (all) flushed_us_ = now_us;
  }
  for (const auto& set : pushes_.sets())
    if (set.flushing != 0 || set.waiting >= limits_.flush_rows || (all && set.waiting > 0))
      attempt("flush", set.dataset,
              [&] { pushes_.flush(set.where, set.dataset, upkeep_act("features.flush", set.where)); });
  for (const auto& view : views_.list(std::nullopt)) {
    const auto act = upkeep_act("features.materialize", view.where);
    attempt("materialize", view.view, [&] { follow(view, act); });
    attempt("sweep", view.view, [&] {
      if (const auto now = views_.find(view.meaning)) materialiser_.sweep(*now, act);
    });
  }
}

}  // namespace falaj::features
