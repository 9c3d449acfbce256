// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/models/tables.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/models/registry.h"
#include "lifecycle/track/names.h"
#include "lifecycle/track/tables.h"

namespace falaj::models {

namespace {

// Deleted models and versions keep their rows: what an alias pointed at, who promoted it and what it was made of can
// still be asked, and no number is used again. `touches` counts changes of a version since it was made.
constexpr sql::Migration kMigrations[] = {
    {1, "models",
     "CREATE TABLE models_model(id BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL,"
     " description TEXT NOT NULL, created_by TEXT NOT NULL, created_ms BIGINT NOT NULL, updated_ms BIGINT NOT NULL,"
     " deleted_us BIGINT, versions BIGINT NOT NULL, needs_approval BIGINT NOT NULL);"
     "CREATE UNIQUE INDEX models_model_name ON models_model(tenant, project, name) WHERE deleted_us IS NULL;"
     "CREATE INDEX models_model_any_name ON models_model(tenant, project, name);"
     "CREATE TABLE models_model_tag(model BIGINT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
     " PRIMARY KEY(model, key)) CLUSTERED;"
     "CREATE TABLE models_version(model BIGINT NOT NULL REFERENCES models_model(id), version BIGINT NOT NULL,"
     " created_by TEXT NOT NULL, created_ms BIGINT NOT NULL, updated_ms BIGINT NOT NULL, deleted_us BIGINT,"
     " touches BIGINT NOT NULL, stage TEXT NOT NULL, description TEXT NOT NULL, source TEXT NOT NULL,"
     " run_id TEXT NOT NULL, run_link TEXT NOT NULL, model_id TEXT NOT NULL, origin_run TEXT NOT NULL, pin TEXT NOT "
     "NULL,"
     " PRIMARY KEY(model, version)) CLUSTERED;"
     "CREATE INDEX models_version_run ON models_version(run_id) WHERE run_id <> '';"
     "CREATE INDEX models_version_origin ON models_version(origin_run) WHERE origin_run <> '';"
     "CREATE INDEX models_version_logged ON models_version(model_id) WHERE model_id <> '';"
     "CREATE TABLE models_version_tag(model BIGINT NOT NULL, version BIGINT NOT NULL, key TEXT NOT NULL,"
     " value TEXT NOT NULL, PRIMARY KEY(model, version, key)) CLUSTERED;"
     "CREATE INDEX models_version_tag_key ON models_version_tag(model, key, version);"
     "CREATE TABLE models_manifest(model BIGINT NOT NULL, version BIGINT NOT NULL, manifest TEXT NOT NULL,"
     " signature BYTEA NOT NULL, PRIMARY KEY(model, version));"
     "CREATE TABLE models_file(model BIGINT NOT NULL, version BIGINT NOT NULL, path TEXT NOT NULL, zone TEXT NOT NULL,"
     " address BYTEA NOT NULL, bytes BIGINT NOT NULL, content BYTEA NOT NULL, created_us BIGINT NOT NULL,"
     " created_by TEXT NOT NULL, PRIMARY KEY(model, version, path)) CLUSTERED;"
     "CREATE TABLE models_alias(model BIGINT NOT NULL, alias TEXT NOT NULL, version BIGINT NOT NULL,"
     " PRIMARY KEY(model, alias)) CLUSTERED;"
     "CREATE TABLE models_alias_change(id BIGINT PRIMARY KEY, model BIGINT NOT NULL, alias TEXT NOT NULL,"
     " version BIGINT, at_us BIGINT NOT NULL, changed_by TEXT NOT NULL, why TEXT NOT NULL, promotion BIGINT);"
     "CREATE INDEX models_alias_change_alias ON models_alias_change(model, alias, id);"
     "CREATE TABLE models_promotion(id BIGINT PRIMARY KEY, model BIGINT NOT NULL REFERENCES models_model(id),"
     " alias TEXT NOT NULL, version BIGINT NOT NULL, replaced BIGINT, state TEXT NOT NULL, asked_us BIGINT NOT NULL,"
     " asked_by TEXT NOT NULL, why TEXT NOT NULL, evidence TEXT NOT NULL, decided_us BIGINT, decided_by TEXT NOT NULL,"
     " decision TEXT NOT NULL);"
     "CREATE INDEX models_promotion_model ON models_promotion(model, id);"
     "CREATE TABLE models_webhook(id BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " webhook_id TEXT NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL, url TEXT NOT NULL,"
     " events TEXT NOT NULL, active BIGINT NOT NULL, secret BYTEA, created_ms BIGINT NOT NULL,"
     " updated_ms BIGINT NOT NULL);"
     "CREATE UNIQUE INDEX models_webhook_id ON models_webhook(webhook_id);"
     "CREATE INDEX models_webhook_project ON models_webhook(tenant, project, id);"
     "CREATE TABLE models_delivery(id BIGINT PRIMARY KEY, webhook BIGINT NOT NULL, delivery_id TEXT NOT NULL,"
     " event TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL, tries BIGINT NOT NULL,"
     " created_us BIGINT NOT NULL, due_us BIGINT NOT NULL, status BIGINT NOT NULL, error TEXT NOT NULL);"
     "CREATE INDEX models_delivery_due ON models_delivery(due_us, id) WHERE state = 'waiting';"
     "CREATE INDEX models_delivery_webhook ON models_delivery(webhook, state, due_us, id);"
     "CREATE INDEX models_delivery_ended ON models_delivery(created_us) WHERE state <> 'waiting'"},
    // One row: the last pass over the whole platform, and when the store was last collected by one.
    {2, "models",
     "CREATE TABLE retention_pass(id BIGINT PRIMARY KEY, at_us BIGINT NOT NULL, collected_us BIGINT NOT NULL,"
     " report TEXT NOT NULL)"},
};

ModelRow read_model(const sql::Row& row) {
  ModelRow out;
  auto& model = out.model;
  model.row = row.integer(0);
  model.name = row.text(1);
  model.description = row.text(2);
  model.created_by = row.text(3);
  model.created_ms = row.integer(4);
  model.updated_ms = row.integer(5);
  model.needs_approval = row.integer(6) != 0;
  out.versions = row.integer(7);
  return out;
}

Version read_version(const sql::Row& row) {
  Version version;
  version.model_row = row.integer(0);
  version.model = row.text(1);
  version.number = row.integer(2);
  version.created_by = row.text(3);
  version.created_ms = row.integer(4);
  version.updated_ms = row.integer(5);
  version.stage = parse_stage(row.text(6)).value_or(Stage::none);
  version.description = row.text(7);
  version.source = row.text(8);
  version.run_id = row.text(9);
  version.run_link = row.text(10);
  version.model_id = row.text(11);
  version.origin_run = row.text(12);
  return version;
}

KeyValue read_pair(const sql::Row& row) { return {std::string(row.text(0)), std::string(row.text(1))}; }

}  // namespace

std::span<const sql::Migration> Registry::migrations() { return kMigrations; }

std::optional<ModelRow> find_model(sql::Reader& reader, const Where& where, const std::string& name) {
  return reader.first(
      "SELECT id, name, description, created_by, created_ms, updated_ms, needs_approval, versions FROM models_model"
      " WHERE tenant = ? AND project = ? AND name = ? AND deleted_us IS NULL",
      {where.tenant.str(), where.project.str(), name}, read_model);
}

ModelRow need_model(sql::Reader& reader, const Where& where, const std::string& name) {
  auto found = find_model(reader, where, name);
  if (!found)
    throw Error(Code::not_found,
                fmt::format("no registered model '{}' in this project", track::shortened(name, kNameMax)));
  return *found;
}

ModelRow need_model(sql::Reader& reader, const Where& where, std::int64_t row) {
  auto found = reader.first(
      "SELECT id, name, description, created_by, created_ms, updated_ms, needs_approval, versions FROM models_model"
      " WHERE id = ? AND tenant = ? AND project = ? AND deleted_us IS NULL",
      {row, where.tenant.str(), where.project.str()}, read_model);
  if (!found) throw Error(Code::not_found, "no such registered model in this project");
  return *found;
}

std::vector<Model> models_of(sql::Reader& reader, const Where& where) {
  return reader.all(
      "SELECT id, name, description, created_by, created_ms, updated_ms, needs_approval, versions FROM models_model"
      " WHERE tenant = ? AND project = ? AND deleted_us IS NULL ORDER BY name",
      {where.tenant.str(), where.project.str()}, [](const sql::Row& row) { return read_model(row).model; });
}

Model load_model(sql::Reader& reader, Model model) {
  model.tags =
      reader.all("SELECT key, value FROM models_model_tag WHERE model = ? ORDER BY key", {model.row}, read_pair);
  model.aliases = reader.all("SELECT alias, version FROM models_alias WHERE model = ? ORDER BY alias", {model.row},
                             [](const sql::Row& row) {
                               return Alias{std::string(row.text(0)), row.integer(1)};
                             });
  model.latest = latest_of(reader, model, {});
  return model;
}

Version need_version(sql::Reader& reader, const Model& model, std::int64_t number) {
  auto found = reader.first(
      "SELECT v.model, m.name, v.version, v.created_by, v.created_ms, v.updated_ms, v.stage, v.description, v.source,"
      " v.run_id, v.run_link, v.model_id, v.origin_run FROM models_version v JOIN models_model m ON m.id = v.model"
      " WHERE v.model = ? AND v.version = ? AND v.deleted_us IS NULL",
      {model.row, number}, read_version);
  if (!found) throw Error(Code::not_found, fmt::format("model '{}' has no version {}", model.name, number));
  return *found;
}

std::optional<Version> newest_version(sql::Reader& reader, const Model& model) {
  return reader.first(
      "SELECT v.model, m.name, v.version, v.created_by, v.created_ms, v.updated_ms, v.stage, v.description, v.source,"
      " v.run_id, v.run_link, v.model_id, v.origin_run FROM models_version v JOIN models_model m ON m.id = v.model"
      " WHERE v.model = ? AND v.deleted_us IS NULL ORDER BY v.version DESC LIMIT 1",
      {model.row}, read_version);
}

std::vector<Version> versions_of(sql::Reader& reader, const Where& where, const Model* model) {
  if (model)
    return reader.all(
        "SELECT v.model, m.name, v.version, v.created_by, v.created_ms, v.updated_ms, v.stage, v.description, v.source,"
        " v.run_id, v.run_link, v.model_id, v.origin_run FROM models_version v JOIN models_model m ON m.id = v.model"
        " WHERE v.model = ? AND v.deleted_us IS NULL ORDER BY v.version",
        {model->row}, read_version);
  return reader.all(
      "SELECT v.model, m.name, v.version, v.created_by, v.created_ms, v.updated_ms, v.stage, v.description, v.source,"
      " v.run_id, v.run_link, v.model_id, v.origin_run FROM models_version v JOIN models_model m ON m.id = v.model"
      " WHERE m.tenant = ? AND m.project = ? AND m.deleted_us IS NULL AND v.deleted_us IS NULL"
      " ORDER BY m.name, v.version",
      {where.tenant.str(), where.project.str()}, read_version);
}

Version load_version(sql::Reader& reader, Version version) {
  version.tags = reader.all("SELECT key, value FROM models_version_tag WHERE model = ? AND version = ? ORDER BY key",
                            {version.model_row, version.number}, read_pair);
  version.aliases =
      reader.all("SELECT alias FROM models_alias WHERE model = ? AND version = ? ORDER BY alias",
                 {version.model_row, version.number}, [](const sql::Row& row) { return std::string(row.text(0)); });
  return version;
}

// A search may find thousands: two queries for all of them instead of two for each.
void load_versions(sql::Reader& reader, const Where& where, const Model* model, std::vector<Version>& versions) {
  constexpr std::size_t kFew = 20;
  if (versions.size() <= kFew) {
    for (auto& version : versions) version = load_version(reader, std::move(version));
    return;
  }
  std::map<std::pair<std::int64_t, std::int64_t>, Version*> at;
  for (auto& version : versions) at[{version.model_row, version.number}] = &version;
  const auto find = [&](const sql::Row& row) {
    const auto found = at.find({row.integer(0), row.integer(1)});
    return found == at.end() ? nullptr : found->second;
  };
  const auto put_tag = [&](const sql::Row& row) {
    if (auto* version = find(row)) version->tags.push_back({std::string(row.text(2)), std::string(row.text(3))});
  };
  const auto put_alias = [&](const sql::Row& row) {
    if (auto* version = find(row)) version->aliases.emplace_back(row.text(2));
  };
  if (model) {
    reader.query("SELECT model, version, key, value FROM models_version_tag WHERE model = ? ORDER BY version, key",
                 {model->row}, put_tag);
    reader.query("SELECT model, version, alias FROM models_alias WHERE model = ? ORDER BY alias", {model->row},
                 put_alias);
    return;
  }
  reader.query(
      "SELECT t.model, t.version, t.key, t.value FROM models_model m JOIN models_version_tag t ON t.model = m.id"
      " WHERE m.tenant = ? AND m.project = ? AND m.deleted_us IS NULL ORDER BY t.model, t.version, t.key",
      {where.tenant.str(), where.project.str()}, put_tag);
  reader.query(
      "SELECT a.model, a.version, a.alias FROM models_model m JOIN models_alias a ON a.model = m.id"
      " WHERE m.tenant = ? AND m.project = ? AND m.deleted_us IS NULL ORDER BY a.model, a.alias",
      {where.tenant.str(), where.project.str()}, put_alias);
}

std::vector<Version> latest_of(sql::Reader& reader, const Model& model, const std::vector<Stage>& stages) {
  const auto numbers = reader.all(
      "SELECT stage, MAX(version) FROM models_version WHERE model = ? AND deleted_us IS NULL GROUP BY stage"
      " ORDER BY MAX(version)",
      {model.row},
      [](const sql::Row& row) { return std::pair(parse_stage(row.text(0)).value_or(Stage::none), row.integer(1)); });
  std::vector<Version> out;
  for (const auto& [stage, number] : numbers)
    if (stages.empty() || std::find(stages.begin(), stages.end(), stage) != stages.end())
      out.push_back(load_version(reader, need_version(reader, model, number)));
  return out;
}

std::optional<std::int64_t> alias_target(sql::Reader& reader, std::int64_t model_row, const std::string& alias) {
  return reader.first("SELECT version FROM models_alias WHERE model = ? AND alias = ?", {model_row, alias},
                      [](const sql::Row& row) { return row.integer(0); });
}

void change_alias(sql::Writer& writer, std::int64_t model_row, const std::string& alias,
                  std::optional<std::int64_t> version, const AliasCause& cause) {
  if (version)
    writer.execute(
        "INSERT INTO models_alias(model, alias, version) VALUES (?, ?, ?)"
        " ON CONFLICT (model, alias) DO UPDATE SET version = excluded.version",
        {model_row, alias, *version});
  else
    writer.execute("DELETE FROM models_alias WHERE model = ? AND alias = ?", {model_row, alias});
  // The clock may have been set back; history must not go back with it.
  const auto last =
      writer.first("SELECT at_us FROM models_alias_change WHERE model = ? AND alias = ? ORDER BY id DESC LIMIT 1",
                   {model_row, alias}, [](const sql::Row& row) { return row.integer(0); });
  writer.execute(
      "INSERT INTO models_alias_change(id, model, alias, version, at_us, changed_by, why, promotion)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      {track::next_number(writer, "alias change"), model_row, alias, track::nullable(version),
       std::max(cause.at_us, last.value_or(0)), cause.by, cause.why, track::nullable(cause.promotion)});
  if (version)
    writer.execute("UPDATE models_version SET touches = touches + 1 WHERE model = ? AND version = ?",
                   {model_row, *version});
}

