// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/logged_models_tables.h"

#include <cmath>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/track/tables.h"

namespace falaj::track {

namespace {

constexpr sql::Migration kModelMigrations[] = {
    {1, "track_models",
     "CREATE TABLE track_model(id BIGINT PRIMARY KEY, experiment BIGINT NOT NULL REFERENCES track_experiment(id),"
     " model_id TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, source_run TEXT NOT NULL, status TEXT NOT NULL,"
     " stage TEXT NOT NULL, created_ms BIGINT NOT NULL, updated_ms BIGINT NOT NULL);"
     "CREATE UNIQUE INDEX track_model_id ON track_model(model_id);"
     "CREATE INDEX track_model_experiment ON track_model(experiment, id);"
     "CREATE INDEX track_model_run ON track_model(source_run) WHERE source_run <> '';"
     "CREATE TABLE track_model_param(model BIGINT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
     " PRIMARY KEY(model, key)) CLUSTERED;"
     "CREATE TABLE track_model_tag(model BIGINT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
     " PRIMARY KEY(model, key)) CLUSTERED;"
     "CREATE INDEX track_model_link_model ON track_model_link(model, way)"},
    // A leftover is where the files of something removed are, until they are gone too (removal.h).
    {2, "track_models",
     "CREATE TABLE track_leftover(tenant TEXT NOT NULL, project TEXT NOT NULL, root TEXT NOT NULL,"
     " resource TEXT NOT NULL, PRIMARY KEY(tenant, project, root));"
     "CREATE INDEX track_run_deleted ON track_run(experiment, place) WHERE stage = 'deleted';"
     "CREATE TABLE track_upload(upload_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " name TEXT NOT NULL, made_by TEXT NOT NULL, parts BIGINT NOT NULL, created_us BIGINT NOT NULL,"
     " state TEXT NOT NULL, etags BYTEA);"
     "CREATE INDEX track_upload_created ON track_upload(created_us);"
     "CREATE INDEX track_upload_open ON track_upload(tenant, project) WHERE state = 'open'"},
    // A model keeps its id when it is imported into another project.
    {3, "track_models",
     "DROP INDEX track_model_id;"
     "CREATE UNIQUE INDEX track_model_id ON track_model(model_id, experiment)"},
};

LoggedModelRow read_model(const sql::Row& row) {
  LoggedModelRow out;
  out.id = row.integer(0);
  auto& model = out.model;
  model.model_id = row.text(1);
  model.experiment = row.integer(2);
  model.name = row.text(3);
  model.type = row.text(4);
  model.source_run_id = row.text(5);
  model.status = parse_model_status(row.text(6)).value_or(ModelStatus::pending);
  model.stage = row.text(7) == "active" ? Stage::active : Stage::deleted;
  model.created_ms = row.integer(8);
  model.updated_ms = row.integer(9);
  out.experiment = row.integer(10);
  return out;
}

}  // namespace

std::span<const sql::Migration> LoggedModels::migrations() { return kModelMigrations; }

bool is_model_id(std::string_view text) {
  return text.size() == 34 && text.starts_with("m-") &&
         text.substr(2).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<LoggedModelRow> find_logged_model_row(sql::Reader& reader, const Where& where,
                                                    const std::string& model_id) {
  return reader.first(
      "SELECT m.id, m.model_id, e.number, m.name, m.type, m.source_run, m.status, m.stage, m.created_ms, m.updated_ms,"
      " m.experiment"
      " FROM track_model m JOIN track_experiment e ON e.id = m.experiment"
      " WHERE m.model_id = ? AND e.tenant = ? AND e.project = ?",
      {model_id, where.tenant.str(), where.project.str()}, read_model);
}

std::vector<LoggedModelRow> logged_models_of_run(sql::Reader& reader, const Where& where, const std::string& run_id) {
  std::set<std::string> ids;
  const auto add = [&](const sql::Row& row) { ids.emplace(row.text(0)); };
  reader.query(
      "SELECT m.model_id FROM track_model m JOIN track_experiment e ON e.id = m.experiment WHERE m.source_run = ?"
      " AND m.source_run <> '' AND e.tenant = ? AND e.project = ?",
      {run_id, where.tenant.str(), where.project.str()}, add);
  const auto run = need_run(reader, where, run_id);
  reader.query(
      "SELECT m.model_id FROM track_model_link l JOIN track_model m ON m.model_id = l.model JOIN track_experiment e ON"
      " e.id = m.experiment WHERE l.experiment = ? AND l.place = ? AND l.way = 'out' AND m.source_run = ''"
      " AND e.tenant = ? AND e.project = ?",
      {run.experiment, run.place, where.tenant.str(), where.project.str()}, add);
  std::vector<LoggedModelRow> out;
  for (const auto& id : ids) out.push_back(*find_logged_model_row(reader, where, id));
  return out;
}

std::optional<LoggedModel> find_logged_model(sql::Reader& reader, const Where& where, const std::string& model_id) {
  auto row = find_logged_model_row(reader, where, model_id);
  if (!row) return std::nullopt;
  return std::move(row->model);
}

LoggedModelRow need_logged_model(sql::Reader& reader, const Where& where, const std::string& model_id,
                                 bool deleted_too) {
  auto row = find_logged_model_row(reader, where, model_id);
  if (!row || (row->model.stage != Stage::active && !deleted_too))
    throw Error(Code::not_found, fmt::format("no logged model with id '{}' in this project", model_id.substr(0, 64)));
  return *row;
}

std::vector<LoggedModelRow> logged_models_of(sql::Reader& reader, std::int64_t experiment) {
  return reader.all(
      "SELECT m.id, m.model_id, e.number, m.name, m.type, m.source_run, m.status, m.stage, m.created_ms, m.updated_ms,"
      " m.experiment"
      " FROM track_model m JOIN track_experiment e ON e.id = m.experiment"
      " WHERE m.experiment = ? AND m.stage = 'active' ORDER BY m.id",
      {experiment}, read_model);
}

LoggedModel load_logged_model(sql::Reader& reader, const LoggedModelRow& row) {
  auto model = row.model;
  const auto pair = [](const sql::Row& r) { return KeyValue{std::string(r.text(0)), std::string(r.text(1))}; };
  model.params = reader.all("SELECT key, value FROM track_model_param WHERE model = ? ORDER BY key", {row.id}, pair);
  model.tags = reader.all("SELECT key, value FROM track_model_tag WHERE model = ? ORDER BY key", {row.id}, pair);
  // Whoever knows the id can log metrics for it: only those of its own project count. "model <> ''" lets SQLite use the
  // index that has only metrics of models.
  reader.query(
      "SELECT m.key, m.value, m.unix_ms, m.step, m.model, m.dataset, m.digest, r.run_id FROM track_metric m"
      " JOIN track_run r ON r.experiment = m.experiment AND r.place = m.place"
      " JOIN track_experiment e ON e.id = m.experiment"
      " JOIN track_experiment home ON home.id = ? AND home.tenant = e.tenant AND home.project = e.project"
      " WHERE m.model = ? AND m.model <> '' ORDER BY m.key, m.dataset, m.digest, r.run_id",
      {row.experiment, model.model_id}, [&](const sql::Row& r) {
        model.metrics.push_back({{std::string(r.text(0)),
                                  {r.integer(2), r.integer(3), r.is_null(1) ? std::nan("") : r.real(1)},
                                  std::string(r.text(4)),
                                  std::string(r.text(5)),
                                  std::string(r.text(6))},
                                 std::string(r.text(7))});
      });
  return model;
}

}  // namespace falaj::track
