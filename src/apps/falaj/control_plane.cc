// SPDX-License-Identifier: Apache-2.0
#include "apps/falaj/control_plane.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "api/call.h"
#include "api/job_inputs.h"
#include "api/modules.h"
#include "api/trainings.h"
#include "apps/falaj/version.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/config/secret.h"
#include "lifecycle/execute/local/local_executor.h"
#include "lifecycle/execute/slurm/slurm_executor.h"
#include "lifecycle/track/uploads.h"
#include "storage/blob/directory_backend.h"
#include "storage/blob/s3_backend.h"

namespace falaj::app {
namespace {

constexpr std::string_view kLocalStore = "local";
constexpr const char *kLocalExecutor = "local", *kSlurmExecutor = "slurm";
constexpr std::int64_t kOutgoingWaitUs = 30'000'000;  // a webhook that takes longer is tried again
constexpr std::int64_t kAdminTokenLifeUs = iam::kTokenLifeMaxUs;

// What a fresh platform has, so that the first command works: one zone on this machine, one tenant, one project.
constexpr std::string_view kFirstResources = R"(
apiVersion: falaj/v1
kind: Zone
metadata: {name: local, description: This machine.}
spec: {residency: ZZ, backends: [local]}
---
apiVersion: falaj/v1
kind: Tenant
metadata: {name: default, description: For whoever needs no tenants.}
spec: {zones: [local]}
---
apiVersion: falaj/v1
kind: Project
metadata: {name: default, tenant: default, description: For whoever needs no projects.}
spec: {zone: local}
)";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(Code::not_found, fmt::format("cannot read the file of a secret: {}", path));
  std::ostringstream text;
  text << in.rdbuf();
  return std::string(trim(text.str()));
}

std::string secret(const std::string& reference, const std::vector<std::string>& environment) {
  return config::resolve_secret(reference, environment, read_file);
}

// A directory backend together with the directory it is over.
class OwnedDirectory final : public blob::Backend {
 public:
  explicit OwnedDirectory(const std::string& path) : files_(sys::open_files(path)), backend_(*files_) {}
  void put(const std::string& name, BytesView bytes, blob::Durable durable, blob::Existing existing) override {
    backend_.put(name, bytes, durable, existing);
  }
  Bytes get(const std::string& name, std::uint64_t offset, std::uint64_t length) override {
    return backend_.get(name, offset, length);
  }
  std::optional<blob::BlobInfo> stat(const std::string& name) override { return backend_.stat(name); }
  void remove(const std::string& name) override { backend_.remove(name); }
  std::vector<blob::BlobInfo> list(const std::string& prefix, const std::string& after, std::size_t limit) override {
    return backend_.list(prefix, after, limit);
  }
  void sync() override { backend_.sync(); }

 private:
  std::unique_ptr<sys::Files> files_;
  blob::DirectoryBackend backend_;
};

net::ServerLimits limits_of(const HttpSettings& http) {
  net::ServerLimits limits;
  limits.connections_max = static_cast<std::size_t>(http.connections_max);
  limits.requests_max = static_cast<std::size_t>(http.requests_max);
  limits.worker_threads = static_cast<std::size_t>(http.workers);
  limits.io_threads = static_cast<std::size_t>(http.io_threads);
  limits.head_wait_us = http.head_wait_us;
  limits.idle_wait_us = http.idle_wait_us;
  limits.host_names = http.host_names;
  return limits;
}

net::OutgoingRules rules_of(const WebhookSettings& webhooks) {
  return {webhooks.hosts, webhooks.plain_http, webhooks.local_addresses};
}
net::ClientOptions options_of(const WebhookSettings& webhooks) {
  net::ClientOptions options;
  options.total_wait_us = kOutgoingWaitUs;
  options.tls_1_2 = true;
  options.ca_file = webhooks.ca_file;
  return options;
}

