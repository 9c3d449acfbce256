// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/config/config.h"
#include "foundation/crypto/key.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "governance/audit/audit_log.h"
#include "governance/iam/directory.h"
#include "governance/iam/rate.h"
#include "governance/resource/resources.h"
#include "governance/vault/vault.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/data/erasure.h"
#include "lifecycle/models/deliveries.h"
#include "lifecycle/models/promotions.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/models/retention.h"
#include "lifecycle/models/webhooks.h"
#include "lifecycle/serving/endpoints.h"
#include "lifecycle/track/logged_models.h"
#include "lifecycle/track/track.h"
#include "storage/sql/database.h"

namespace falaj::alerts {
class Alerts;
class Notifications;
}  // namespace falaj::alerts
namespace falaj::features {
class Online;
}
namespace falaj::flow {
class Flow;
}
namespace falaj::loop {
class Loop;
}
namespace falaj::jobs {
class Jobs;
}
namespace falaj::watch {
class Watch;
}

namespace falaj::api {

struct CallLimits {
  iam::Rate caller{10'000, 20'000};  // calls of one principal
  iam::Rate anyone{50, 100};         // calls without a credential, by address
  iam::Rate denied{5, 50};           // refused calls that are recorded, by address
};

// What routes work with. Made by the composition root, which outlives every call.
struct Platform {
  sql::Database& database;
  iam::Directory& directory;
  audit::AuditLog& audit;
  resource::Resources& resources;
  vault::Vault& vault;
  vault::KeyStore& keys;
  track::Track& track;
  track::LoggedModels& logged_models;
  models::Registry& models;
  models::Promotions& promotions;
  models::Webhooks& webhooks;
  models::Deliveries& deliveries;
  data::Datasets& datasets;
  data::Erasures& erasures;
  features::Online& online;
  jobs::Jobs& jobs;
  serving::Endpoints& endpoints;
  serving::PredictionLog& predictions;
  watch::Watch& watch;
  alerts::Alerts& alerts;
  alerts::Notifications& notifications;
  flow::Flow& flow;
  loop::Loop& loop;
  const sys::Clock& clock;
  sys::Random& random;
  Metrics& metrics;
  const crypto::Key& answer_key;  // seals the answers kept for Idempotency-Key
  CallLimits limits;
  std::string version;
  std::string public_url;
  sys::Micros started;
  std::vector<config::Row> settings;
  std::function<bool()> ready;  // false while starting and draining
};

models::Retention retention_of(Platform& platform);
// Runs and models that were made with versions of datasets, as an erasure lists them.
data::Descendants descendants(sql::Reader& reader, const vault::Where& where, const std::vector<std::string>& names);

class Routes;
// Each adds its routes; all of them together are the API.
void add_system_routes(Routes& routes, Platform& platform);    // health, metrics, status, openapi, config
void add_access_routes(Routes& routes, Platform& platform);    // login, whoami, tokens, passwords, certificates
void add_resource_routes(Routes& routes, Platform& platform);  // apply, diff, get, history, rollback, export
void add_blob_routes(Routes& routes, Platform& platform);      // blobs and keys
void add_audit_routes(Routes& routes, Platform& platform);
void add_backup_routes(Routes& routes, Platform& platform);
void add_track_routes(Routes& routes, Platform& platform);       // experiments, runs, metrics
void add_model_routes(Routes& routes, Platform& platform);       // models, versions, promotions
void add_lineage_routes(Routes& routes, Platform& platform);     // lineage, webhooks
void add_mlflow_routes(Routes& routes, Platform& platform);      // MLflow's tracking protocol
void add_dataset_routes(Routes& routes, Platform& platform);     // datasets, uploads, SQL
void add_feature_routes(Routes& routes, Platform& platform);     // training sets
void add_online_routes(Routes& routes, Platform& platform);      // features now; the same as Feast's server says it
void add_job_routes(Routes& routes, Platform& platform);         // submit, list, logs, cancel
void add_queue_routes(Routes& routes, Platform& platform);       // queues, nodes, usage
void add_serving_routes(Routes& routes, Platform& platform);     // endpoints, and what serves them
void add_prediction_routes(Routes& routes, Platform& platform);  // what they answered, labels, experiments
void add_alert_routes(Routes& routes, Platform& platform);       // alerts, silences, channels
void add_watch_routes(Routes& routes, Platform& platform);       // monitors and what they found
void add_flow_routes(Routes& routes, Platform& platform);        // pipelines and their runs
void add_loop_routes(Routes& routes, Platform& platform);        // policies and what they did
void add_secret_routes(Routes& routes, Platform& platform);      // set, list, remove
void add_retention_routes(Routes& routes, Platform& platform);
void add_erasure_routes(Routes& routes, Platform& platform);
void add_all_routes(Routes& routes, Platform& platform);

}  // namespace falaj::api
