// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "api/mlflow/messages.h"
#include "api/mlflow/routes.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/track.h"

namespace falaj::api::mlflow {
namespace {

constexpr std::size_t kBulkRunsMax = 100, kBulkRowsMax = 25'000, kSampledMax = 2500;
constexpr std::string_view kModelHistoryTag = "mlflow.log-model.history";

struct NewRunIn {
  std::string experiment_id, user_id, run_name;
  std::optional<std::int64_t> start_time;
  std::vector<PairIn> tags;
};
// The fields of the calls that are about one run.
struct RunIn {
  std::string run_id, run_uuid, key, value, status, model_json;
  std::optional<std::int64_t> end_time;
  std::optional<std::string> run_name;
  const std::string& id() const {
    if (run_id.empty() && run_uuid.empty()) throw Error(Code::invalid, "run_id: is missing");
    return run_id.empty() ? run_uuid : run_id;
  }
};
struct LogMetricIn : MetricIn {
  std::string run_id, run_uuid;
};
struct LogBatchIn {
  std::string run_id;
  std::vector<MetricIn> metrics;
  std::vector<PairIn> params, tags;
};
struct DatasetIn {
  std::string name, digest, source_type, source, schema, profile;
};
struct DatasetInputIn {
  DatasetIn dataset;
  std::vector<PairIn> tags;
};
struct ModelRefIn {
  std::string model_id;
  std::int64_t step = 0;
};
struct LogInputsIn {
  std::string run_id;
  std::vector<DatasetInputIn> datasets;
  std::vector<ModelRefIn> models;
};
struct SearchRunsIn {
  std::vector<std::string> experiment_ids, order_by;
  std::string filter, run_view_type, page_token;
  std::optional<std::int64_t> max_results;
};
struct HistoryIn {
  std::string run_id, run_uuid, metric_key, page_token;
  std::vector<std::string> run_ids;
  std::optional<std::int64_t> max_results, start_step, end_step;
};

}  // namespace
}  // namespace falaj::api::mlflow

