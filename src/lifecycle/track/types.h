// SPDX-License-Identifier: Apache-2.0
#pragma once

// The values of tracking. Times are milliseconds since 1970, as clients of this field send them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "governance/vault/vault.h"
#include "lifecycle/track/points.h"

namespace falaj::track {

using vault::Where;  // a project

struct KeyValue {
  std::string key, value;
  friend bool operator==(const KeyValue&, const KeyValue&) = default;
};

enum class Stage { active, deleted };
enum class View { active, deleted, all };
enum class RunStatus { running = 1, scheduled = 2, finished = 3, failed = 4, killed = 5 };
std::string_view name(RunStatus status);  // "RUNNING"
std::optional<RunStatus> parse_run_status(std::string_view name);

// The default experiment of every project.
inline constexpr std::int64_t kDefaultExperiment = 0;
inline constexpr std::string_view kDefaultExperimentName = "Default";

struct Experiment {
  std::int64_t number = 0;  // within its project
  std::string name;
  Stage stage = Stage::active;
  std::int64_t created_ms = 0, updated_ms = 0;
  std::vector<KeyValue> tags;
};

// A metric's value at one moment; the latest one, where a run is shown. It may speak of a logged model and of the data
// it was measured on.
struct Metric {
  std::string key;
  Point point;
  std::string model_id, dataset_name, dataset_digest;
};

struct Dataset {
  std::string name, digest, source_type, source, schema, profile;
};
struct DatasetInput {
  Dataset dataset;
  std::vector<KeyValue> tags;
};
struct ModelOutput {
  std::string model_id;
  std::int64_t step = 0;
};

struct RunInfo {
  std::string run_id;  // 32 hexadecimal digits, unique in its project
  std::int64_t experiment = 0;
  std::string name, user;
  RunStatus status = RunStatus::running;
  std::int64_t start_ms = 0;
  std::optional<std::int64_t> end_ms;
  Stage stage = Stage::active;
};

struct Run {
  RunInfo info;
  std::vector<Metric> metrics;
  std::vector<KeyValue> params, tags;
  std::vector<DatasetInput> datasets;
  std::vector<std::string> model_inputs;
  std::vector<ModelOutput> model_outputs;
};

struct NewRun {
  std::int64_t experiment = kDefaultExperiment;
  std::string name, user;
  std::optional<std::int64_t> start_ms;
  std::vector<KeyValue> tags;
  std::string id = {};  // 32 hexadecimal digits; a run that has it is the one that is made. "": a random one
};

struct RunChange {
  std::optional<RunStatus> status;
  std::optional<std::int64_t> end_ms;
  std::optional<std::string> name;
};

// What one call logs; all of it or none.
struct Batch {
  std::vector<Metric> metrics;
  std::vector<KeyValue> params, tags;
};

struct SearchRuns {
  std::vector<std::int64_t> experiments;
  std::string filter;
  std::vector<std::string> order_by;
  View view = View::active;
  std::size_t offset = 0, limit = 1000;
};
struct SearchExperiments {
  std::string filter;
  std::vector<std::string> order_by;
  View view = View::active;
  std::size_t offset = 0, limit = 1000;
};
struct HistoryPage {
  std::vector<Point> points;
  std::optional<Point> after;  // where the next page begins; nothing on the last
};
template <class T>
struct Found {
  std::vector<T> items;
  bool more = false;
};

// Limits of the protocol.
inline constexpr std::size_t kBatchMetricsMax = 1000, kBatchParamsMax = 100, kBatchTagsMax = 100, kBatchItemsMax = 1000;
inline constexpr std::size_t kKeyBytesMax = 250, kParamBytesMax = 6000, kTagBytesMax = 8000;
inline constexpr std::size_t kExperimentNameBytesMax = 500, kExperimentTagBytesMax = 5000;
inline constexpr std::size_t kSearchMax = 50'000;

// Where a run's artifacts are, as clients are told: "mlflow-artifacts:/3/<run id>/artifacts".
std::string artifact_uri(const RunInfo& run);
std::string artifact_uri(const Experiment& experiment);

}  // namespace falaj::track
