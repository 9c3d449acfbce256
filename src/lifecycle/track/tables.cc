// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/tables.h"

#include <cmath>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "lifecycle/track/track.h"

namespace falaj::track {

namespace {

// Rows are found by experiment and place, so that everything of a run, and all runs of an experiment, lie together; the
// second index of params, tags and metrics finds one key of all runs, and images have it in few rows (images.h). A
// series is the points of one metric of one run, in blocks (points.h).
constexpr sql::Migration kMigrations[] = {
    {1, "track",
     "CREATE TABLE track_counter(name TEXT PRIMARY KEY, value BIGINT NOT NULL);"
     "CREATE TABLE track_experiment(id BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " number BIGINT NOT NULL, name TEXT NOT NULL, stage TEXT NOT NULL, created_ms BIGINT NOT NULL,"
     " updated_ms BIGINT NOT NULL, runs BIGINT NOT NULL);"
     "CREATE UNIQUE INDEX track_experiment_number ON track_experiment(tenant, project, number);"
     "CREATE UNIQUE INDEX track_experiment_name ON track_experiment(tenant, project, name);"
     "CREATE TABLE track_experiment_tag(experiment BIGINT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
     " PRIMARY KEY(experiment, key)) CLUSTERED;"
     "CREATE TABLE track_run(experiment BIGINT NOT NULL REFERENCES track_experiment(id), place BIGINT NOT NULL,"
     " run_id TEXT NOT NULL, name TEXT NOT NULL, user_id TEXT NOT NULL, status TEXT NOT NULL,"
     " start_ms BIGINT NOT NULL, end_ms BIGINT, stage TEXT NOT NULL, changed_ms BIGINT NOT NULL,"
     " PRIMARY KEY(experiment, place)) CLUSTERED;"
     "CREATE INDEX track_run_id ON track_run(run_id);"
     "CREATE TABLE track_param(experiment BIGINT NOT NULL, place BIGINT NOT NULL, key TEXT NOT NULL,"
     " value TEXT NOT NULL, PRIMARY KEY(experiment, place, key)) CLUSTERED;"
     "CREATE INDEX track_param_key ON track_param(experiment, key, place);"
     "CREATE TABLE track_tag(experiment BIGINT NOT NULL, place BIGINT NOT NULL, key TEXT NOT NULL,"
     " value TEXT NOT NULL, PRIMARY KEY(experiment, place, key)) CLUSTERED;"
     "CREATE INDEX track_tag_key ON track_tag(experiment, key, place);"
     "CREATE TABLE track_metric(experiment BIGINT NOT NULL, place BIGINT NOT NULL, key TEXT NOT NULL,"
     " model TEXT NOT NULL, dataset TEXT NOT NULL, digest TEXT NOT NULL, series BIGINT NOT NULL,"
     " value DOUBLE PRECISION, unix_ms BIGINT NOT NULL, step BIGINT NOT NULL, appends BIGINT NOT NULL,"
     " PRIMARY KEY(experiment, place, key, model, dataset, digest)) CLUSTERED;"
     "CREATE INDEX track_metric_key ON track_metric(experiment, key, place);"
     "CREATE INDEX track_metric_model ON track_metric(model) WHERE model <> '';"
     "CREATE TABLE track_block(series BIGINT NOT NULL, number BIGINT NOT NULL, first_ms BIGINT NOT NULL,"
     " last_ms BIGINT NOT NULL, points BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY(series, number)) CLUSTERED;"
     "CREATE TABLE track_dataset(id BIGINT PRIMARY KEY, experiment BIGINT NOT NULL, name TEXT NOT NULL,"
     " digest TEXT NOT NULL, source_type TEXT NOT NULL, source TEXT NOT NULL, schema TEXT NOT NULL,"
     " profile TEXT NOT NULL);"
     "CREATE UNIQUE INDEX track_dataset_name ON track_dataset(experiment, name, digest);"
     "CREATE TABLE track_input(experiment BIGINT NOT NULL, place BIGINT NOT NULL, dataset BIGINT NOT NULL,"
     " context TEXT NOT NULL, tags TEXT NOT NULL, PRIMARY KEY(experiment, place, dataset)) CLUSTERED;"
     "CREATE TABLE track_model_link(experiment BIGINT NOT NULL, place BIGINT NOT NULL, way TEXT NOT NULL,"
     " model TEXT NOT NULL, step BIGINT NOT NULL, PRIMARY KEY(experiment, place, way, model)) CLUSTERED"},
    {2, "track",
     "CREATE TABLE track_unimaged(experiment BIGINT NOT NULL, chunk BIGINT NOT NULL, place BIGINT NOT NULL,"
     " PRIMARY KEY(experiment, chunk, place)) CLUSTERED;"
     "CREATE TABLE track_image(experiment BIGINT NOT NULL, entity BIGINT NOT NULL, key TEXT NOT NULL,"
     " chunk BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY(experiment, entity, key, chunk));"
     "CREATE INDEX track_image_chunk ON track_image(experiment, chunk)"},
};

ExperimentRow read_experiment(const sql::Row& row) {
  ExperimentRow out;
  out.id = row.integer(0);
  out.experiment.number = row.integer(1);
  out.experiment.name = row.text(2);
  out.experiment.stage = row.text(3) == "active" ? Stage::active : Stage::deleted;
  out.experiment.created_ms = row.integer(4);
  out.experiment.updated_ms = row.integer(5);
  return out;
}

RunRow read_run(const sql::Row& row) {
  RunRow out;
  out.experiment = row.integer(0);
  out.place = row.integer(1);
  auto& info = out.info;
  info.run_id = row.text(2);
  info.name = row.text(3);
  info.user = row.text(4);
  info.status = parse_run_status(row.text(5)).value_or(RunStatus::running);
  info.start_ms = row.integer(6);
  if (!row.is_null(7)) info.end_ms = row.integer(7);
  info.stage = row.text(8) == "active" ? Stage::active : Stage::deleted;
  info.experiment = row.integer(9);
  out.unimaged = row.integer(10) != 0;
  return out;
}

}  // namespace

std::span<const sql::Migration> Track::migrations() { return kMigrations; }

std::string_view name(Stage stage) { return stage == Stage::active ? "active" : "deleted"; }

sql::Param nullable(const std::optional<std::int64_t>& value) { return value ? sql::Param(*value) : sql::Null{}; }
sql::Param number_or_null(double value) { return std::isnan(value) ? sql::Param(sql::Null{}) : sql::Param(value); }

std::string scope_of(const Where& where, std::string_view kind, std::string_view thing) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), kind, thing).str();
}