void refuse_unapproved(const Model& model) {
  if (model.needs_approval)
    throw Error(
        Code::denied,
        fmt::format("model '{}' needs approval: ask for a promotion, which somebody else approves", model.name));
}

std::optional<Digest> digest_of_alias(const std::string& alias, std::optional<std::int64_t> version) {
  if (!version) return std::nullopt;
  return crypto::sha256(fmt::format("{}\n{}", alias, *version));
}

std::vector<vault::Entry> files_of(sql::Reader& reader, std::int64_t model_row, std::int64_t number) {
  return reader.all(
      "SELECT path, address, zone, bytes, content, created_us, created_by FROM models_file"
      " WHERE model = ? AND version = ? ORDER BY path",
      {model_row, number}, [](const sql::Row& row) {
        return vault::Entry{std::string(row.text(0)),
                            {row.digest(1)},
                            ZoneName::parse(row.text(2)),
                            static_cast<std::uint64_t>(row.integer(3)),
                            row.digest(4),
                            row.integer(5),
                            std::string(row.text(6)),
                            0,
                            {}};
      });
}

std::string resource_of(const Where& where, const std::string& model) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "model", model).str();
}
std::string resource_of(const Where& where, const std::string& model, std::int64_t version) {
  return resource_of(where, fmt::format("{}/{}", model, version));
}

}  // namespace falaj::models