namespace falaj {
using namespace api::mlflow;

template <>
struct Shape<NewRunIn> {
  static constexpr std::string_view name = "MlflowNewRun";
  static Fields fields() {
    return {field("experiment_id", &NewRunIn::experiment_id, "Its experiment."),
            field("user_id", &NewRunIn::user_id, "Whose."),
            field("run_name", &NewRunIn::run_name, "A name; one is made up when absent."),
            field("start_time", &NewRunIn::start_time, "Milliseconds since 1970."),
            field("tags", &NewRunIn::tags, "Tags.")};
  }
};
template <>
struct Shape<RunIn> {
  static constexpr std::string_view name = "MlflowRunRequest";
  static Fields fields() {
    return {field("run_id", &RunIn::run_id, "Which run."),
            field("run_uuid", &RunIn::run_uuid, "The same, by older clients."),
            field("key", &RunIn::key, "Of a param or tag."),
            field("value", &RunIn::value, "Of a param or tag."),
            field("status", &RunIn::status, "RUNNING, SCHEDULED, FINISHED, FAILED or KILLED."),
            field("end_time", &RunIn::end_time, "Milliseconds since 1970."),
            field("run_name", &RunIn::run_name, "New name."),
            field("model_json", &RunIn::model_json, "A logged model, as JSON.")};
  }
};
template <>
struct Shape<LogMetricIn> {
  static constexpr std::string_view name = "MlflowLogMetric";
  static Fields fields() {
    return {field("run_id", &LogMetricIn::run_id, "Which run."),
            field("run_uuid", &LogMetricIn::run_uuid, "The same."),
            field<LogMetricIn>("key", &LogMetricIn::key, "Key.").required(),
            field<LogMetricIn>("value", &LogMetricIn::value, "Value.").required(),
            field<LogMetricIn>("timestamp", &LogMetricIn::timestamp, "Milliseconds since 1970.").required(),
            field<LogMetricIn>("step", &LogMetricIn::step, "Step."),
            field<LogMetricIn>("model_id", &LogMetricIn::model_id, "Logged model."),
            field<LogMetricIn>("dataset_name", &LogMetricIn::dataset_name, "Dataset."),
            field<LogMetricIn>("dataset_digest", &LogMetricIn::dataset_digest, "Its digest.")};
  }
};
template <>
struct Shape<LogBatchIn> {
  static constexpr std::string_view name = "MlflowLogBatch";
  static Fields fields() {
    return {field("run_id", &LogBatchIn::run_id, "Which run.").required(),
            field("metrics", &LogBatchIn::metrics, "At most 1000."),
            field("params", &LogBatchIn::params, "At most 100."), field("tags", &LogBatchIn::tags, "At most 100.")};
  }
};
template <>
struct Shape<DatasetIn> {
  static constexpr std::string_view name = "MlflowDataset";
  static Fields fields() {
    return {field("name", &DatasetIn::name, "Name.").required(),
            field("digest", &DatasetIn::digest, "Digest.").required(),
            field("source_type", &DatasetIn::source_type, "What kind of source."),
            field("source", &DatasetIn::source, "Where from."),
            field("schema", &DatasetIn::schema, "Schema, as JSON."),
            field("profile", &DatasetIn::profile, "Profile, as JSON.")};
  }
};
template <>
struct Shape<DatasetInputIn> {
  static constexpr std::string_view name = "MlflowDatasetInput";
  static Fields fields() {
    return {field("dataset", &DatasetInputIn::dataset, "Which.").required(),
            field("tags", &DatasetInputIn::tags, "Tags.")};
  }
};
template <>
struct Shape<ModelRefIn> {
  static constexpr std::string_view name = "MlflowModelRef";
  static Fields fields() {
    return {field("model_id", &ModelRefIn::model_id, "Which.").required(), field("step", &ModelRefIn::step, "Step.")};
  }
};
template <>
struct Shape<LogInputsIn> {
  static constexpr std::string_view name = "MlflowLogInputs";
  static Fields fields() {
    return {field("run_id", &LogInputsIn::run_id, "Which run.").required(),
            field("datasets", &LogInputsIn::datasets, "Datasets read."),
            field("models", &LogInputsIn::models, "Models read or made.")};
  }
};
template <>
struct Shape<SearchRunsIn> {
  static constexpr std::string_view name = "MlflowSearchRuns";
  static Fields fields() {
    return {field("experiment_ids", &SearchRunsIn::experiment_ids, "Of which experiments."),
            field("filter", &SearchRunsIn::filter, "Comparisons joined by AND."),
            field("run_view_type", &SearchRunsIn::run_view_type, "ACTIVE_ONLY, DELETED_ONLY or ALL."),
            field("max_results", &SearchRunsIn::max_results, "Most in a page."),
            field("order_by", &SearchRunsIn::order_by, "Keys with ASC or DESC."),
            field("page_token", &SearchRunsIn::page_token, "From the page before.")};
  }
};
template <>
struct Shape<HistoryIn> {
  static constexpr std::string_view name = "MlflowMetricHistory";
  static Fields fields() {
    return {field("run_id", &HistoryIn::run_id, "Which run."),
            field("run_uuid", &HistoryIn::run_uuid, "The same."),
            field("run_ids", &HistoryIn::run_ids, "Which runs."),
            field("metric_key", &HistoryIn::metric_key, "Which metric."),
            field("max_results", &HistoryIn::max_results, "Most points."),
            field("page_token", &HistoryIn::page_token, "From the page before."),
            field("start_step", &HistoryIn::start_step, "First step."),
            field("end_step", &HistoryIn::end_step, "Last step.")};
  }
};
}  // namespace falaj