std::int64_t next_number(sql::Writer& writer, const char* of, std::int64_t many) {
  std::int64_t last = 0;
  writer.query(
      "INSERT INTO track_counter(name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = "
      "track_counter.value + excluded.value RETURNING value",
      {std::string_view(of), many}, [&](const sql::Row& row) { last = row.integer(0); });
  return last - many + 1;
}

std::optional<ExperimentRow> find_experiment(sql::Reader& reader, const Where& where, std::int64_t number) {
  return reader.first(
      "SELECT id, number, name, stage, created_ms, updated_ms FROM track_experiment"
      " WHERE tenant = ? AND project = ? AND number = ?",
      {where.tenant.str(), where.project.str(), number}, read_experiment);
}

std::optional<ExperimentRow> find_experiment(sql::Reader& reader, const Where& where, const std::string& name) {
  return reader.first(
      "SELECT id, number, name, stage, created_ms, updated_ms FROM track_experiment"
      " WHERE tenant = ? AND project = ? AND name = ?",
      {where.tenant.str(), where.project.str(), name}, read_experiment);
}

ExperimentRow need_experiment(sql::Reader& reader, const Where& where, std::int64_t number) {
  auto found = find_experiment(reader, where, number);
  if (!found) throw Error(Code::not_found, fmt::format("no experiment with id {} in this project", number));
  return *found;
}

std::vector<KeyValue> experiment_tags(sql::Reader& reader, std::int64_t id) {
  return reader.all("SELECT key, value FROM track_experiment_tag WHERE experiment = ? ORDER BY key", {id},
                    [](const sql::Row& row) {
                      return KeyValue{std::string(row.text(0)), std::string(row.text(1))};
                    });
}

