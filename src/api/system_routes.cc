// SPDX-License-Identifier: Apache-2.0
// health, metrics, status, openapi, config

#include <unistd.h>

#include <cstdio>
#include <mutex>

#include "api/call.h"
#include "api/page.h"
#include "storage/sql/probe.h"

namespace falaj::api {
namespace {

struct Health {
  std::string status;
};
struct Version {
  std::string version;
};
struct DatabaseStatus {
  std::string engine;
  std::int64_t writes = 0;
  double writes_per_commit = 0;
};
struct BlobStatus {
  std::int64_t objects = 0, bytes = 0;
  std::vector<std::string> zones;
};
struct AuditStatus {
  std::int64_t records = 0;
  std::string root;
};
struct Status {
  std::string server, version;
  std::int64_t uptime_us = 0, resources = 0, resident_bytes = 0;
  DatabaseStatus database;
  BlobStatus blobs;
  AuditStatus audit;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<Health> {
  static constexpr std::string_view name = "Health";
  static Fields fields() { return {field("status", &Health::status, "ok, or why not.")}; }
};
template <>
struct Shape<Version> {
  static constexpr std::string_view name = "Version";
  static Fields fields() { return {field("version", &Version::version, "Of the program.")}; }
};
template <>
struct Shape<DatabaseStatus> {
  static constexpr std::string_view name = "DatabaseStatus";
  static Fields fields() {
    return {field("engine", &DatabaseStatus::engine, "sqlite or postgresql."),
            field("writes", &DatabaseStatus::writes, "Made durable since the start."),
            field("writes_per_commit", &DatabaseStatus::writes_per_commit, "Mean since the start.")};
  }
};
template <>
struct Shape<BlobStatus> {
  static constexpr std::string_view name = "BlobStatus";
  static Fields fields() {
    return {field("objects", &BlobStatus::objects, "Named blobs."), field("bytes", &BlobStatus::bytes, "Of them."),
            field("zones", &BlobStatus::zones, "Zones that hold some.")};
  }
};
template <>
struct Shape<AuditStatus> {
  static constexpr std::string_view name = "AuditStatus";
  static Fields fields() {
    return {field("records", &AuditStatus::records, "In the log."),
            field("root", &AuditStatus::root, "Of the tree over them.")};
  }
};
template <>
struct Shape<Status> {
  static constexpr std::string_view name = "Status";
  static Fields fields() {
    return {field("server", &Status::server, "Its address."),
            field("version", &Status::version, "Of the program."),
            field("uptime_us", &Status::uptime_us, "Since the start."),
            field("resources", &Status::resources, "Declared."),
            field("resident_bytes", &Status::resident_bytes, "Memory in use."),
            field("database", &Status::database, "The metadata store."),
            field("blobs", &Status::blobs, "The blob store."),
            field("audit", &Status::audit, "The audit log.")};
  }
};
template <>
struct Shape<config::Row> {
  static constexpr std::string_view name = "Setting";
  static Fields fields() {
    return {field("key", &config::Row::key, "Its name."),
            field("value", &config::Row::value, "What it is."),
            field("default", &config::Row::standard, "What it is by default."),
            field("source", &config::Row::source, "Where the value came from."),
            field("help", &config::Row::help, "What it does."),
            field("allowed", &config::Row::allowed, "What it may be.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

std::int64_t resident_bytes() {
  long pages = 0, resident = 0;
  if (std::FILE* statm = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(statm, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(statm);
  }
  return std::int64_t{resident} * sysconf(_SC_PAGESIZE);
}

Status status_of(Platform& platform) {
  Status status;
  status.server = platform.public_url;
  status.version = platform.version;
  status.uptime_us = (platform.clock.now() - platform.started).count();
  status.resident_bytes = resident_bytes();
  status.database.engine = platform.database.engine();
  const sql::Probe probe(platform.metrics);  // the same numbers that /metrics shows
  const auto commits = probe.writes_per_commit.Collect().histogram;
  status.database.writes = static_cast<std::int64_t>(probe.writes.Value());
  status.database.writes_per_commit =
      commits.sample_count == 0 ? 0 : commits.sample_sum / static_cast<double>(commits.sample_count);
  status.resources = platform.database.read([](sql::Reader& reader) {
    return reader.first("SELECT COUNT(*) FROM resource", {}, [](const sql::Row& row) { return row.integer(0); })
        .value_or(0);
  });
  const auto blobs = platform.vault.totals();
  status.blobs = {static_cast<std::int64_t>(blobs.names), static_cast<std::int64_t>(blobs.bytes), blobs.zones};
  const auto head = platform.audit.head();
  status.audit = {head.head.size, head.head.root.hex()};
  return status;
}

net::Response plain(std::string_view type, std::string text) {
  net::Response response;
  response.headers.add("Content-Type", type);
  response.body = std::move(text);
  return response;
}

void add_health(Routes& routes, Platform& platform) {
  routes.add<Nothing, Health>({Method::get, "/healthz", Permission::anyone(), BodyLimit::none(), Audit::read(),
                               Place::here, "Whether the process is alive."},
                              [](Call&, const Nothing&) { return Health{"ok"}; });
  routes.add<Nothing, Health>(
      {Method::get, "/readyz", Permission::anyone(), BodyLimit::none(), Audit::read(), Place::worker,
       "Whether it takes calls: the database answers and it is not stopping."},
      [&platform](Call&, const Nothing&) {
        if (!platform.ready()) throw Error(Code::unavailable, "starting or stopping");
        platform.database.read([](sql::Reader& reader) { reader.query("SELECT 1", {}, [](const sql::Row&) {}); });
        return Health{"ok"};
      });
  routes.add_stream<Nothing>({Method::get, "/metrics", Permission::of("metrics.read", "/"), BodyLimit::none(),
                              Audit::read(), Place::worker, "Every number of the process, in Prometheus' text format."},
                             "text/plain", [&platform](Call&, const Nothing&, net::Request&) {
                               return plain("text/plain; version=0.0.4; charset=utf-8", platform.metrics.render());
                             });
}

}  // namespace

void add_system_routes(Routes& routes, Platform& platform) {
  add_health(routes, platform);
  routes.add<Nothing, Version>({Method::get, "/v1/version", Permission::anyone(), BodyLimit::none(), Audit::read(),
                                Place::here, "The program's version."},
                               [&platform](Call&, const Nothing&) { return Version{platform.version}; });
  routes.add<Nothing, Status>({Method::get, "/v1/status", Permission::of("status.read", "/"), BodyLimit::none(),
                               Audit::read(), Place::worker, "How the server is."},
                              [&platform](Call&, const Nothing&) { return status_of(platform); });
  routes.add<Nothing, Page<config::Row>>(
      {Method::get, "/v1/config", Permission::of("config.read", "/"), BodyLimit::none(), Audit::read(), Place::here,
       "Every setting: its value, where that came from, what is allowed."},
      [&platform](Call&, const Nothing&) {
        return Page<config::Row>{platform.settings, std::nullopt};
      });
  routes.add_stream<Nothing>({Method::get, "/v1/openapi.json", Permission::anyone(), BodyLimit::none(), Audit::read(),
                              Place::here, "This API, described."},
                             "application/json",
                             [&routes, &platform, text = std::make_shared<std::string>(),
                              once = std::make_shared<std::once_flag>()](Call&, const Nothing&, net::Request&) {
                               std::call_once(*once, [&] { *text = routes.openapi(platform.version); });
                               return plain("application/json", *text);
                             });
}

void add_all_routes(Routes& routes, Platform& platform) {
  add_system_routes(routes, platform);
  add_access_routes(routes, platform);
  add_resource_routes(routes, platform);
  add_blob_routes(routes, platform);
  add_audit_routes(routes, platform);
  add_backup_routes(routes, platform);
  add_track_routes(routes, platform);
  add_model_routes(routes, platform);
  add_lineage_routes(routes, platform);
  add_dataset_routes(routes, platform);
  add_feature_routes(routes, platform);
  add_online_routes(routes, platform);
  add_job_routes(routes, platform);
  add_queue_routes(routes, platform);
  add_serving_routes(routes, platform);
  add_prediction_routes(routes, platform);
  add_watch_routes(routes, platform);
  add_flow_routes(routes, platform);
  add_loop_routes(routes, platform);
  add_secret_routes(routes, platform);
  add_alert_routes(routes, platform);
  add_retention_routes(routes, platform);
  add_erasure_routes(routes, platform);
  add_mlflow_routes(routes, platform);
}

}  // namespace falaj::api
