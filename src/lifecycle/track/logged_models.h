// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "lifecycle/track/types.h"
#include "storage/sql/database.h"

namespace falaj::track {

enum class ModelStatus { pending = 1, ready = 2, upload_failed = 3 };
std::string_view name(ModelStatus status);  // "LOGGED_MODEL_PENDING"
std::optional<ModelStatus> parse_model_status(std::string_view name);

// The latest value of a metric that speaks of the model, and the run that logged it.
struct ModelMetric {
  Metric metric;
  std::string run_id;
};

// A model that a run made, whether or not it is ever registered.
struct LoggedModel {
  std::string model_id;  // "m-" and 32 hexadecimal digits, unique in its project
  std::int64_t experiment = 0;
  std::string name, type, source_run_id;
  ModelStatus status = ModelStatus::pending;
  Stage stage = Stage::active;
  std::int64_t created_ms = 0, updated_ms = 0;
  std::vector<KeyValue> params, tags;
  std::vector<ModelMetric> metrics;
};

struct NewLoggedModel {
  std::int64_t experiment = kDefaultExperiment;
  std::string name;  // "" = a random one
  std::string type, source_run_id;
  std::vector<KeyValue> params, tags;
};

struct SearchLoggedModels {
  struct DatasetRef {
    std::string name, digest;  // digest "" = any
  };
  struct OrderBy {
    std::string field;
    bool ascending = true;
    DatasetRef dataset;  // of a metric: only as measured on it; name "" = any
  };
  std::vector<std::int64_t> experiments;
  std::string filter;
  std::vector<DatasetRef> datasets;  // metrics in the filter count as measured on one of these; none = on any
  std::vector<OrderBy> order_by;
  std::size_t offset = 0, limit = 100;
};

inline constexpr std::size_t kModelNameMax = 500, kModelParamsMax = 1000, kModelTagsMax = 1000;

// Where its artifacts are, as clients are told: "mlflow-artifacts:/3/models/<model id>/artifacts".
std::string artifact_uri(const LoggedModel& model);

// Logged models, in the database of Track. Thread-safe. What another project has is not_found.
class LoggedModels {
 public:
  static std::span<const sql::Migration> migrations();
  LoggedModels(sql::Database& database, const sys::Clock& clock, sys::Random& random, Metrics& metrics);

  LoggedModel create(const Where& where, const NewLoggedModel& model, const sql::Act& act);
  LoggedModel get(const Where& where, const std::string& model_id, bool deleted_too = false);
  // Deleted ones are not found by any of these.
  LoggedModel set_status(const Where& where, const std::string& model_id, ModelStatus status, const sql::Act& act);
  void remove(const Where& where, const std::string& model_id, const sql::Act& act);  // it can still be asked for
  // For good, with params and tags; its files as with Track::remove_run. What `check` throws keeps it.
  void remove_for_good(const Where& where, const std::string& model_id, const std::function<void(sql::Reader&)>& check,
                       const sql::Act& act);
  void set_tags(const Where& where, const std::string& model_id, const std::vector<KeyValue>& tags,
                const sql::Act& act);
  void delete_tag(const Where& where, const std::string& model_id, const std::string& key, const sql::Act& act);
  // A param is written once and only repeated with the same value.
  void log_params(const Where& where, const std::string& model_id, const std::vector<KeyValue>& params,
                  const sql::Act& act);
  Found<LoggedModel> search(const Where& where, const SearchLoggedModels& search);

 private:
  sql::Database& database_;
  const sys::Clock& clock_;
  sys::Random& random_;
  Counter& created_;
};

// Within another's read or write; without params, tags and metrics. Deleted ones too.
std::optional<LoggedModel> find_logged_model(sql::Reader& reader, const Where& where, const std::string& model_id);

}  // namespace falaj::track
