// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/online.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/log.h"

namespace falaj::features {
namespace {

sql::Act upkeep_act(const char* verb, const Where& where) { return {"system/upkeep", verb, where.scope().str(), ""}; }

}  // namespace

Online::Online(sql::Database& database, resource::Resources& resources, data::Datasets& datasets, online::Store& store,
               const crypto::Key& key, const sys::Clock& clock, Metrics& metrics, OnlineLimits limits)
    : database_(database),
      resources_(resources),
      datasets_(datasets),
      clock_(clock),
      limits_(limits),
      metrics_(metrics),
      definitions_(resources, datasets),
      views_(database, definitions_, store, key, clock),
      pushes_(database, views_, datasets, key, clock, metrics, limits.push),
      materialiser_(database, views_, datasets, clock, metrics,
                    [this](const Where& where, const std::string& dataset) { pushes_.replay(where, dataset); }) {}

Online::~Online() { stop(); }

void Online::start() { pushes_.start(); }
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

void Online::follow(const Where& where, const OnlineView& view, const sql::Act& act) {
  const auto definition = definitions_.view(where, view.view);
  if (definition->meaning != view.meaning) return;
  const auto& every_us = definition->spec.materialize_us;
  const bool broken_off = view.running && view.problem.empty();  // by a kill
  const bool due = every_us && clock_.wall().count() - view.changed_us >= *every_us &&
                   (!view.done || datasets_.version(where, view.dataset, std::nullopt).number > view.done->version);
  if (broken_off || due) materialiser_.run(where, view.view, {}, act);
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
    attempt("materialize", view.view, [&] { follow(view.where, view, act); });
    attempt("sweep", view.view, [&] {
      if (const auto now = views_.find(view.meaning)) materialiser_.sweep(*now, act);
    });
  }
}

}  // namespace falaj::features
