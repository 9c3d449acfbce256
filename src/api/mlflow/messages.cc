// SPDX-License-Identifier: Apache-2.0
#include "api/mlflow/messages.h"

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "lifecycle/track/names.h"

namespace falaj::api::mlflow {

std::vector<track::KeyValue> pairs_of(const std::vector<PairIn>& in) {
  std::vector<track::KeyValue> out;
  out.reserve(in.size());
  for (const auto& pair : in) out.push_back({pair.key, pair.value});
  return out;
}

track::Metric metric_of(const MetricIn& in) {
  return {in.key, {in.timestamp, in.step, in.value}, in.model_id, in.dataset_name, in.dataset_digest};
}

void put(Text& out, const track::KeyValue& pair) {
  out.open('{').key("key").string(pair.key).key("value").string(pair.value).close('}');
}

void put(Text& out, const std::vector<track::KeyValue>& pairs) {
  out.open('[');
  for (const auto& pair : pairs) put(out, pair);
  out.close(']');
}

void put(Text& out, const track::Experiment& e) {
  out.open('{').key("experiment_id").string(std::to_string(e.number)).key("name").string(e.name);
  out.key("artifact_location").string(track::artifact_uri(e));
  out.key("lifecycle_stage").string(e.stage == track::Stage::active ? "active" : "deleted");
  out.key("last_update_time").number(e.updated_ms).key("creation_time").number(e.created_ms);
  if (!e.tags.empty()) put(out.key("tags"), e.tags);
  out.close('}');
}

void put(Text& out, const track::RunInfo& info) {
  out.open('{').key("run_uuid").string(info.run_id).key("run_id").string(info.run_id);
  out.key("experiment_id").string(std::to_string(info.experiment)).key("run_name").string(info.name);
  out.key("user_id").string(info.user).key("status").string(track::name(info.status));
  out.key("start_time").number(info.start_ms);
  if (info.end_ms) out.key("end_time").number(*info.end_ms);
  out.key("artifact_uri").string(track::artifact_uri(info));
  out.key("lifecycle_stage").string(info.stage == track::Stage::active ? "active" : "deleted");
  out.close('}');
}

void put(Text& out, const track::Metric& m) {
  out.open('{').key("key").string(m.key).key("value").number(m.point.value);
  out.key("timestamp").number(m.point.unix_ms).key("step").number(m.point.step);
  out.text_member("model_id", m.model_id).text_member("dataset_name", m.dataset_name);
  out.text_member("dataset_digest", m.dataset_digest).close('}');
}

void put(Text& out, const track::Run& run) {
  put(out.open('{').key("info"), run.info);
  out.key("data").open('{');
  if (!run.metrics.empty()) {
    out.key("metrics").open('[');
    for (const auto& metric : run.metrics) put(out, metric);
    out.close(']');
  }
  if (!run.params.empty()) put(out.key("params"), run.params);
  if (!run.tags.empty()) put(out.key("tags"), run.tags);
  out.close('}');
  out.key("inputs").open('{');
  if (!run.datasets.empty()) {
    out.key("dataset_inputs").open('[');
    for (const auto& input : run.datasets) {
      const auto& d = input.dataset;
      out.open('{');
      if (!input.tags.empty()) put(out.key("tags"), input.tags);
      out.key("dataset").open('{').key("name").string(d.name).key("digest").string(d.digest);
      out.key("source_type").string(d.source_type).key("source").string(d.source);
      out.text_member("schema", d.schema).text_member("profile", d.profile).close('}').close('}');
    }
    out.close(']');
  }
  if (!run.model_inputs.empty()) {
    out.key("model_inputs").open('[');
    for (const auto& id : run.model_inputs) out.open('{').key("model_id").string(id).close('}');
    out.close(']');
  }
  out.close('}');
  out.key("outputs").open('{');
  if (!run.model_outputs.empty()) {
    out.key("model_outputs").open('[');
    for (const auto& output : run.model_outputs)
      out.open('{').key("model_id").string(output.model_id).key("step").number(output.step).close('}');
    out.close(']');
  }
  out.close('}').close('}');
}

track::View parse_view(const std::string& text) {
  if (text.empty() || text == "ACTIVE_ONLY" || text == "1") return track::View::active;
  if (text == "DELETED_ONLY" || text == "2") return track::View::deleted;
  if (text == "ALL" || text == "3") return track::View::all;
  throw Error(Code::invalid, fmt::format("view type: ACTIVE_ONLY, DELETED_ONLY or ALL, not '{}'", text.substr(0, 40)));
}

std::size_t limit_of(const std::optional<std::int64_t>& max_results, std::size_t otherwise, std::size_t max) {
  if (!max_results) return otherwise;
  if (*max_results < 1 || *max_results > static_cast<std::int64_t>(max))
    throw Error(Code::invalid, fmt::format("max_results: 1 to {}, not {}", max, *max_results));
  return static_cast<std::size_t>(*max_results);
}

std::int64_t experiment_number(const std::string& id) {
  const auto number = parse_int(id);
  if (!number || *number < 0)
    throw Error(Code::invalid, fmt::format("experiment_id: a whole number, not '{}'", track::shortened(id, 80)));
  return *number;
}

}  // namespace falaj::api::mlflow