data::DataLimits limits_of(const DatasetSettings& settings) {
  data::DataLimits limits;
  limits.room = {static_cast<std::uint64_t>(settings.memory_bytes), static_cast<std::uint64_t>(settings.spill_bytes),
                 static_cast<unsigned>(settings.threads)};
  return limits;
}

iam::Rate rate(std::int64_t per_second) {
  return {static_cast<double>(per_second), 2 * static_cast<double>(per_second)};
}

}  // namespace

std::unique_ptr<sql::Database> open_database(const Settings& settings, const std::vector<std::string>& environment,
                                             Metrics& metrics) {
  sql::Limits limits;
  limits.readers_max = static_cast<std::size_t>(settings.database.readers_max);
  limits.writes_waiting_max = static_cast<std::size_t>(settings.database.writes_waiting_max);
  limits.writes_per_commit_max = static_cast<std::size_t>(settings.database.writes_per_commit_max);
  auto database = settings.database.postgresql.empty()
                      ? sql::open_sqlite(settings.data + "/" + kDatabaseFile, metrics, limits)
                      : sql::open_postgresql(secret(settings.database.postgresql, environment), metrics, limits);
  database->migrate(api::all_migrations());
  return database;
}

std::optional<std::string> root_passphrase(const Settings& settings, const std::vector<std::string>& environment) {
  if (settings.keys.passphrase.empty()) return std::nullopt;
  return secret(settings.keys.passphrase, environment);
}

vault::Vault::MakeBackend backend_maker(const Settings& settings, const std::vector<std::string>& environment,
                                        const sys::Clock& clock, sys::Random& random) {
  return [settings, environment, &clock, &random](const iam::Zone& zone) -> std::unique_ptr<blob::Backend> {
    const std::string name = zone.backends.empty() ? std::string(kLocalStore) : zone.backends.front();
    for (const auto& store : settings.blobs.stores) {
      if (store.name != name) continue;
      if (store.kind == "directory") return std::make_unique<OwnedDirectory>(store.path + "/" + zone.name.str());
      blob::S3Options options;
      options.endpoint = store.endpoint;
      options.bucket = store.bucket;
      options.region = store.region;
      options.prefix = zone.name.str() + "/";
      options.access_key = secret(store.access_key, environment);
      options.secret_key = secret(store.secret_key, environment);
      return std::make_unique<blob::S3Backend>(std::move(options), clock, random);
    }
    if (name == kLocalStore) return std::make_unique<OwnedDirectory>(settings.data + "/blobs/" + zone.name.str());
    throw Error(
        Code::not_found,
        fmt::format("zone {} keeps its bytes in '{}', which blobs.stores of the server's settings does not describe",
                    zone.name.str(), name));
  };
}

std::unique_ptr<online::Store> open_online_store(const Settings& settings, const std::vector<std::string>& environment,
                                                 sys::Files& files, sys::Random& random, Metrics& metrics) {
  if (settings.online.redis_host.empty() && settings.online.redis_socket.empty())
    return online::open_lmdb(settings.data + "/online", metrics);
  // A restored platform has a name of its own among those that share a server, and finds nothing there of before.
  if (!files.stat(kOnlineNameFile)) files.write_all(kOnlineNameFile, as_bytes(fmt::format("{:016x}", random.next())));
  online::RedisOptions options;
  options.unix_socket = settings.online.redis_socket;
  options.host = settings.online.redis_host;
  options.port = static_cast<int>(settings.online.redis_port);
  if (!settings.online.redis_password.empty()) options.password = secret(settings.online.redis_password, environment);
  options.key_prefix = fmt::format("falaj:{}:", as_text(files.read_all(kOnlineNameFile, 64)));
  return online::open_redis(options, metrics);
}

