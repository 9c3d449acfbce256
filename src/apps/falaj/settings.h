// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/falaj/job_settings.h"
#include "apps/falaj/serving_settings.h"
#include "apps/falaj/telling_settings.h"
#include "foundation/base/shape.h"
#include "foundation/config/config.h"
#include "lifecycle/execute/slurm/settings.h"

namespace falaj::app {

struct TlsSettings {
  std::string certificate_file, key_file, client_ca_file;
};

struct DatabaseSettings {
  std::string postgresql;  // a reference to the connection string; "" = SQLite in the data directory
  std::int64_t readers_max = 8, writes_waiting_max = 4096, writes_per_commit_max = 512;
};

// Where zones keep their bytes. A Zone resource names one of these in spec.backends.
struct StoreSettings {
  std::string name, kind = "directory";
  std::string path;                                    // directory
  std::string endpoint, bucket, region = "us-east-1";  // s3
  std::string access_key, secret_key;                  // s3: references
};

struct BlobSettings {
  std::int64_t grace_us = std::int64_t{24} * 3600 * 1'000'000;
  std::int64_t threads = 1;
  std::vector<StoreSettings> stores;
};

struct KeySettings {
  std::string passphrase;  // a reference; "" = the root key file is not locked
};

struct HttpSettings {
  std::int64_t connections_max = 10'000, requests_max = 1'000, workers = 32, io_threads = 2;
  std::int64_t head_wait_us = 10'000'000, idle_wait_us = 60'000'000, drain_us = 30'000'000;
  std::vector<std::string> host_names;
};

struct RateSettings {
  std::int64_t calls_per_second = 10'000, anonymous_per_second = 50, denied_per_second = 5;
};

// How often retention policies are carried out.
struct RetentionSettings {
  std::int64_t every_us = std::int64_t{3600} * 1'000'000;
};

// What one query or ingest over datasets may take.
struct DatasetSettings {
  std::int64_t memory_bytes = std::int64_t{1} << 30;
  std::int64_t spill_bytes = std::int64_t{64} << 30;
  std::int64_t threads = 2;
};

// Where features are kept to be read online.
struct OnlineSettings {
  std::string redis_host, redis_socket;  // both "": LMDB in the data directory
  std::int64_t redis_port = 6379;
  std::string redis_password;  // a reference
};

// The falaj-serve that is started on this machine; others are started by themselves and follow.
struct Settings {
  std::string data = "~/.falaj";
  std::string listen = "127.0.0.1:8470";
  std::string log_level = "info";
  TlsSettings tls;
  DatabaseSettings database;
  BlobSettings blobs;
  KeySettings keys;
  HttpSettings http;
  RateSettings rates;
  WebhookSettings webhooks;
  AlertSettings alerts;
  RetentionSettings retention;
  DatasetSettings datasets;
  OnlineSettings online;
  JobSettings jobs;
  ServingSettings serving;
  execute::slurm::Settings slurm;
};

// "HOST:PORT", "[::1]:PORT". Throws invalid.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
  bool loopback() const;
};
Endpoint parse_endpoint(const std::string& text);

// Environment names that begin with FALAJ_ but are the CLI's or a job's, not settings.
std::vector<std::string> other_variables();

}  // namespace falaj::app

