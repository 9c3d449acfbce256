// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "api/alert_sources.h"
#include "api/platform.h"
#include "api/route.h"
#include "api/service.h"
#include "apps/falaj/lazy_executor.h"
#include "apps/falaj/local_serving.h"
#include "apps/falaj/settings.h"
#include "apps/falaj/upkeep.h"
#include "foundation/base/metrics.h"
#include "foundation/config/config.h"
#include "foundation/crypto/sign.h"
#include "foundation/net/client.h"
#include "foundation/net/mail.h"
#include "foundation/net/server.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/files.h"
#include "foundation/sys/net.h"
#include "foundation/sys/process.h"
#include "foundation/sys/random.h"
#include "governance/audit/audit_log.h"
#include "governance/iam/directory.h"
#include "governance/resource/kind.h"
#include "governance/resource/resources.h"
#include "governance/vault/key_store.h"
#include "governance/vault/vault.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/alerts/notifications.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/data/erasure.h"
#include "lifecycle/features/online.h"
#include "lifecycle/flow/flow.h"
#include "lifecycle/flow/steps.h"
#include "lifecycle/jobs/jobs.h"
#include "lifecycle/jobs/schedules.h"
#include "lifecycle/loop/loop.h"
#include "lifecycle/serving/endpoints.h"
#include "lifecycle/track/track.h"
#include "lifecycle/watch/watch.h"
#include "storage/sql/database.h"

namespace falaj::app {

inline constexpr const char* kRootKeyFile = "root.key";
inline constexpr const char* kAdminTokenFile = "admin.token";
inline constexpr const char* kOnlineNameFile = "online.name";
inline constexpr const char* kServeTokenFile = "serve.token";
inline constexpr const char* kDatabaseFile = "falaj.db";

// Opens the metadata store that the settings name and brings its tables up to date.
std::unique_ptr<sql::Database> open_database(const Settings& settings, const std::vector<std::string>& environment,
                                             Metrics& metrics);
std::optional<std::string> root_passphrase(const Settings& settings, const std::vector<std::string>& environment);
// The store of a zone, as the settings describe the backend that the zone names.
vault::Vault::MakeBackend backend_maker(const Settings& settings, const std::vector<std::string>& environment,
                                        const sys::Clock& clock, sys::Random& random);

std::unique_ptr<online::Store> open_online_store(const Settings& settings, const std::vector<std::string>& environment,
                                                 sys::Files& files, sys::Random& random, Metrics& metrics);

// Everything behind the API, made in the order in which it is declared and dropped in the reverse: the one place where
// modules meet. Without `serve` nothing listens; tests and tools then call the service directly.
class ControlPlane {
 public:
  ControlPlane(Settings settings, std::vector<config::Row> explained, std::vector<std::string> environment);
  ~ControlPlane();

  void serve();
  std::string url() const;  // Requires: serve was called
  void stop();              // stops accepting, drains, flushes

  api::ApiService& service() { return *service_; }
  const api::Routes& routes() const { return routes_; }
  api::Platform& platform() { return *platform_; }
  bool first_start() const { return first_start_; }

 private:
  void bootstrap();
  void make_jobs();
  void make_alerts();
  void make_flow();
  void make_slurm(jobs::LaunchOptions& launch);
  void start_serving();
  void retain();  // one pass of retention, as often as it says that there is more

  const Settings settings_;
  const std::vector<std::string> environment_;
  sys::RealClock clock_;
  sys::RealRandom random_;
  sys::Ids ids_;
  Metrics metrics_;
  std::unique_ptr<sys::Files> files_;
  const std::optional<std::string> passphrase_;
  vault::RootKeys roots_;
  const crypto::Signer signer_;
  const crypto::Key answer_key_, watch_key_;
  std::unique_ptr<sql::Database> database_;
  std::unique_ptr<audit::AuditLog> audit_;
  std::unique_ptr<iam::Directory> directory_;
  std::unique_ptr<resource::Registry> registry_;
  std::unique_ptr<resource::Resources> resources_;
  std::unique_ptr<vault::KeyStore> keys_;
  std::unique_ptr<vault::Vault> vault_;
  const crypto::Signer manifest_signer_;
  std::unique_ptr<data::Datasets> datasets_;
  std::unique_ptr<data::Erasures> erasures_;
  std::unique_ptr<online::Store> online_store_;
  std::unique_ptr<features::Online> online_;
  std::unique_ptr<track::Track> track_;
  std::unique_ptr<track::LoggedModels> logged_models_;
  std::unique_ptr<models::Webhooks> webhooks_;
  std::unique_ptr<models::Registry> models_;
  std::unique_ptr<models::Promotions> promotions_;
  sys::RealResolver resolver_;
  std::unique_ptr<net::Client> outgoing_;  // to addresses that users chose
  std::unique_ptr<models::Deliveries> deliveries_;
  sys::RealProcesses processes_;
  std::shared_ptr<jobs::Bell> bell_ = std::make_shared<jobs::Bell>();
  std::unique_ptr<LazyExecutor> local_executor_, slurm_executor_;  // the second: where one is configured
  std::unique_ptr<jobs::Jobs> jobs_;
  std::unique_ptr<jobs::Schedules> schedules_;
  std::unique_ptr<serving::PredictionLog> predictions_;
  std::unique_ptr<serving::Endpoints> endpoints_;
  std::unique_ptr<watch::Watch> watch_;
  std::unique_ptr<api::EndpointSignals> endpoint_signals_;
  std::unique_ptr<api::FindingSignals> finding_signals_;
  std::unique_ptr<api::LoopSignals> loop_signals_;
  std::unique_ptr<api::JobSignals> job_signals_;
  std::unique_ptr<api::MetricSignals> metric_signals_;
  std::unique_ptr<alerts::Alerts> alerts_;
  std::unique_ptr<net::Mailer> mailer_;
  std::unique_ptr<alerts::Notifications> notifications_;
  std::unique_ptr<flow::Steps> steps_;
  std::unique_ptr<flow::Flow> flow_;
  std::unique_ptr<loop::Loop> loop_;
  std::unique_ptr<LocalServing> local_serving_;
  bool first_start_ = false;
  std::atomic<bool> ready_{false};
  std::unique_ptr<api::Platform> platform_;
  api::Routes routes_;
  std::unique_ptr<api::ApiService> service_;
  std::unique_ptr<Upkeep> upkeep_;
  std::unique_ptr<net::Server> server_;
};

}  // namespace falaj::app