ControlPlane::ControlPlane(Settings settings, std::vector<config::Row> explained, std::vector<std::string> environment)
    : settings_(std::move(settings)),
      environment_(std::move(environment)),
      ids_(clock_, random_),
      files_(sys::open_files(settings_.data)),
      passphrase_(root_passphrase(settings_, environment_)),
      roots_(vault::RootKeys::open(*files_, kRootKeyFile, passphrase_)),
      signer_(roots_.platform_key(vault::kAuditSignatures)),
      answer_key_(roots_.platform_key(vault::kKeptAnswers)),
      watch_key_(roots_.platform_key(vault::kWatched)),
      database_(open_database(settings_, environment_, metrics_)),
      manifest_signer_(roots_.platform_key(vault::kModelManifests)) {
  audit_ = std::make_unique<audit::AuditLog>(*database_, clock_, signer_);
  database_->set_ledger(*audit_);
  directory_ =
      std::make_unique<iam::Directory>(*database_, clock_, random_, roots_.platform_key(vault::kWorkloadTokens));
  registry_ = std::make_unique<resource::Registry>(api::all_kinds(*directory_, *files_, bell_));
  resources_ = std::make_unique<resource::Resources>(*database_, *registry_, clock_);
  keys_ = std::make_unique<vault::KeyStore>(
      *database_, vault::RootKeys::decode(roots_.encode()),
      [this](const vault::RootKeys& roots) { roots.save(*files_, kRootKeyFile, passphrase_); });
  blob::StoreOptions options;
  options.threads = static_cast<unsigned>(settings_.blobs.threads);
  options.grace = sys::Micros(settings_.blobs.grace_us);
  vault_ = std::make_unique<vault::Vault>(*database_, *directory_, *keys_,
                                          backend_maker(settings_, environment_, clock_, random_), clock_, metrics_,
                                          options);
  datasets_ = std::make_unique<data::Datasets>(*database_, *resources_, *vault_, *files_, clock_, random_, metrics_,
                                               limits_of(settings_.datasets));
  erasures_ =
      std::make_unique<data::Erasures>(data::Erasures::Parts{*database_, *resources_, *datasets_, clock_, random_},
                                       roots_.platform_key(vault::kErasures), api::descendants);
  online_store_ = open_online_store(settings_, environment_, *files_, random_, metrics_);
  online_ = std::make_unique<features::Online>(*database_, *resources_, *datasets_, *online_store_,
                                               roots_.platform_key(vault::kOnlineFeatures), clock_, metrics_);
  erasures_->add(*online_);
  track_ = std::make_unique<track::Track>(*database_, *directory_, clock_, random_, metrics_);
  logged_models_ = std::make_unique<track::LoggedModels>(*database_, clock_, random_, metrics_);
  webhooks_ =
      std::make_unique<models::Webhooks>(*database_, roots_.platform_key(vault::kWebhookSecrets), clock_, random_);
  models_ = std::make_unique<models::Registry>(*database_, *directory_, *vault_, *webhooks_, manifest_signer_, clock_,
                                               metrics_);
  promotions_ = std::make_unique<models::Promotions>(*database_, *webhooks_, clock_);
  outgoing_ = std::make_unique<net::Client>(options_of(settings_.webhooks), rules_of(settings_.webhooks), resolver_);
  deliveries_ = std::make_unique<models::Deliveries>(*database_, *webhooks_, *outgoing_, clock_, random_, metrics_);
  make_jobs();
  predictions_ = std::make_unique<serving::PredictionLog>(
      serving::PredictionLog::Parts{*database_, *resources_, *datasets_, clock_}, metrics_);
  endpoints_ = std::make_unique<serving::Endpoints>(
      serving::Endpoints::Parts{*database_, *resources_, *directory_, *models_, *promotions_, *vault_, *online_,
                                *predictions_, clock_},
      [this] { return audit_->head().head.size; }, metrics_);
  watch_ = std::make_unique<watch::Watch>(
      watch::Watch::Parts{*database_, *resources_, *models_, *vault_, *datasets_, *predictions_, clock_, watch_key_},
      metrics_);
  make_alerts();
  make_flow();
  bootstrap();
  platform_.reset(new api::Platform{*database_,
                                    *directory_,
                                    *audit_,
                                    *resources_,
                                    *vault_,
                                    *keys_,
                                    *track_,
                                    *logged_models_,
                                    *models_,
                                    *promotions_,
                                    *webhooks_,
                                    *deliveries_,
                                    *datasets_,
                                    *erasures_,
                                    *online_,
                                    *jobs_,
                                    *endpoints_,
                                    *predictions_,
                                    *watch_,
                                    *alerts_,
                                    *notifications_,
                                    *flow_,
                                    *loop_,
                                    clock_,
                                    random_,
                                    metrics_,
                                    answer_key_,
                                    {rate(settings_.rates.calls_per_second), rate(settings_.rates.anonymous_per_second),
                                     rate(settings_.rates.denied_per_second)},
                                    std::string(kVersion),
                                    "",
                                    clock_.now(),
                                    std::move(explained),
                                    [this] { return ready_.load(); }});
  api::add_all_routes(routes_, *platform_);
  service_ = std::make_unique<api::ApiService>(*platform_, routes_, metrics_);
}

