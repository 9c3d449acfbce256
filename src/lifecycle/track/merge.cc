// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/track/export_run.h"
#include "lifecycle/track/merge_models.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"
#include "lifecycle/track/track.h"

namespace falaj::track {

namespace {

struct SeriesRow {
  std::int64_t series = 0, appends = 0;
  std::optional<Point> latest;
};

std::optional<SeriesRow> find_series(sql::Reader& reader, const RunRow& row, const ExportedSeries& of) {
  return reader.first(
      "SELECT series, appends, value, unix_ms, step FROM track_metric WHERE experiment = ? AND place = ? AND key = ?"
      " AND model = ? AND dataset = ? AND digest = ?",
      {row.experiment, row.place, of.key, of.model_id, of.dataset_name, of.dataset_digest}, [](const sql::Row& r) {
        return SeriesRow{r.integer(0), r.integer(1),
                         Point{r.integer(3), r.integer(4), r.is_null(2) ? std::nan("") : r.real(2)}};
      });
}

// Those of the tidy points that the series does not have.
std::vector<Point> absent(sql::Reader& reader, std::int64_t series, std::vector<Point> points) {
  std::vector<Point> there;
  reader.query("SELECT data FROM track_block WHERE series = ? AND last_ms >= ? AND first_ms <= ?",
               {series, points.front().unix_ms, points.back().unix_ms}, [&](const sql::Row& row) {
                 const auto block = unpack(row.bytes(0));
                 there.insert(there.end(), block.begin(), block.end());
               });
  if (there.empty()) return points;
  tidy(there);
  std::vector<Point> out;
  std::set_difference(points.begin(), points.end(), there.begin(), there.end(), std::back_inserter(out), before);
  return out;
}

std::map<std::string, std::string> map_of(const std::vector<KeyValue>& pairs) {
  std::map<std::string, std::string> out;
  for (const auto& pair : pairs) out[pair.key] = pair.value;
  return out;
}

// What of the export the run does not have, points aside. Of a run that is not there: everything.
struct Missing {
  std::vector<KeyValue> params, tags;
  std::vector<const ExportedDataset*> datasets;
  std::vector<std::string> model_inputs;
  std::vector<ExportedModel> model_outputs;
  bool name = false, end = false;
  bool any() const {
    return !params.empty() || !tags.empty() || !datasets.empty() || !model_inputs.empty() || !model_outputs.empty() ||
           name || end;
  }
};

Missing missing_of(const Run& here, const ExportedRun& wanted) {
  Missing out;
  const auto params = map_of(here.params), tags = map_of(here.tags);
  for (const auto& [key, value] : wanted.params) {
    const auto found = params.find(key);
    if (found == params.end())
      out.params.push_back({key, value});
    else if (found->second != value)
      throw Error(Code::conflict, fmt::format("param '{}' of run {} is '{}' here and '{}' in the export", key,
                                              wanted.run_id, shortened(found->second, 100), shortened(value, 100)));
  }
  for (const auto& [key, value] : wanted.tags)
    if (const auto found = tags.find(key); found == tags.end() || found->second != value)
      out.tags.push_back({key, value});
  for (const auto& dataset : wanted.datasets)
    if (std::none_of(here.datasets.begin(), here.datasets.end(), [&](const DatasetInput& input) {
          return input.dataset.name == dataset.name && input.dataset.digest == dataset.digest;
        }))
      out.datasets.push_back(&dataset);
  for (const auto& model : wanted.model_inputs)
    if (std::find(here.model_inputs.begin(), here.model_inputs.end(), model) == here.model_inputs.end())
      out.model_inputs.push_back(model);
  for (const auto& model : wanted.model_outputs)
    if (std::none_of(here.model_outputs.begin(), here.model_outputs.end(), [&](const ModelOutput& output) {
          return output.model_id == model.model_id && output.step == model.step;
        }))
      out.model_outputs.push_back(model);
  out.name = here.info.name != wanted.name;
  const auto status = parse_run_status(wanted.status).value_or(RunStatus::running);
  const bool ended = status != RunStatus::running && status != RunStatus::scheduled;
  out.end = ended && (here.info.status != status || here.info.end_ms != wanted.end_ms);
  return out;
}

bool lacks_points(sql::Reader& reader, const RunRow& row, const ExportedRun& run,
                  std::span<const ExportedBlock> blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const ExportedBlock& block) {
    const auto series = find_series(reader, row, run.series[block.series]);
    return !series || !absent(reader, series->series, unpack(block.points)).empty();
  });
}

RunRow insert_run(sql::Writer& w, std::int64_t experiment, const ExportedRun& run, std::int64_t now_ms) {
  RunRow row;
  row.experiment = experiment;
  w.query("UPDATE track_experiment SET runs = runs + 1 WHERE id = ? RETURNING runs", {experiment},
          [&](const sql::Row& r) { row.place = r.integer(0) - 1; });
  w.execute(
      "INSERT INTO track_run(experiment, place, run_id, name, user_id, status, start_ms, end_ms, stage, changed_ms)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {row.experiment, row.place, run.run_id, run.name, run.user, run.status, run.start_ms, nullable(run.end_ms),
       run.stage, now_ms});
  return row;
}