std::optional<RunRow> find_run(sql::Reader& reader, const Where& where, const std::string& run_id) {
  return reader.first(
      "SELECT r.experiment, r.place, r.run_id, r.name, r.user_id, r.status, r.start_ms, r.end_ms, r.stage, e.number,"
      " (SELECT COUNT(*) FROM track_unimaged u WHERE u.experiment = r.experiment AND u.chunk = r.place / 1024"
      " AND u.place = r.place)"
      " FROM track_run r JOIN track_experiment e ON e.id = r.experiment"
      " WHERE r.run_id = ? AND e.tenant = ? AND e.project = ?",
      {run_id, where.tenant.str(), where.project.str()}, read_run);
}

std::optional<RunRow> run_at(sql::Reader& reader, std::int64_t experiment, std::int64_t place) {
  return reader.first(
      "SELECT r.experiment, r.place, r.run_id, r.name, r.user_id, r.status, r.start_ms, r.end_ms, r.stage, e.number,"
      " (SELECT COUNT(*) FROM track_unimaged u WHERE u.experiment = r.experiment AND u.chunk = r.place / 1024"
      " AND u.place = r.place)"
      " FROM track_run r JOIN track_experiment e ON e.id = r.experiment WHERE r.experiment = ? AND r.place = ?",
      {experiment, place}, read_run);
}

RunRow need_run(sql::Reader& reader, const Where& where, const std::string& run_id) {
  auto found = find_run(reader, where, run_id);
  if (!found) throw Error(Code::not_found, fmt::format("no run with id '{}' in this project", run_id.substr(0, 64)));
  return *found;
}

RunRow need_active_run(sql::Reader& reader, const Where& where, const std::string& run_id) {
  auto row = need_run(reader, where, run_id);
  if (row.info.stage != Stage::active)
    throw Error(Code::invalid, fmt::format("the run {} is deleted: restore it first", run_id));
  return row;
}

Run load_run(sql::Reader& reader, const RunRow& row) {
  Run run;
  run.info = row.info;
  const auto pair = [](const sql::Row& r) { return KeyValue{std::string(r.text(0)), std::string(r.text(1))}; };
  run.params = reader.all("SELECT key, value FROM track_param WHERE experiment = ? AND place = ? ORDER BY key",
                          {row.experiment, row.place}, pair);
  run.tags = reader.all("SELECT key, value FROM track_tag WHERE experiment = ? AND place = ? ORDER BY key",
                        {row.experiment, row.place}, pair);
  reader.query(
      "SELECT key, value, unix_ms, step, model, dataset, digest FROM track_metric WHERE experiment = ? AND place = ?"
      " ORDER BY key",
      {row.experiment, row.place}, [&](const sql::Row& r) {
        Metric metric{std::string(r.text(0)),
                      {r.integer(2), r.integer(3), r.is_null(1) ? std::nan("") : r.real(1)},
                      std::string(r.text(4)),
                      std::string(r.text(5)),
                      std::string(r.text(6))};
        // Of several series of one key a run shows the newest point.
        if (!run.metrics.empty() && run.metrics.back().key == metric.key) {
          if (newer(metric.point, run.metrics.back().point)) run.metrics.back() = std::move(metric);
        } else {
          run.metrics.push_back(std::move(metric));
        }
      });
  reader.query(
      "SELECT d.name, d.digest, d.source_type, d.source, d.schema, d.profile, i.tags FROM track_input i"
      " JOIN track_dataset d ON d.id = i.dataset WHERE i.experiment = ? AND i.place = ? ORDER BY i.dataset",
      {row.experiment, row.place}, [&](const sql::Row& r) {
        DatasetInput input;
        int column = 0;
        for (auto* text : {&input.dataset.name, &input.dataset.digest, &input.dataset.source_type,
                           &input.dataset.source, &input.dataset.schema, &input.dataset.profile})
          *text = r.text(column++);
        const auto tags = parse_json(r.text(6));
        for (const auto& [key, value] : tags.as_object())
          input.tags.push_back({std::string(key), std::string(value.as_string())});
        run.datasets.push_back(std::move(input));
      });
  reader.query("SELECT way, model, step FROM track_model_link WHERE experiment = ? AND place = ?",
               {row.experiment, row.place}, [&](const sql::Row& r) {
                 if (r.text(0) == "in")
                   run.model_inputs.emplace_back(r.text(1));
                 else
                   run.model_outputs.push_back({std::string(r.text(1)), r.integer(2)});
               });
  return run;
}

}  // namespace falaj::track