ControlPlane::~ControlPlane() { stop(); }

namespace {

// The trainer, where it was built or installed with us, and the libraries that lie beside it.
std::map<std::string, jobs::BuiltIn> built_in_programs() {
  std::error_code none;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  const auto program = here / api::kTrainer, libraries = here.parent_path() / "lib";
  if (!std::filesystem::exists(program, none)) return {};
  jobs::BuiltIn trainer{program.string(), {program.string()}};
  if (std::filesystem::exists(libraries, none)) trainer.shown.push_back(libraries.string());
  for (const auto& entry : std::filesystem::directory_iterator(libraries, none))
    if (entry.is_symlink())  // in a build tree: what it leads to must be there, too
      trainer.shown.push_back(std::filesystem::canonical(entry.path(), none).string());
  return {{api::kTrainer, std::move(trainer)}};
}

}  // namespace

void ControlPlane::make_jobs() {
  const auto& settings = settings_.jobs;
  // Jobs see their directories at the paths they have here, which must then be real ones.
  const auto data = std::filesystem::canonical(settings_.data).string();
  local_executor_ = std::make_unique<LazyExecutor>([this, settings, data] {
    execute::LocalSettings local;
    local.directory = data + "/keeper";
    local.node = settings.node;
    local.zone = settings.zone;
    local.labels = settings.labels;
    local.cpu_millis = std::llround(settings.cpus * 1000);
    local.memory_bytes = settings.memory_bytes;
    local.disk_bytes = settings.disk_bytes;
    for (const auto& gpu : settings.gpus) local.gpus.push_back({gpu.id, gpu.type, gpu.memory_bytes});
    local.log_bytes_max = settings.log_bytes;
    local.hidden = {data};
    if (!settings_.slurm.directory.empty()) local.hidden.push_back(settings_.slurm.directory);
    return std::make_unique<execute::LocalExecutor>(std::move(local), clock_, processes_);
  });
  jobs::JobsOptions options;
  options.launch.directory = data + "/jobs";
  options.secrets_key = std::make_shared<const crypto::Key>(roots_.platform_key(vault::kJobSecrets));
  for (const auto level : {execute::Isolation::none, execute::Isolation::restricted, execute::Isolation::contained,
                           execute::Isolation::isolated})
    if (execute::name_of(level) == settings.isolation_min) options.launch.isolation_min = level;
  options.launch.images = settings.images;
  options.launch.stage_dataset = [this](const vault::Where& where, const std::string& version,
                                        const std::string& into) {
    return api::stage_dataset(*datasets_, where, version, into);
  };
  options.launch.register_model = [this](const vault::Where& where, const std::string& run_id, const std::string& model,
                                         const std::string& alias) {
    api::register_run_model(*models_, where, run_id, model, alias);
  };
  options.launch.built_in = built_in_programs();
  options.launch.url = [this] { return platform_ ? platform_->public_url : ""; };
  options.starters = static_cast<std::size_t>(settings.starters);
  jobs::Jobs::Executors executors{{kLocalExecutor, local_executor_.get()}};
  if (!settings_.slurm.directory.empty()) {
    make_slurm(options.launch);
    executors.emplace_back(kSlurmExecutor, slurm_executor_.get());
  }
  jobs_ = std::make_unique<jobs::Jobs>(
      jobs::Jobs::Parts{*database_, *resources_, *directory_, *vault_, *track_, clock_, random_, metrics_, bell_},
      std::move(executors), std::move(options));
  schedules_ = std::make_unique<jobs::Schedules>(*database_, *resources_, *directory_, *jobs_, clock_);
}

