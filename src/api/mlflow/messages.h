// SPDX-License-Identifier: Apache-2.0
#pragma once

// MLflow's messages as these clients send them, and ours as JSON.

#include <optional>
#include <string>
#include <vector>

#include "api/mlflow/protocol.h"
#include "lifecycle/track/types.h"

namespace falaj::api::mlflow {

struct PairIn {
  std::string key, value;
};
struct MetricIn {
  std::string key;
  double value = 0;
  std::int64_t timestamp = 0, step = 0;
  std::string model_id, dataset_name, dataset_digest;
};

std::vector<track::KeyValue> pairs_of(const std::vector<PairIn>& in);
track::Metric metric_of(const MetricIn& in);

void put(Text& out, const track::KeyValue& pair);
void put(Text& out, const std::vector<track::KeyValue>& pairs);
void put(Text& out, const track::Experiment& experiment);
void put(Text& out, const track::RunInfo& info);
void put(Text& out, const track::Metric& metric);
void put(Text& out, const track::Run& run);

// "ACTIVE_ONLY", "DELETED_ONLY", "ALL", or their numbers; active when empty. Throws invalid.
track::View parse_view(const std::string& text);
// Within 1..max, `otherwise` when absent. Throws invalid.
std::size_t limit_of(const std::optional<std::int64_t>& max_results, std::size_t otherwise, std::size_t max);
std::int64_t experiment_number(const std::string& id);  // throws invalid

}  // namespace falaj::api::mlflow

namespace falaj {
template <>
struct Shape<api::mlflow::PairIn> {
  static constexpr std::string_view name = "MlflowKeyValue";
  static Fields fields() {
    return {field("key", &api::mlflow::PairIn::key, "Key.").required(),
            field("value", &api::mlflow::PairIn::value, "Value.")};
  }
};
template <>
struct Shape<api::mlflow::MetricIn> {
  static constexpr std::string_view name = "MlflowMetric";
  static Fields fields() {
    return {field("key", &api::mlflow::MetricIn::key, "Key.").required(),
            field("value", &api::mlflow::MetricIn::value, "Value; NaN and infinities as text.").required(),
            field("timestamp", &api::mlflow::MetricIn::timestamp, "Milliseconds since 1970.").required(),
            field("step", &api::mlflow::MetricIn::step, "Step."),
            field("model_id", &api::mlflow::MetricIn::model_id, "Logged model it speaks of."),
            field("dataset_name", &api::mlflow::MetricIn::dataset_name, "Dataset it was measured on."),
            field("dataset_digest", &api::mlflow::MetricIn::dataset_digest, "Its digest.")};
  }
};
}  // namespace falaj
