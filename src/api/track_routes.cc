// SPDX-License-Identifier: Apache-2.0
// experiments, runs and their metrics

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "api/project.h"
#include "api/runs.h"
#include "foundation/base/text.h"
#include "lifecycle/track/artifacts.h"
#include "lifecycle/track/removal.h"
#include "lifecycle/track/track.h"

namespace falaj::api {
namespace {

constexpr std::int64_t kPointsMax = 100'000, kPointsPage = 10'000, kLinePointsMax = 200, kLinesMax = 100,
                       kComparedMax = 20;
constexpr std::string_view kViews[] = {"active", "deleted", "all"};

struct ExperimentQuery {
  std::string filter, cursor, view = "active";
  std::vector<std::string> order_by;
  std::int64_t limit = kPageItems;
};
struct ExperimentOut {
  std::int64_t number = 0;
  std::string name, stage;
  std::int64_t created_ms = 0, updated_ms = 0;
  std::map<std::string, std::string> tags;
};
struct RunQuery {
  std::vector<std::string> experiment, order_by;
  std::string filter, cursor, view = "active", line;
  std::int64_t limit = kPageItems, points = 24;
};
struct OneRunQuery {
  std::string line;
  std::int64_t points = 24;
};
struct PointOut {
  json::value value;  // JSON has no NaN and no infinities: those are texts
  std::int64_t step = 0, unix_ms = 0;
};
struct InputDatasetOut {
  std::string name, digest, context;
};
struct RunOut {
  std::string run_id;
  std::int64_t experiment = 0;
  std::string name, user, status, stage;
  std::int64_t start_ms = 0;
  std::optional<std::int64_t> end_ms;
  std::map<std::string, std::string> params, tags;
  std::map<std::string, PointOut> metrics;
  std::vector<InputDatasetOut> datasets;
  std::vector<std::string> model_inputs, model_outputs;
  std::string artifact_uri;
  std::optional<json::value> line;  // a list
};
struct MetricQuery {
  std::optional<std::int64_t> points;
  std::string cursor;
  std::int64_t limit = kPointsPage;
};
struct MetricOut {
  std::string run_id, key;
  std::vector<PointOut> items;
  std::optional<std::string> next;
  std::string resume;
  std::optional<std::int64_t> total;
};
struct CompareQuery {
  std::vector<std::string> ids;
};
struct ComparedRow {
  std::string key;
  bool differs = false;
  std::vector<json::value> values;
};
struct Compared {
  std::vector<RunOut> runs;
  std::vector<ComparedRow> params, metrics;
};
struct RemovedRunOut {
  std::string run_id;
  std::int64_t rows = 0, points = 0, files = 0, bytes = 0, kept_bytes = 0;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<ExperimentQuery> {
  using T = ExperimentQuery;
  static constexpr std::string_view name = "ExperimentQuery";
  static Fields fields() {
    return {field("filter", &T::filter, "Such as: name LIKE 'fl%' AND tags.team = 'ops'."),
            field("order_by", &T::order_by, "Such as: last_update_time DESC."),
            field("view", &T::view, "Which.").one_of(kViews), field("cursor", &T::cursor, "From the page before."),
            field("limit", &T::limit, "Most items in a page.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<ExperimentOut> {
  using T = ExperimentOut;
  static constexpr std::string_view name = "Experiment";
  static Fields fields() {
    return {field("number", &T::number, "Of its project; clients know it as experiment_id."),
            field("name", &T::name, "Its name."),
            field("stage", &T::stage, "active or deleted."),
            field("created_ms", &T::created_ms, "Milliseconds since 1970."),
            field("updated_ms", &T::updated_ms, "Milliseconds since 1970."),
            field("tags", &T::tags, "Tags.")};
  }
};
template <>
struct Shape<RunQuery> {
  using T = RunQuery;
  static constexpr std::string_view name = "RunQuery";
  static Fields fields() {
    return {field("experiment", &T::experiment, "Name or number, may be repeated; all active ones when absent."),
            field("filter", &T::filter, "Such as: metrics.loss < 0.3 AND params.depth = '5'."),
            field("order_by", &T::order_by, "Such as: metrics.loss ASC; newest first when absent."),
            field("view", &T::view, "Which.").one_of(kViews),
            field("line", &T::line, "A metric: its thinned values come with each run."),
            field("points", &T::points, "Most values of such a line.").range(4, kLinePointsMax),
            field("cursor", &T::cursor, "From the page before."),
            field("limit", &T::limit, "Most items in a page.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<OneRunQuery> {
  using T = OneRunQuery;
  static constexpr std::string_view name = "OneRunQuery";
  static Fields fields() {
    return {field("line", &T::line, "A metric whose thinned values are wanted too."),
            field("points", &T::points, "Most values of that line.").range(4, kLinePointsMax)};
  }
};
template <>
struct Shape<PointOut> {
  using T = PointOut;
  static constexpr std::string_view name = "MetricPoint";
  static Fields fields() {
    return {field("value", &T::value, "A number, or 'NaN', 'Infinity' or '-Infinity'."),
            field("step", &T::step, "Step."), field("unix_ms", &T::unix_ms, "Milliseconds since 1970.")};
  }
};
template <>
struct Shape<InputDatasetOut> {
  using T = InputDatasetOut;
  static constexpr std::string_view name = "RunDataset";
  static Fields fields() {
    return {field("name", &T::name, "Its name."), field("digest", &T::digest, "Of its content."),
            field("context", &T::context, "What it was for: training, test.")};
  }
};
template <>
struct Shape<RunOut> {
  using T = RunOut;
  static constexpr std::string_view name = "Run";
  static Fields fields() {
    return {field("run_id", &T::run_id, "Unique on the platform."),
            field("experiment", &T::experiment, "Its number."),
            field("name", &T::name, "Its name."),
            field("user", &T::user, "Whose it is, as the client said."),
            field("status", &T::status, "RUNNING, SCHEDULED, FINISHED, FAILED or KILLED."),
            field("stage", &T::stage, "active or deleted."),
            field("start_ms", &T::start_ms, "Milliseconds since 1970."),
            field("end_ms", &T::end_ms, "Milliseconds since 1970; absent while it runs."),
            field("params", &T::params, "What it was given."),
            field("metrics", &T::metrics, "The newest point of each."),
            field("tags", &T::tags, "Tags."),
            field("datasets", &T::datasets, "What it read."),
            field("model_inputs", &T::model_inputs, "Logged models it began from."),
            field("model_outputs", &T::model_outputs, "Logged models it made."),
            field("artifact_uri", &T::artifact_uri, "Where its files are, for MLflow's clients."),
            field("line", &T::line, "Values of the metric that was asked for, thinned.")};
  }
};
template <>
struct Shape<MetricQuery> {
  using T = MetricQuery;
  static constexpr std::string_view name = "MetricQuery";
  static Fields fields() {
    return {field("points", &T::points, "The whole line in at most so many points, lows and highs kept.")
                .range(4, kPointsMax),
            field("cursor", &T::cursor, "From the page before."),
            field("limit", &T::limit, "Most points in a page.").range(1, kPointsMax)};
  }
};
template <>
struct Shape<MetricOut> {
  using T = MetricOut;
  static constexpr std::string_view name = "MetricHistory";
  static Fields fields() {
    return {field("run_id", &T::run_id, "Of which run."),
            field("key", &T::key, "Of which metric."),
            field("items", &T::items, "In order of time.").required(),
            field("next", &T::next, "Give it as 'cursor' to get the next part; absent at the end."),
            field("resume", &T::resume, "Give it as 'cursor' later, to get what was logged since."),
            field("total", &T::total, "Of a thinned line: the points there are.")};
  }
};
template <>
struct Shape<CompareQuery> {
  using T = CompareQuery;
  static constexpr std::string_view name = "CompareQuery";
  static Fields fields() { return {field("ids", &T::ids, "The runs.").required().length(2, kComparedMax)}; }
};
template <>
struct Shape<ComparedRow> {
  using T = ComparedRow;
  static constexpr std::string_view name = "ComparedValues";
  static Fields fields() {
    return {field("key", &T::key, "Of a param or metric."),
            field("differs", &T::differs, "Whether the runs do not all have the same."),
            field("values", &T::values, "One for each run; null where it has none.")};
  }
};
template <>
struct Shape<Compared> {
  using T = Compared;
  static constexpr std::string_view name = "ComparedRuns";
  static Fields fields() {
    return {field("runs", &T::runs, "In the order asked for."),
            field("params", &T::params, "All params of any of them."),
            field("metrics", &T::metrics, "Newest values of all metrics.")};
  }
};
template <>
struct Shape<RemovedRunOut> {
  using T = RemovedRunOut;
  static constexpr std::string_view name = "RemovedRun";
  static Fields fields() {
    return {
        field("run_id", &T::run_id, "Which."),
        field("rows", &T::rows, "Rows deleted."),
        field("points", &T::points, "Points of metrics among them."),
        field("files", &T::files, "Artifacts removed."),
        field("bytes", &T::bytes, "Of points and artifacts; the store frees artifacts when it next collects."),
        field("kept_bytes", &T::kept_bytes, "Of artifacts that stay, as a version of a model or a pin holds them.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

using track::Track;
using track::Where;

Declaration reads_run(std::string_view path, std::string_view action, std::string_view summary) {
  return {Method::get,   path,   Permission::of(action, "{scope}"), BodyLimit::none(), Audit::read(),
          Place::worker, summary};
}

track::View view_of(std::string_view name) {
  return name == "all" ? track::View::all : name == "deleted" ? track::View::deleted : track::View::active;
}
std::string_view text_of(track::Stage stage) { return stage == track::Stage::active ? "active" : "deleted"; }

std::map<std::string, std::string> by_key(const std::vector<track::KeyValue>& pairs) {
  std::map<std::string, std::string> out;
  for (const auto& pair : pairs) out[pair.key] = pair.value;
  return out;
}

json::value number_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return value;
}

PointOut out_of(const track::Point& point) { return {number_of(point.value), point.step, point.unix_ms}; }

ExperimentOut out_of(const track::Experiment& e) {
  return {e.number, e.name, std::string(text_of(e.stage)), e.created_ms, e.updated_ms, by_key(e.tags)};
}

RunOut out_of(const track::Run& run) {
  const auto& info = run.info;
  RunOut out;
  out.run_id = info.run_id;
  out.experiment = info.experiment;
  out.name = info.name;
  out.user = info.user;
  out.status = track::name(info.status);
  out.stage = text_of(info.stage);
  out.start_ms = info.start_ms;
  out.end_ms = info.end_ms;
  out.params = by_key(run.params);
  out.tags = by_key(run.tags);
  for (const auto& metric : run.metrics) out.metrics[metric.key] = out_of(metric.point);
  for (const auto& input : run.datasets) {
    const auto context = std::find_if(input.tags.begin(), input.tags.end(),
                                      [](const auto& tag) { return tag.key == "mlflow.data.context"; });
    out.datasets.push_back(
        {input.dataset.name, input.dataset.digest, context == input.tags.end() ? "" : context->value});
  }
  out.model_inputs = run.model_inputs;
  for (const auto& model : run.model_outputs) out.model_outputs.push_back(model.model_id);
  out.artifact_uri = track::artifact_uri(info);
  return out;
}

// A place between two points, as the order of a history has it.
std::string cursor_of(const track::Point& p) {
  return fmt::format("{}.{}.{:x}", p.unix_ms, p.step, std::bit_cast<std::uint64_t>(p.value));
}
track::Point point_of(std::string_view cursor) {
  const auto parts = split(cursor, '.');
  const auto ms = parse_int(parts[0]), step = parts.size() > 1 ? parse_int(parts[1]) : std::nullopt;
  std::uint64_t bits = 0;
  bool good = ms && step && parts.size() == 3 && !parts[2].empty() && parts[2].size() <= 16;
  for (std::size_t i = 0; good && i < parts[2].size(); ++i) {
    const auto digit = std::string_view("0123456789abcdef").find(parts[2][i]);
    good = digit != std::string_view::npos;
    bits = bits << 4 | digit;
  }
  if (!good) throw Error(Code::invalid, "cursor: not one that a page gave");
  return {*ms, *step, std::bit_cast<double>(bits)};
}

std::vector<track::Point> whole_line(Track& track, const Where& where, const std::string& run_id,
                                     const std::string& key) {
  return track.history(where, run_id, key, std::numeric_limits<std::int64_t>::min(),
                       std::numeric_limits<std::int64_t>::max());
}

json::array line_of(Track& track, const Where& where, const std::string& run_id, const std::string& key,
                    std::int64_t points) {
  json::array out;
  for (const auto& p : track::thin(whole_line(track, where, run_id, key), static_cast<std::size_t>(points)))
    out.push_back(number_of(p.value));
  return out;
}

Page<RunOut> list_runs(Track& track, const Where& where, const RunQuery& in) {
  if (!in.line.empty() && in.limit > kLinesMax)
    throw Error(Code::invalid, fmt::format("limit: at most {} runs with a line each, not {}", kLinesMax, in.limit));
  track::SearchRuns search;
  search.filter = in.filter;
  search.order_by = in.order_by;
  search.view = view_of(in.view);
  search.offset = offset_of(in.cursor);
  search.limit = static_cast<std::size_t>(in.limit);
  for (const auto& text : in.experiment) search.experiments.push_back(experiment_of(track, where, text));
  if (in.experiment.empty()) {
    track::SearchExperiments all;
    all.limit = track::kSearchMax;
    // A deleted run may be in an experiment that is not.
    all.view = search.view == track::View::active ? track::View::active : track::View::all;
    for (const auto& e : track.search_experiments(where, all).items) search.experiments.push_back(e.number);
  }
  const auto found = track.search_runs(where, search);
  Page<RunOut> page;
  for (const auto& run : found.items) {
    page.items.push_back(out_of(run));
    if (!in.line.empty()) page.items.back().line = line_of(track, where, run.info.run_id, in.line, in.points);
  }
  if (found.more) page.next = std::to_string(search.offset + found.items.size());
  return page;
}

MetricOut metric_history(Track& track, const Where& where, const std::string& run_id, const std::string& key,
                         const MetricQuery& in) {
  MetricOut out{run_id, key, {}, {}, in.cursor, {}};
  std::vector<track::Point> points;
  if (in.points) {
    if (!in.cursor.empty()) throw Error(Code::invalid, "points: a thinned line has no pages, so no cursor either");
    const auto all = whole_line(track, where, run_id, key);
    out.total = static_cast<std::int64_t>(all.size());
    points = track::thin(all, static_cast<std::size_t>(*in.points));
  } else {
    const auto after = in.cursor.empty() ? std::nullopt : std::optional(point_of(in.cursor));
    auto page = track.history(where, run_id, key, after, static_cast<std::size_t>(in.limit));
    if (page.after) out.next = cursor_of(*page.after);
    points = std::move(page.points);
  }
  if (!points.empty()) out.resume = cursor_of(points.back());
  for (const auto& p : points) out.items.push_back(out_of(p));
  return out;
}

// All keys of any run, each with what every run has of it.
template <class Values, class Value>
std::vector<ComparedRow> compared(const std::vector<RunOut>& runs, Values RunOut::*values, Value value_of) {
  std::set<std::string> keys;
  for (const auto& run : runs)
    for (const auto& [key, value] : run.*values) keys.insert(key);
  std::vector<ComparedRow> rows;
  for (const auto& key : keys) {
    ComparedRow row{key, false, {}};
    for (const auto& run : runs) {
      const auto found = (run.*values).find(key);
      row.values.push_back(found == (run.*values).end() ? json::value() : value_of(found->second));
      row.differs = row.differs || row.values.back() != row.values.front();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Compared compare(Track& track, const Where& where, const CompareQuery& in) {
  Compared out;
  for (const auto& id : in.ids) out.runs.push_back(out_of(track.run(where, id)));
  out.params = compared(out.runs, &RunOut::params, [](const std::string& v) { return json::value(v); });
  out.metrics = compared(out.runs, &RunOut::metrics, [](const PointOut& p) { return p.value; });
  return out;
}

std::string resource_of(const Where& where, const std::string& run_id) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "run", run_id).str();
}

// The run first: then nothing leads to its files any more, and the server's next pass takes what a kill left of them.
RemovedRunOut remove(Platform& platform, Call& call, const Where& where, const std::string& run_id) {
  const auto resource = resource_of(where, run_id);
  call.about(resource);
  const auto refuse_used = [&](sql::Reader& reader) {
    if (const auto why = models::Registry::descends(reader, where, run_id))
      throw Error(Code::conflict, fmt::format("the run {} cannot be removed: {}", run_id, *why));
  };
  platform.database.read([&](sql::Reader& r) { Track::removable_run(r, where, run_id); });
  platform.database.read(refuse_used);

  RemovedRunOut out;
  out.run_id = run_id;
  const auto root = track::run_artifact(run_id, "");
  for (std::string after;;) {
    const auto entries = platform.vault.list(where, root + "/", after, 1000);
    if (entries.empty()) break;
    for (const auto& entry : entries) {
      const bool pinned = !platform.vault.info(where, entry.name).pins.empty();
      (pinned ? out.kept_bytes : out.bytes) += static_cast<std::int64_t>(entry.bytes);
      after = entry.name;
    }
  }
  const auto removed = platform.track.remove_run(where, run_id, refuse_used, call.act(resource));
  const track::Leftover files{where, root, resource};
  out.files =
      static_cast<std::int64_t>(track::finish_removal(platform.database, platform.vault, files, call.actor()).names);
  out.rows = removed.rows;
  out.points = removed.points;
  out.bytes += removed.bytes;
  return out;
}

void add_deleting(Routes& routes, Platform& platform) {
  for (const auto stage : {track::Stage::deleted, track::Stage::active}) {
    const bool deletes = stage == track::Stage::deleted;
    routes.add<Nothing, Nothing>(
        {Method::post, deletes ? "/v1/runs/{id}/delete" : "/v1/runs/{id}/restore",
         Permission::of("run.write", "{scope}"), BodyLimit{1024}, Audit::verb(deletes ? "run.delete" : "run.restore"),
         Place::worker, deletes ? "Put a run away; it can be restored." : "Take a deleted run back."},
        [&platform, stage](Call& call, const Nothing&) {
          const auto where = project_of(call);
          const auto& id = call.parameter("id");
          platform.track.set_run_stage(where, id, stage, call.act(resource_of(where, id)));
        });
  }
  routes.add<Nothing, RemovedRunOut>(
      {Method::del, "/v1/runs/{id}", Permission::of("run.delete", "{scope}"), BodyLimit::none(),
       Audit::verb("run.remove"), Place::worker,
       "Remove a deleted run for good, with its points and files; refused while a promoted model came from it."},
      [&platform](Call& call, const Nothing&) {
        return remove(platform, call, project_of(call), call.parameter("id"));
      });
}

void add_runs(Routes& routes, Platform& platform) {
  auto& track = platform.track;
  routes.add<RunQuery, Page<RunOut>>(
      reads_run("/v1/runs", "run.read", "Runs that a filter finds, with what they logged."),
      [&track](Call& call, const RunQuery& in) { return list_runs(track, project_of(call), in); });
  routes.add<CompareQuery, Compared>(
      reads_run("/v1/runs/compare", "run.read", "Params and metrics of several runs, side by side."),
      [&track](Call& call, const CompareQuery& in) { return compare(track, project_of(call), in); });
  routes.add<OneRunQuery, RunOut>(reads_run("/v1/runs/{id}", "run.read", "A run and everything it logged."),
                                  [&track](Call& call, const OneRunQuery& in) {
                                    const auto where = project_of(call);
                                    auto out = out_of(track.run(where, call.parameter("id")));
                                    if (!in.line.empty())
                                      out.line = line_of(track, where, out.run_id, in.line, in.points);
                                    return out;
                                  });
  routes.add<MetricQuery, MetricOut>(reads_run("/v1/runs/{id}/metrics/{key*}", "run.read",
                                               "The points of a metric: page by page, or the line thinned."),
                                     [&track](Call& call, const MetricQuery& in) {
                                       return metric_history(track, project_of(call), call.parameter("id"),
                                                             call.parameter("key"), in);
                                     });
}

}  // namespace

std::int64_t experiment_of(track::Track& track, const track::Where& where, const std::string& text) {
  if (const auto number = parse_int(text)) {
    try {
      return track.experiment(where, *number).number;
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
    }
  }
  return track.experiment_by_name(where, text).number;
}

void add_track_routes(Routes& routes, Platform& platform) {
  auto& track = platform.track;
  routes.add<ExperimentQuery, Page<ExperimentOut>>(
      reads_run("/v1/experiments", "experiment.read", "Experiments of a project."),
      [&track](Call& call, const ExperimentQuery& in) {
        const auto offset = offset_of(in.cursor);
        // Newest first, and of one millisecond the higher number: MLflow's own default has these the other way round.
        const auto order = in.order_by.empty() ? std::vector<std::string>{"creation_time DESC"} : in.order_by;
        const auto found = track.search_experiments(
            project_of(call), {in.filter, order, view_of(in.view), offset, static_cast<std::size_t>(in.limit)});
        Page<ExperimentOut> page;
        for (const auto& experiment : found.items) page.items.push_back(out_of(experiment));
        if (found.more) page.next = std::to_string(offset + found.items.size());
        return page;
      });
  routes.add<Nothing, ExperimentOut>(
      reads_run("/v1/experiments/{name*}", "experiment.read", "An experiment, by name or number."),
      [&track](Call& call, const Nothing&) {
        const auto where = project_of(call);
        return out_of(track.experiment(where, experiment_of(track, where, call.parameter("name"))));
      });
  add_runs(routes, platform);
  add_deleting(routes, platform);
  add_run_transfer_routes(routes, platform);
}

}  // namespace falaj::api