void ControlPlane::make_flow() {
  steps_ = std::make_unique<flow::Steps>(
      flow::Steps::Parts{*database_, *resources_, *directory_, *vault_, *datasets_, *online_, *track_, *models_,
                         *promotions_, *jobs_, *endpoints_, clock_},
      api::asks_of(*watch_, *models_, *vault_), std::string(kVersion));
  flow_ = std::make_unique<flow::Flow>(flow::Flow::Parts{*database_, *resources_, *directory_, *datasets_, *promotions_,
                                                         *track_, *steps_, *alerts_, clock_, random_, metrics_},
                                       flow::FlowOptions{});
  loop_ = std::make_unique<loop::Loop>(
      loop::Loop::Parts{*database_, *resources_, *alerts_, *flow_, *endpoints_, clock_, metrics_});
  loop_signals_->tell_of(*loop_);
}

void ControlPlane::make_slurm(jobs::LaunchOptions& launch) {
  auto settings = settings_.slurm;
  auto& jobs = launch.elsewhere[kSlurmExecutor];
  jobs.directory = settings.directory + "/jobs";
  jobs.places = true;
  jobs.zone = settings.zone;
  jobs.tenants = settings.tenants;
  jobs.url = [this] {
    if (!settings_.slurm.server_url.empty()) return settings_.slurm.server_url;
    // Our loopback is not theirs.
    return platform_ && !parse_endpoint(settings_.listen).loopback() ? platform_->public_url : std::string();
  };
  settings.directory += "/attempts";
  settings.log_bytes_max = settings_.jobs.log_bytes;
  slurm_executor_ = std::make_unique<LazyExecutor>([this, settings] {
    return std::make_unique<execute::slurm::SlurmExecutor>(settings, execute::slurm::make_gateway(settings, processes_),
                                                           clock_);
  });
}

void ControlPlane::make_alerts() {
  endpoint_signals_ = std::make_unique<api::EndpointSignals>(*endpoints_);
  finding_signals_ = std::make_unique<api::FindingSignals>(*watch_);
  loop_signals_ = std::make_unique<api::LoopSignals>();
  job_signals_ = std::make_unique<api::JobSignals>(*jobs_);
  metric_signals_ = std::make_unique<api::MetricSignals>(metrics_);
  const alerts::Alerts::Parts parts{*database_, *resources_, clock_, random_, metrics_};
  alerts_ = std::make_unique<alerts::Alerts>(
      parts,
      api::alert_sources(*endpoint_signals_, *finding_signals_, *job_signals_, *loop_signals_, *metric_signals_));
  mailer_ = std::make_unique<net::Mailer>(options_of(settings_.webhooks), rules_of(settings_.webhooks), resolver_);
  notifications_ =
      std::make_unique<alerts::Notifications>(parts, *alerts_, *outgoing_, *mailer_, api::reveal_of(*jobs_));
}