namespace falaj {

namespace settings_words {
inline constexpr std::string_view kStoreKinds[] = {"directory", "s3"};
inline constexpr std::string_view kLogLevels[] = {"debug", "info", "warn", "error"};
inline constexpr std::int64_t kMinute = 60'000'000, kDay = 86'400'000'000;
}  // namespace settings_words

template <>
struct Shape<app::TlsSettings> {
  using T = app::TlsSettings;
  static constexpr std::string_view name = "TlsSettings";
  static Fields fields() {
    return {field("certificate_file", &T::certificate_file,
                  "Certificate chain, PEM; with key_file it turns TLS 1.3 on. Read again when it changes."),
            field("key_file", &T::key_file, "Private key, PEM."),
            field("client_ca_file", &T::client_ca_file,
                  "Authorities whose client certificates are accepted; empty = none are asked for.")};
  }
};
template <>
struct Shape<app::DatabaseSettings> {
  using T = app::DatabaseSettings;
  static constexpr std::string_view name = "DatabaseSettings";
  static Fields fields() {
    return {
        field("postgresql", &T::postgresql,
              "Where the PostgreSQL connection string is: file:PATH or env:NAME; empty = SQLite in the data directory.")
            .secret(),
        field("readers_max", &T::readers_max, "Read connections.").range(1, 256),
        field("writes_waiting_max", &T::writes_waiting_max, "Writes that may wait; more are refused with a retry hint.")
            .range(1, 1'000'000),
        field("writes_per_commit_max", &T::writes_per_commit_max, "Most writes that share one commit.")
            .range(1, 10'000)};
  }
};
template <>
struct Shape<app::StoreSettings> {
  using T = app::StoreSettings;
  static constexpr std::string_view name = "StoreSettings";
  static Fields fields() {
    return {field("name", &T::name, "What zones call it.").required(),
            field("kind", &T::kind, "What it is.").one_of(settings_words::kStoreKinds),
            field("path", &T::path, "Directory, for kind directory."),
            field("endpoint", &T::endpoint, "URL, for kind s3."),
            field("bucket", &T::bucket, "Bucket, for kind s3."),
            field("region", &T::region, "Region, for kind s3."),
            field("access_key", &T::access_key, "Where the access key is: file:PATH or env:NAME.").secret(),
            field("secret_key", &T::secret_key, "Where the secret key is: file:PATH or env:NAME.").secret()};
  }
};
template <>
struct Shape<app::BlobSettings> {
  using T = app::BlobSettings;
  static constexpr std::string_view name = "BlobSettings";
  static Fields fields() {
    return {field("grace", &T::grace_us, "How long bytes that nothing names are kept; longer than any upload takes.")
                .duration()
                .range(0, 365 * settings_words::kDay),
            field("threads", &T::threads, "Threads that seal large blobs, besides the caller's.").range(0, 64),
            field("stores", &T::stores, "Where zones keep their bytes, besides 'local', a directory below data.")
                .length(0, 100)};
  }
};
template <>
struct Shape<app::KeySettings> {
  using T = app::KeySettings;
  static constexpr std::string_view name = "KeySettings";
  static Fields fields() {
    return {field("passphrase", &T::passphrase,
                  "Where the passphrase that locks the root key file is: file:PATH or env:NAME; empty = not locked.")
                .secret()};
  }
};
template <>
struct Shape<app::HttpSettings> {
  using T = app::HttpSettings;
  static constexpr std::string_view name = "HttpSettings";
  static Fields fields() {
    return {field("connections_max", &T::connections_max, "Open connections.").range(1, 1'000'000),
            field("requests_max", &T::requests_max, "Requests in flight.").range(1, 1'000'000),
            field("workers", &T::workers, "Threads that run handlers.").range(1, 1024),
            field("io_threads", &T::io_threads, "Threads that read and write sockets.").range(1, 64),
            field("head_wait", &T::head_wait_us, "Longest a client may take to send a request's head.")
                .duration()
                .range(100'000, 10 * settings_words::kMinute),
            field("idle_wait", &T::idle_wait_us, "Longest a connection may idle between requests.")
                .duration()
                .range(1'000'000, 60 * settings_words::kMinute),
            field("drain", &T::drain_us, "Longest that stopping waits for requests in flight.")
                .duration()
                .range(0, 60 * settings_words::kMinute),
            field("host_names", &T::host_names,
                  "Names by which clients may call this server, besides the address it listens on.")
                .length(0, 100)};
  }
};
template <>
struct Shape<app::RateSettings> {
  using T = app::RateSettings;
  static constexpr std::string_view name = "RateSettings";
  static Fields fields() {
    return {
        field("calls_per_second", &T::calls_per_second, "Of one principal; twice as many at once.").range(1, 1'000'000),
        field("anonymous_per_second", &T::anonymous_per_second, "Without a credential, of one address.")
            .range(1, 1'000'000),
        field("denied_per_second", &T::denied_per_second,
              "Denied calls of one address that are recorded; more are refused without a record.")
            .range(1, 1'000'000)};
  }
};
template <>
struct Shape<app::RetentionSettings> {
  using T = app::RetentionSettings;
  static constexpr std::string_view name = "RetentionSettings";
  static Fields fields() {
    return {field("every", &T::every_us, "How often the server does what retention policies say.")
                .duration()
                .range(1'000'000, 365 * settings_words::kDay)};
  }
};
template <>
struct Shape<app::DatasetSettings> {
  using T = app::DatasetSettings;
  static constexpr std::string_view name = "DatasetSettings";
  static Fields fields() {
    return {field("memory_bytes", &T::memory_bytes,
                  "Memory of one query or ingest; beyond it, it spills to disk, encrypted.")
                .bytes()
                .range(64 << 20, std::int64_t{1} << 44),
            field("spill_bytes", &T::spill_bytes, "Disk that one query or ingest may spill to.")
                .bytes()
                .range(0, std::int64_t{1} << 50),
            field("threads", &T::threads, "Threads of one query or ingest.").range(1, 1024)};
  }
};
template <>
struct Shape<app::OnlineSettings> {
  using T = app::OnlineSettings;
  static constexpr std::string_view name = "OnlineSettings";
  static Fields fields() {
    return {
        field("redis_host", &T::redis_host, "A Redis server for features; in the data directory when there is none.")
            .length(0, 255),
        field("redis_port", &T::redis_port, "Its port.").range(1, 65535),
        field("redis_socket", &T::redis_socket, "Its socket on this machine, instead of host and port.").length(0, 107),
        field("redis_password", &T::redis_password, "Where its password is: file:PATH or env:NAME.").length(0, 4096)};
  }
};
template <>
struct Shape<app::Settings> {
  using T = app::Settings;
  static constexpr std::string_view name = "Settings";
  static Fields fields() {
    return {field("data", &T::data, "Directory of everything that is kept.").length(1, 4096),
            field("listen", &T::listen, "HOST:PORT to listen on. Beyond loopback TLS is required.").length(1, 256),
            field("log_level", &T::log_level, "Lowest level that is logged.").one_of(settings_words::kLogLevels),
            field("tls", &T::tls, ""),
            field("database", &T::database, ""),
            field("blobs", &T::blobs, ""),
            field("keys", &T::keys, ""),
            field("http", &T::http, ""),
            field("rates", &T::rates, ""),
            field("webhooks", &T::webhooks, ""),
            field("alerts", &T::alerts, ""),
            field("retention", &T::retention, ""),
            field("datasets", &T::datasets, ""),
            field("online", &T::online, ""),
            field("jobs", &T::jobs, ""),
            field("serving", &T::serving, ""),
            field("slurm", &T::slurm, "")};
  }
  // What concerns several settings. An unsafe combination refuses to start.
  static void check(const T& settings, Faults& faults);
};

}  // namespace falaj
