// SPDX-License-Identifier: Apache-2.0
#include "api/modules.h"

#include "api/call.h"
#include "api/trainings.h"
#include "foundation/base/error.h"
#include "governance/audit/audit_log.h"
#include "governance/resource/kinds/kinds.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/alerts/kinds.h"
#include "lifecycle/data/dataset_kind.h"
#include "lifecycle/features/kinds.h"
#include "lifecycle/features/online.h"
#include "lifecycle/flow/flow.h"
#include "lifecycle/flow/kind.h"
#include "lifecycle/jobs/kinds.h"
#include "lifecycle/jobs/schedules.h"
#include "lifecycle/loop/loop.h"

namespace falaj::api {
namespace {

constexpr std::size_t kWindowsNow = 8;  // of a monitor: what counts as now

flow::DriftSeen drift_now(watch::Watch& watch, models::Registry& models, vault::Vault& vault, const vault::Where& where,
                          const std::string& monitor, const std::string& model, std::int64_t version) {
  flow::DriftSeen out;
  try {
    const auto now = watch.now(where, monitor, kWindowsNow);
    if (now.windows == 0) {
      out.why_not = "it has no window yet";
      return out;
    }
    const auto farthest = watch::farthest(watch::tested_on(models, vault, where, model, version), now.columns);
    out = {farthest.column, farthest.psi, farthest.noise, now.rows, "they have no column in common"};
  } catch (const Error& e) {
    if (e.retryable()) throw;
    out.why_not = e.what();
  }
  return out;
}

}  // namespace

std::vector<sql::Migration> all_migrations() {
  std::vector<sql::Migration> all;
  for (const auto& module : {audit::migrations(),
                             iam::Directory::migrations(),
                             resource::Resources::migrations(),
                             vault::KeyStore::migrations(),
                             vault::Vault::migrations(),
                             track::Track::migrations(),
                             track::LoggedModels::migrations(),
                             models::Registry::migrations(),
                             data::Datasets::migrations(),
                             features::Online::migrations(),
                             jobs::Jobs::migrations(),
                             jobs::Schedules::migrations(),
                             jobs::Secrets::migrations(),
                             serving::Endpoints::migrations(),
                             serving::PredictionLog::migrations(),
                             watch::Watch::migrations(),
                             alerts::Alerts::migrations(),
                             flow::Flow::migrations(),
                             loop::Loop::migrations(),
                             migrations()})
    all.insert(all.end(), module.begin(), module.end());
  return all;
}

std::vector<resource::Kind> all_kinds(iam::Directory& directory, sys::Files& files,
                                      const std::shared_ptr<jobs::Bell>& bell) {
  auto kinds = resource::governance_kinds(directory);
  const auto add = [&](std::vector<resource::Kind> more) {
    for (auto& kind : more) kinds.push_back(std::move(kind));
  };
  kinds.push_back(data::dataset_kind());
  kinds.push_back(data::expectation_kind());
  add(features::feature_kinds([&files] { return std::make_unique<table::Workspace>(features::kCheckRoom, files); }));
  add(jobs::job_kinds(bell));
  kinds.push_back(serving::endpoint_kind());
  kinds.push_back(watch::monitor_kind());
  add(alerts::alert_kinds());
  kinds.push_back(flow::pipeline_kind(check_training_body));
  kinds.push_back(loop::policy_kind());
  return kinds;
}

flow::Steps::Asks asks_of(watch::Watch& watch, models::Registry& models, vault::Vault& vault) {
  return {[&models](const vault::Where& where, const std::string& name, const json::value& body) {
            return job_of_training_body(models, where, name, body);
          },
          [&watch, &models, &vault](const vault::Where& where, const std::string& monitor, const std::string& model,
                                    std::int64_t version) {
            return drift_now(watch, models, vault, where, monitor, model, version);
          }};
}

}  // namespace falaj::api