void ControlPlane::bootstrap() {
  const auto issued = directory_->bootstrap(kAdminTokenLifeUs, [this](const iam::Issued& token) {
    files_->write_all(kAdminTokenFile, as_bytes(token.text + "\n"));
  });
  first_start_ = issued.has_value();
  // A kill between the two writes of a first start is made good by the second; what an operator deleted stays deleted.
  try {
    resources_->history({"Project", "default", "", "default"});
    return;
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  const auto documents = resource::read_documents("first start", kFirstResources);
  resources_->apply({"system/bootstrap", "", "", ""}, documents,
                    [](std::string_view, const iam::Scope&) { return std::nullopt; });
}

void ControlPlane::serve() {
  const Endpoint endpoint = parse_endpoint(settings_.listen);
  std::optional<net::TlsFiles> tls;
  if (!settings_.tls.certificate_file.empty())
    tls = net::TlsFiles{settings_.tls.certificate_file, settings_.tls.key_file, settings_.tls.client_ca_file};
  server_ = std::make_unique<net::Server>(endpoint.host, endpoint.port, tls, limits_of(settings_.http), *service_,
                                          clock_, ids_, metrics_);
  platform_->public_url = url();
  deliveries_->start();
  notifications_->start();
  online_->start();
  jobs_->start();
  flow_->start();
  using std::chrono::hours;
  upkeep_ = std::make_unique<Upkeep>(
      std::vector<Upkeep::Task>{
          {"forget_deliveries", hours(1), [this] { deliveries_->purge(); }},
          {"alerts", sys::Micros(settings_.alerts.every_us),
           [this] {
             alerts_->look();
             loop_->look();
           }},
          {"forget_alerts", hours(1), [this] { alerts_->purge(); }},
          {"forget_pipeline_runs", hours(1),
           [this] {
             flow_->forget();
             loop_->forget(clock_.wall().count() - flow::kKeepUs);
           }},
          {"forget_answers", hours(1), [this] { api::forget_old_answers(*platform_); }},
          {"sweep_dataset_uploads", hours(1),
           [this] {
             datasets_->sweep({"system/upkeep", "dataset.sweep", "/", ""});
           }},
          {"make_images", std::chrono::minutes(10),
           [this] {
             while (ready_ && track_->make_images({"system/upkeep", "run.image", "/", ""})) {
             }
           }},
          // A kill may have ended one; one that waited for a backup goes on too.
          {"erasures", std::chrono::seconds(5), [this] { erasures_->resume([this] { return ready_.load(); }); }},
          {"features", std::chrono::seconds(5), [this] { online_->upkeep([this] { return ready_.load(); }); }},
          {"forget_pushes", hours(1),
           [this] {
             online_->pushes().forget_ids({"system/upkeep", "features.forget_pushes", "/", ""});
           }},
          {"jobs", hours(1), [this] { jobs_->upkeep(); }},
          {"followed jobs", std::chrono::seconds(2), [this] { jobs_->follow(); }},
          {"endpoints", std::chrono::seconds(1), [this] { endpoints_->watch(); }},
          {"predictions", std::chrono::seconds(1), [this] { predictions_->upkeep(); }},
          {"monitors", std::chrono::seconds(1), [this] { watch_->upkeep(); }},
          {"schedules", std::chrono::seconds(5), [this] { schedules_->run_due(); }},
          {"sweep_uploads", hours(1), [this] { track::Uploads(*database_, *vault_, clock_).sweep(); }},
          {"retention", sys::Micros(settings_.retention.every_us), [this] { retain(); }},
          {"credentials", hours(1),
           [this] {
             database_->write({"system/upkeep", "credential.upkeep", "/", ""}, [this](sql::Writer& writer) {
               directory_->flush_usage(writer);
               directory_->purge(writer);
             });
           }},
      },
      clock_);
  start_serving();
  ready_ = true;
}

// The server of models that is started on this machine has an account of its own, which may follow plans and no more.
void ControlPlane::start_serving() {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / "falaj-serve";
  if (!settings_.serving.local || !std::filesystem::exists(program, none)) return;
  const auto data = std::filesystem::canonical(settings_.data).string();
  const auto issue = [this] {
    database_->write({"system/serving", "serving.account", "/", ""}, [this](sql::Writer& writer) {
      directory_->put(writer, iam::Service{"", "falaj-serve", false});
      directory_->put(writer, iam::Binding{"falaj-serve", "server", {"service/falaj-serve"}, iam::Scope()});
      const auto token = directory_->issue_token(
          writer, {iam::Principal::parse("service/falaj-serve"), "this machine", {}, iam::kTokenLifeMaxUs});
      files_->write_all(kServeTokenFile, as_bytes(token.text + "\n"));
    });
  };
  const auto& serving = settings_.serving;
  const bool any_port = parse_endpoint(settings_.listen).port == 0;
  const auto place = [&](const std::string& listen) {
    return any_port && !listen.empty() ? listen.substr(0, listen.rfind(':')) + ":0" : listen;
  };
  LocalServing::Options options;
  options.directory = data + "/serve";
  // One that an earlier control plane started finds us by this.
  files_->write_all("serve/control", as_bytes(url() + "\n"));
  options.prepare = [this, issue] {
    try {
      const auto text = files_->read_all(kServeTokenFile, 256);
      const auto header = "Bearer " + std::string(trim(as_text(text)));
      directory_->authenticate({.authorization = header, .session = {}, .certificate = {}});
    } catch (const Error&) {
      issue();  // the first start of one, or its token has expired or was revoked
    }
  };
  options.program = program.string();
  options.settings = {"data=" + options.directory,
                      "control=file:" + options.directory + "/control",
                      "token=file:" + data + "/" + kServeTokenFile,
                      "public_key=" + to_hex(manifest_signer_.public_key()),
                      "name=local",
                      "listen=" + place(serving.listen),
                      "grpc=" + place(serving.grpc),
                      fmt::format("threads={}", serving.threads),
                      fmt::format("grpc_threads={}", serving.grpc_threads),
                      fmt::format("slow_threads={}", serving.slow_threads),
                      fmt::format("memory={}", serving.memory),
                      fmt::format("require_sandbox={}", serving.require_sandbox)};
  const auto& online = settings_.online;
  if (online.redis_host.empty() && online.redis_socket.empty()) {
    options.settings.push_back("online=" + data + "/online");
  } else {
    options.settings.push_back("redis_host=" + online.redis_host);
    options.settings.push_back("redis_socket=" + online.redis_socket);
    options.settings.push_back(fmt::format("redis_port={}", online.redis_port));
    if (!online.redis_password.empty()) options.settings.push_back("redis_password=" + online.redis_password);
    // A password that we were given in our environment is in none but its own.
    for (const auto& variable : environment_)
      if (online.redis_password.starts_with("env:") && variable.starts_with(online.redis_password.substr(4) + "="))
        options.environment.push_back(variable);
  }
  if (!settings_.tls.certificate_file.empty()) {
    options.settings.push_back("certificate_file=" + settings_.tls.certificate_file);
    options.settings.push_back("key_file=" + settings_.tls.key_file);
    options.settings.push_back("ca_file=" + settings_.tls.certificate_file);
  }
  local_serving_ = std::make_unique<LocalServing>(std::move(options), *endpoints_, processes_);
}

void ControlPlane::retain() {
  models::Retention::Asked asked;
  asked.go_on = [this] { return ready_.load(); };  // stopping does not wait for all that is due
  while (ready_ && api::retention_of(*platform_).pass(clock_.wall().count(), asked).more) {
  }
  erasures_->retain(iam::Scope(), false, {asked.actor, "data.retain", "/", ""}, asked.go_on);
}

std::string ControlPlane::url() const {
  const Endpoint endpoint = parse_endpoint(settings_.listen);
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", settings_.tls.certificate_file.empty() ? "http" : "https", v6 ? "[" : "",
                     endpoint.host, v6 ? "]" : "", server_->port());
}

void ControlPlane::stop() {
  ready_ = false;
  if (endpoints_) endpoints_->stop();
  local_serving_.reset();
  if (server_) server_->stop(settings_.http.drain_us);
  server_.reset();
  upkeep_.reset();
  if (flow_) flow_->stop();
  if (jobs_) jobs_->stop();
  if (deliveries_) deliveries_->stop();
  if (notifications_) notifications_->stop();
  if (online_) online_->stop();
  if (database_) database_->stop();
}

}  // namespace falaj::app
