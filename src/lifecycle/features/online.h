// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "foundation/base/metrics.h"
#include "lifecycle/data/erasure.h"
#include "lifecycle/features/definitions.h"
#include "lifecycle/features/materialiser.h"
#include "lifecycle/features/online_views.h"
#include "lifecycle/features/pushes.h"

namespace falaj::features {

struct OnlineLimits {
  PushLimits push;
  std::int64_t flush_rows = 100'000;  // as many pushed rows become a version at the next upkeep, fewer after a while
  sys::Micros flush_every = std::chrono::minutes(10);
};

// Features at the moment of a prediction: brought into a store from datasets and by pushes, and the same as a training
// set would say at that moment. Thread-safe.
class Online final : public data::RowHolder {
 public:
  static std::span<const sql::Migration> migrations() { return online_migrations(); }
  // All of them outlive this. Everything that is kept is sealed under keys that come of `key`.
  Online(sql::Database& database, resource::Resources& resources, data::Datasets& datasets, online::Store& store,
         const crypto::Key& key, const sys::Clock& clock, Metrics& metrics, OnlineLimits limits = {});
  ~Online() override;
  void start();  // goes on with what a kill interrupted
  void stop();

  Definitions& definitions() { return definitions_; }
  OnlineViews& views() { return views_; }
  Pushes& pushes() { return pushes_; }
  Materialiser& materialiser() { return materialiser_; }

  // Pushed rows become versions, new versions come online where a view says so, what is read no more is erased.
  // `go_on` is asked in between.
  void upkeep(const std::function<bool()>& go_on);

  // ---- erasure. Where the subject is the entity, it is gone at once; what was computed of its rows goes when the
  // dataset is replaced, by computing everything anew.
  void erase_subject(const Where& where, const std::string& dataset, const std::string& column,
                     const std::string& subject, const sql::Act& act) override;
  void replaced(const Where& where, const std::string& dataset, std::int64_t new_version, const sql::Act& act) override;
  std::vector<std::string_view> tables() const override;

  // Of every view, newest revision or not: whether it is declared so today, or a service names it.
  bool is_used(const OnlineView& view);

 private:
  void show();  // gauges, before they are rendered
  void follow(const OnlineView& view, const sql::Act& act);
  bool compute_anew(const OnlineView& view, const sql::Act& act);

  resource::Resources& resources_;
  data::Datasets& datasets_;
  const sys::Clock& clock_;
  const OnlineLimits limits_;
  Metrics& metrics_;
  Definitions definitions_;
  OnlineViews views_;
  Pushes pushes_;
  Materialiser materialiser_;
  Mutex mu_;
  std::int64_t flushed_us_ GUARDED_BY(mu_) = 0;
};

}  // namespace falaj::features