namespace falaj::api::mlflow {
namespace {

using track::Where;

std::string run_scope(const Where& where, std::string_view run_id) {
  // An id that cannot be one is not_found later; the audit names the project then.
  const bool plain = !run_id.empty() && run_id.size() <= 64 && run_id.find('/') == std::string_view::npos;
  return plain ? iam::Scope::of(where.tenant.str(), where.project.str(), "run", run_id).str() : where.scope().str();
}

Declaration reads_run(Method method, std::string_view path, std::string_view summary) {
  return {method, path, allowed_in_project("run.read"), kMessageMax, Audit::read(), Place::worker, summary};
}
Declaration writes_run(std::string_view path, std::string_view verb, std::string_view summary) {
  return {Method::post, path, allowed_in_project("run.write"), kMessageMax, Audit::verb(verb), Place::worker, summary};
}

// The reference cuts values that are too long, and its clients rely on it.
std::string cut(const std::string& value, std::size_t characters) {
  return std::string(track::shortened(value, characters));
}

std::string answer(const track::Run& run) {
  Text out;
  put(out.open('{').key("run"), run);
  return out.close('}').take();
}

// A client that names no experiment, or "0", means the default one.
std::int64_t experiment_of(const std::string& id) {
  return id.empty() ? track::kDefaultExperiment : experiment_number(id);
}

void add_lives(Routes& routes, track::Track& track) {
  rpc<NewRunIn>(
      routes, writes_run("/api/2.0/mlflow/runs/create", "run.create", "MLflow: begin a run."),
      [&track](Call& call, const Where& where, const NewRunIn& in) {
        track::NewRun run{experiment_of(in.experiment_id), in.run_name, in.user_id, in.start_time, pairs_of(in.tags)};
        for (auto& tag : run.tags) tag.value = cut(tag.value, track::kTagBytesMax);
        return answer(track.create_run(where, run, call.act(where.scope().str())));
      });
  rpc<RunIn>(routes, reads_run(Method::get, "/api/2.0/mlflow/runs/get", "MLflow: a run."),
             [&track](Call&, const Where& where, const RunIn& in) { return answer(track.run(where, in.id())); });
  rpc<RunIn>(routes, writes_run("/api/2.0/mlflow/runs/update", "run.update", "MLflow: change a run's status or name."),
             [&track](Call& call, const Where& where, const RunIn& in) {
               track::RunChange change;
               if (!in.status.empty()) {
                 change.status = track::parse_run_status(in.status);
                 if (const auto number = parse_int(in.status); !change.status && number && *number >= 1 && *number <= 5)
                   change.status = static_cast<track::RunStatus>(*number);
                 if (!change.status)
                   throw Error(Code::invalid, fmt::format("status: RUNNING, SCHEDULED, FINISHED, FAILED or KILLED, "
                                                          "not '{}'",
                                                          in.status.substr(0, 40)));
               }
               change.end_ms = in.end_time;
               change.name = in.run_name;
               Text out;
               put(out.open('{').key("run_info"),
                   track.update_run(where, in.id(), change, call.act(run_scope(where, in.id()))));
               return out.close('}').take();
             });
  for (const bool deletes : {true, false})
    rpc<RunIn>(routes,
               deletes
                   ? writes_run("/api/2.0/mlflow/runs/delete", "run.hide", "MLflow: delete a run; restore undoes it.")
                   : writes_run("/api/2.0/mlflow/runs/restore", "run.restore", "MLflow: bring a deleted run back."),
               [&track, deletes](Call& call, const Where& where, const RunIn& in) {
                 track.set_run_stage(where, in.id(), deletes ? track::Stage::deleted : track::Stage::active,
                                     call.act(run_scope(where, in.id())));
                 return std::string(kEmpty);
               });
}

void add_logging(Routes& routes, track::Track& track) {
  rpc<LogMetricIn>(routes,
                   writes_run("/api/2.0/mlflow/runs/log-metric", "run.log", "MLflow: log one point of a metric."),
                   [&track](Call& call, const Where& where, const LogMetricIn& in) {
                     const auto& id = in.run_id.empty() ? in.run_uuid : in.run_id;
                     track.log(where, id, {{metric_of(in)}, {}, {}}, call.act(run_scope(where, id)));
                     return std::string(kEmpty);
                   });
  rpc<RunIn>(routes, writes_run("/api/2.0/mlflow/runs/log-parameter", "run.log", "MLflow: log a param."),
             [&track](Call& call, const Where& where, const RunIn& in) {
               track.log(where, in.id(), {{}, {{in.key, cut(in.value, track::kParamBytesMax)}}, {}},
                         call.act(run_scope(where, in.id())));
               return std::string(kEmpty);
             });
  rpc<RunIn>(routes, writes_run("/api/2.0/mlflow/runs/set-tag", "run.log", "MLflow: set a tag."),
             [&track](Call& call, const Where& where, const RunIn& in) {
               track.log(where, in.id(), {{}, {}, {{in.key, cut(in.value, track::kTagBytesMax)}}},
                         call.act(run_scope(where, in.id())));
               return std::string(kEmpty);
             });
  rpc<RunIn>(routes, writes_run("/api/2.0/mlflow/runs/delete-tag", "run.log", "MLflow: remove a tag."),
             [&track](Call& call, const Where& where, const RunIn& in) {
               track.delete_tag(where, in.id(), in.key, call.act(run_scope(where, in.id())));
               return std::string(kEmpty);
             });
  rpc<LogBatchIn>(
      routes, writes_run("/api/2.0/mlflow/runs/log-batch", "run.log", "MLflow: log metrics, params and tags at once."),
      [&track](Call& call, const Where& where, const LogBatchIn& in) {
        track::Batch batch;
        batch.metrics.reserve(in.metrics.size());
        for (const auto& metric : in.metrics) batch.metrics.push_back(metric_of(metric));
        batch.params = pairs_of(in.params);
        batch.tags = pairs_of(in.tags);
        for (auto& param : batch.params) param.value = cut(param.value, track::kParamBytesMax);
        for (auto& tag : batch.tags) tag.value = cut(tag.value, track::kTagBytesMax);
        track.log(where, in.run_id, batch, call.act(run_scope(where, in.run_id)));
        return std::string(kEmpty);
      });
  rpc<LogInputsIn>(routes, writes_run("/api/2.0/mlflow/runs/log-inputs", "run.log", "MLflow: what a run read."),
                   [&track](Call& call, const Where& where, const LogInputsIn& in) {
                     std::vector<track::DatasetInput> datasets;
                     for (const auto& d : in.datasets)
                       datasets.push_back({{d.dataset.name, d.dataset.digest, d.dataset.source_type, d.dataset.source,
                                            d.dataset.schema, d.dataset.profile},
                                           pairs_of(d.tags)});
                     std::vector<std::string> models;
                     for (const auto& model : in.models) models.push_back(model.model_id);
                     track.log_inputs(where, in.run_id, datasets, models, call.act(run_scope(where, in.run_id)));
                     return std::string(kEmpty);
                   });
  rpc<LogInputsIn>(routes, writes_run("/api/2.0/mlflow/runs/outputs", "run.log", "MLflow: the models a run made."),
                   [&track](Call& call, const Where& where, const LogInputsIn& in) {
                     std::vector<track::ModelOutput> models;
                     for (const auto& model : in.models) models.push_back({model.model_id, model.step});
                     track.log_outputs(where, in.run_id, models, call.act(run_scope(where, in.run_id)));
                     return std::string(kEmpty);
                   });
  rpc<RunIn>(routes,
             writes_run("/api/2.0/mlflow/runs/log-model", "run.log", "MLflow, older clients: note a model of the run."),
             [&track](Call& call, const Where& where, const RunIn& in) {
               const auto model = parse_json(in.model_json);
               if (!model.is_object()) throw Error(Code::invalid, "model_json: an object");
               for (const auto* field : {"artifact_path", "flavors", "utc_time_created", "run_id"})
                 if (!model.as_object().contains(field))
                   throw Error(Code::invalid, fmt::format("model_json: '{}' is missing", field));
               json::array history;
               for (const auto& tag : track.run(where, in.id()).tags)
                 if (tag.key == kModelHistoryTag) history = parse_json(tag.value).as_array();
               history.push_back(model);
               track.log(where, in.id(), {{}, {}, {{std::string(kModelHistoryTag), json::serialize(history)}}},
                         call.act(run_scope(where, in.id())));
               return std::string(kEmpty);
             });
}

std::string search(track::Track& track, const Where& where, const SearchRunsIn& in) {
  track::SearchRuns search;
  for (const auto& id : in.experiment_ids) search.experiments.push_back(experiment_number(id));
  search.filter = in.filter;
  search.order_by = in.order_by;
  search.view = parse_view(in.run_view_type);
  search.limit = limit_of(in.max_results, 1000, track::kSearchMax);
  search.offset = parse_page_token(in.page_token);
  Text out;
  out.open('{').key("runs").open('[');
  std::size_t shown = 0;
  const bool more = track.search_runs(where, search, [&](const track::Run& run) {
    put(out, run);
    ++shown;
  });
  out.close(']');
  if (more) out.key("next_page_token").string(page_token(search.offset + shown));
  return out.close('}').take();
}

void put_point(Text& out, const std::string& key, const track::Point& point, const std::string& run_id) {
  out.open('{').key("key").string(key).key("value").number(point.value).key("timestamp").number(point.unix_ms);
  out.key("step").number(point.step);
  if (!run_id.empty()) out.key("run_id").string(run_id);
  out.close('}');
}

std::string history_token(const track::Point& p) {
  return to_base64(as_bytes(fmt::format("{} {} {}", p.unix_ms, p.step, std::bit_cast<std::uint64_t>(p.value))));
}

std::optional<track::Point> parse_history_token(const std::string& token) {
  if (token.empty()) return std::nullopt;
  const auto bad = Error(Code::invalid, "page_token: not one of ours");
  Bytes bytes;
  try {
    bytes = from_base64(token);
  } catch (const Error&) {
    throw bad;
  }
  const auto parts = split(as_text(bytes), ' ');
  if (parts.size() != 3) throw bad;
  const auto ms = parse_int(parts[0]), step = parse_int(parts[1]);
  std::uint64_t value = 0;
  const auto end = parts[2].data() + parts[2].size();
  if (!ms || !step || std::from_chars(parts[2].data(), end, value).ptr != end) throw bad;
  return track::Point{*ms, *step, std::bit_cast<double>(value)};
}

std::string history(track::Track& track, const Where& where, const HistoryIn& in) {
  const auto& run_id = in.run_id.empty() ? in.run_uuid : in.run_id;
  if (in.metric_key.empty()) throw Error(Code::invalid, "metric_key: is missing");
  if (in.max_results && *in.max_results < 1) throw Error(Code::invalid, "max_results: at least 1");
  const auto limit =
      in.max_results ? static_cast<std::size_t>(*in.max_results) : std::numeric_limits<std::size_t>::max();
  const auto page = track.history(where, run_id, in.metric_key, parse_history_token(in.page_token), limit);
  Text out;
  out.open('{');
  if (!page.points.empty()) {
    out.key("metrics").open('[');
    for (const auto& point : page.points) put_point(out, in.metric_key, point, "");
    out.close(']');
  }
  if (page.after) out.key("next_page_token").string(history_token(*page.after));
  return out.close('}').take();
}

// One metric of several runs: all of it up to a number of rows, or evenly sampled between steps.
std::string histories(track::Track& track, const Where& where, std::vector<std::string> run_ids, const HistoryIn& in,
                      bool sampled) {
  if (in.metric_key.empty()) throw Error(Code::invalid, "metric_key: is missing");
  if (run_ids.empty() || run_ids.size() > kBulkRunsMax)
    throw Error(Code::invalid, fmt::format("run ids: 1 to {}, not {}", kBulkRunsMax, run_ids.size()));
  if (in.start_step.has_value() != in.end_step.has_value())
    throw Error(Code::invalid, "start_step and end_step: both or neither");
  if (in.start_step && *in.start_step > *in.end_step) throw Error(Code::invalid, "start_step: not after end_step");
  auto left = limit_of(in.max_results, sampled ? kSampledMax : kBulkRowsMax, sampled ? kSampledMax : kBulkRowsMax);
  const auto each = left;
  if (!sampled) std::sort(run_ids.begin(), run_ids.end());
  Text out;
  out.open('{').key("metrics").open('[');
  for (const auto& run_id : run_ids) {
    std::vector<track::Point> points;
    if (sampled) {
      const auto all =
          track.history(where, run_id, in.metric_key, in.start_step.value_or(std::numeric_limits<std::int64_t>::min()),
                        in.end_step.value_or(std::numeric_limits<std::int64_t>::max()));
      points = track::sample_evenly(all, each);
    } else if (left > 0) {
      points = track.history(where, run_id, in.metric_key, std::nullopt, left).points;
      left -= points.size();
    }
    for (const auto& point : points) put_point(out, in.metric_key, point, run_id);
  }
  return out.close(']').close('}').take();
}

}  // namespace

void add_run_routes(Routes& routes, Platform& platform) {
  auto& track = platform.track;
  add_lives(routes, track);
  add_logging(routes, track);
  rpc<SearchRunsIn>(routes, reads_run(Method::post, "/api/2.0/mlflow/runs/search", "MLflow: search runs."),
                    [&track](Call&, const Where& where, const SearchRunsIn& in) { return search(track, where, in); });
  rpc<HistoryIn>(routes,
                 reads_run(Method::get, "/api/2.0/mlflow/metrics/get-history", "MLflow: every point of a metric."),
                 [&track](Call&, const Where& where, const HistoryIn& in) { return history(track, where, in); });
  rpc<HistoryIn>(
      routes, reads_run(Method::get, "/api/2.0/mlflow/metrics/get-history-bulk", "MLflow: one metric of several runs."),
      [&track](Call& call, const Where& where, const HistoryIn& in) {
        std::vector<std::string> ids;
        for (const auto& [key, value] : call.head().query)
          if (key == "run_id") ids.push_back(value);
        return histories(track, where, ids, in, false);
      });
  rpc<HistoryIn>(routes,
                 reads_run(Method::get, "/api/2.0/mlflow/metrics/get-history-bulk-interval",
                           "MLflow: one metric of several runs, evenly sampled between steps."),
                 [&track](Call&, const Where& where, const HistoryIn& in) {
                   return histories(track, where, in.run_ids, in, true);
                 });
}

}  // namespace falaj::api::mlflow