void put_missing(sql::Writer& w, const RunRow& row, const ExportedRun& run, const Missing& missing) {
  for (const auto& param : missing.params)
    w.execute("INSERT INTO track_param(experiment, place, key, value) VALUES (?, ?, ?, ?)",
              {row.experiment, row.place, param.key, param.value});
  for (const auto& tag : missing.tags)
    w.execute(
        "INSERT INTO track_tag(experiment, place, key, value) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (experiment, place, key) DO UPDATE SET value = excluded.value",
        {row.experiment, row.place, tag.key, tag.value});
  for (const auto* dataset : missing.datasets) {
    json::object tags;
    for (const auto& [key, value] : dataset->tags) tags[key] = value;
    const auto context = dataset->tags.find("mlflow.data.context");
    const auto id = dataset_row(
        w, row.experiment,
        {dataset->name, dataset->digest, dataset->source_type, dataset->source, dataset->schema, dataset->profile});
    w.execute("INSERT INTO track_input(experiment, place, dataset, context, tags) VALUES (?, ?, ?, ?, ?)",
              {row.experiment, row.place, id, context == dataset->tags.end() ? "" : context->second,
               std::string_view(canonical(tags))});
  }
  for (const auto& model : missing.model_inputs)
    w.execute("INSERT INTO track_model_link(experiment, place, way, model, step) VALUES (?, ?, 'in', ?, 0)",
              {row.experiment, row.place, model});
  for (const auto& model : missing.model_outputs)
    w.execute(
        "INSERT INTO track_model_link(experiment, place, way, model, step) VALUES (?, ?, 'out', ?, ?)"
        " ON CONFLICT (experiment, place, way, model) DO UPDATE SET step = excluded.step",
        {row.experiment, row.place, model.model_id, model.step});
  if (missing.name)
    w.execute("UPDATE track_run SET name = ? WHERE experiment = ? AND place = ?",
              {run.name, row.experiment, row.place});
  if (missing.end)
    w.execute("UPDATE track_run SET status = ?, end_ms = ? WHERE experiment = ? AND place = ?",
              {run.status, nullable(run.end_ms), row.experiment, row.place});
}

// Returns how many points were new.
std::int64_t put_points(sql::Writer& w, const RunRow& row, const ExportedSeries& of, const Bytes& packed) {
  auto points = unpack(packed);
  auto found = find_series(w, row, of);
  if (found) points = absent(w, found->series, std::move(points));
  if (points.empty()) return 0;
  auto latest =
      *std::max_element(points.begin(), points.end(), [](const Point& a, const Point& b) { return newer(b, a); });
  if (!found) {
    found = SeriesRow{next_number(w, "series"), 0, {}};
    w.execute(
        "INSERT INTO track_metric(experiment, place, key, model, dataset, digest, series, value, unix_ms, step, "
        "appends) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
        {row.experiment, row.place, of.key, of.model_id, of.dataset_name, of.dataset_digest, found->series,
         number_or_null(latest.value), latest.unix_ms, latest.step});
  } else {
    if (found->latest && !newer(latest, *found->latest)) latest = *found->latest;
    w.execute(
        "UPDATE track_metric SET value = ?, unix_ms = ?, step = ?, appends = appends + 1 WHERE experiment = ?"
        " AND place = ? AND key = ? AND model = ? AND dataset = ? AND digest = ?",
        {number_or_null(latest.value), latest.unix_ms, latest.step, row.experiment, row.place, of.key, of.model_id,
         of.dataset_name, of.dataset_digest});
  }
  const auto block = pack(points);
  w.execute("INSERT INTO track_block(series, number, first_ms, last_ms, points, data) VALUES (?, ?, ?, ?, ?, ?)",
            {found->series, found->appends + 1, points.front().unix_ms, points.back().unix_ms,
             static_cast<std::int64_t>(points.size()), BytesView(block)});
  return static_cast<std::int64_t>(points.size());
}

}  // namespace

void Track::check_merge(const Where& where, const ExportedRun& run) {
  database_.read([&](sql::Reader& r) {
    if (const auto row = find_run(r, where, run.run_id)) missing_of(load_run(r, *row), run);
    for (const auto& model : run.logged_models) lacks_model(r, where, model);
  });
}

MergedRun Track::merge_run(const Where& where, std::int64_t experiment, const ExportedRun& run,
                           std::span<const ExportedBlock> blocks, const sql::Act& act) {
  const bool needed = database_.read([&](sql::Reader& r) {
    const auto row = find_run(r, where, run.run_id);
    return !row || missing_of(load_run(r, *row), run).any() || lacks_points(r, *row, run, blocks) ||
           std::any_of(run.logged_models.begin(), run.logged_models.end(),
                       [&](const auto& model) { return lacks_model(r, where, model); });
  });
  if (!needed) return {};
  const auto merged = database_.write(act, [&](sql::Writer& w) {
    MergedRun out;
    out.changed = true;
    const auto now = clock_.wall().count() / 1000;
    auto row = find_run(w, where, run.run_id);
    out.made = !row;
    if (!row) row = insert_run(w, need_experiment(w, where, experiment).id, run, now);
    auto missing = missing_of(load_run(w, *row), run);
    missing.name = missing.name && !out.made;
    missing.end = missing.end && !out.made;
    put_missing(w, *row, run, missing);
    for (const auto& block : blocks) out.points += put_points(w, *row, run.series[block.series], block.points);
    for (const auto& model : run.logged_models) merge_model(w, where, row->experiment, model);
    w.execute("UPDATE track_run SET changed_ms = ? WHERE experiment = ? AND place = ?",
              {now, row->experiment, row->place});
    if (out.made)
      images_.made(w, *row);
    else
      images_.changed(w, *row);
    w.record({scope_of(where, "run", run.run_id), {}, crypto::sha256(to_text(run))});
    w.after_commit([this, id = row->experiment] { columns_.drop(id); });
    return out;
  });
  if (merged.made) runs_created_.Increment();
  points_logged_.Increment(static_cast<double>(merged.points));
  return merged;
}

}  // namespace falaj::track
