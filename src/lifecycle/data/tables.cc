// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/tables.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/crypto/hash.h"

namespace falaj::data {
namespace {

// A version lists files, and versions that were appended to one another share them.
constexpr sql::Migration kMigrations[] = {
    {1, "data",
     "CREATE TABLE data_counter(name TEXT PRIMARY KEY, value BIGINT NOT NULL);"
     "CREATE TABLE data_set(id BIGINT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL,"
     " last_version BIGINT NOT NULL);"
     "CREATE UNIQUE INDEX data_set_name ON data_set(tenant, project, name);"
     "CREATE TABLE data_version(dataset BIGINT NOT NULL REFERENCES data_set(id), number BIGINT NOT NULL,"
     " id BYTEA NOT NULL, major BIGINT NOT NULL, mode TEXT NOT NULL, parent BIGINT, schema TEXT NOT NULL,"
     " rows BIGINT NOT NULL, bytes BIGINT NOT NULL, stats TEXT NOT NULL, warnings TEXT NOT NULL, source TEXT NOT NULL,"
     " created_us BIGINT NOT NULL, created_by TEXT NOT NULL, PRIMARY KEY(dataset, number));"
     "CREATE TABLE data_file(id BIGINT PRIMARY KEY, dataset BIGINT NOT NULL, name TEXT NOT NULL,"
     " part TEXT NOT NULL, rows BIGINT NOT NULL, bytes BIGINT NOT NULL, first_us BIGINT, last_us BIGINT,"
     " content BYTEA NOT NULL);"
     "CREATE UNIQUE INDEX data_file_name ON data_file(dataset, name);"
     "CREATE TABLE data_version_file(dataset BIGINT NOT NULL, number BIGINT NOT NULL, place BIGINT NOT NULL,"
     " file BIGINT NOT NULL REFERENCES data_file(id), PRIMARY KEY(dataset, number, place));"
     "CREATE INDEX data_version_file_file ON data_version_file(file);"
     "CREATE TABLE data_ingest(id TEXT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL, dataset TEXT NOT NULL,"
     " created_us BIGINT NOT NULL, created_by TEXT NOT NULL, version BIGINT);"
     "CREATE INDEX data_ingest_where ON data_ingest(tenant, project, created_us)"},
    // A dataset that is declared no more keeps its row: numbers of its versions are not given again.
    {2, "data", "ALTER TABLE data_set ADD COLUMN gone BIGINT NOT NULL DEFAULT 0"},
    {3, "data",
     "CREATE TABLE data_check(id BIGINT PRIMARY KEY, dataset BIGINT NOT NULL REFERENCES data_set(id), version BIGINT,"
     " at_us BIGINT NOT NULL, result TEXT NOT NULL);"
     "CREATE INDEX data_check_version ON data_check(dataset, version)"},
    // data_input: what a version was made of. data_dropped: objects whose names were taken away, and which hold rows
    // until they are collected. A version that is erased keeps its row, and files (`keys`) that only tell whose rows it
    // had: a later erasure must know what was made of them.
    {4, "data",
     "CREATE TABLE data_input(dataset BIGINT NOT NULL, number BIGINT NOT NULL, place BIGINT NOT NULL,"
     " of_dataset BIGINT NOT NULL, of_number BIGINT NOT NULL, columns TEXT NOT NULL,"
     " PRIMARY KEY(dataset, number, place));"
     "CREATE INDEX data_input_of ON data_input(of_dataset, of_number);"
     "ALTER TABLE data_version ADD COLUMN erased_us BIGINT;"
     "ALTER TABLE data_version ADD COLUMN replaced_by BIGINT;"
     "ALTER TABLE data_version ADD COLUMN erasure TEXT;"
     "ALTER TABLE data_file ADD COLUMN keys BIGINT NOT NULL DEFAULT 0;"
     "CREATE TABLE data_dropped(tenant TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL, zone TEXT NOT NULL,"
     " address BYTEA NOT NULL, at_us BIGINT NOT NULL, PRIMARY KEY(tenant, project, name, zone, address));"
     "CREATE TABLE data_erasure(id TEXT PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL, kind TEXT NOT NULL,"
     " subject BYTEA NOT NULL, sealed BYTEA, state TEXT NOT NULL, begun_us BIGINT NOT NULL, done_us BIGINT,"
     " begun_by TEXT NOT NULL, report TEXT NOT NULL);"
     "CREATE INDEX data_erasure_where ON data_erasure(tenant, project, begun_us)"},
    {5, "data",
     "ALTER TABLE data_version ADD COLUMN model TEXT;"
     "ALTER TABLE data_version ADD COLUMN model_version BIGINT;"
     "CREATE INDEX data_version_model ON data_version(model, model_version)"},
};

Version version_of(const sql::Row& row, std::int64_t dataset, const std::string& name) {
  Version v;
  v.dataset = name;
  v.row = dataset;
  v.number = row.integer(0);
  v.id = row.digest(1);
  v.major = row.integer(2);
  v.mode = row.text(3) == "append" ? Mode::append : Mode::overwrite;
  if (!row.is_null(4)) v.parent = row.integer(4);
  v.schema = parse_schema(row.text(5));
  v.rows = row.integer(6);
  v.bytes = row.integer(7);
  v.stats = decode<std::vector<ColumnStats>>(parse_json(row.text(8)), "reading statistics");
  v.warnings = decode<std::vector<std::string>>(parse_json(row.text(9)), "reading warnings");
  v.source = row.text(10);
  v.created_us = row.integer(11);
  v.created_by = row.text(12);
  if (!row.is_null(13)) {
    v.erased = Erased{row.integer(13), std::nullopt};
    if (!row.is_null(14)) v.erased->replaced_by = row.integer(14);
  }
  if (!row.is_null(15)) v.answered_by = AnsweredBy{std::string(row.text(15)), row.integer(16)};
  return v;
}

}  // namespace

std::span<const sql::Migration> data_migrations() { return kMigrations; }

std::int64_t next_number(sql::Writer& w, std::string_view what) {
  w.execute(
      "INSERT INTO data_counter(name, value) VALUES(?, 1) ON CONFLICT(name) DO UPDATE SET value = data_counter.value + "
      "1",
      {what});
  return *w.first("SELECT value FROM data_counter WHERE name = ?", {what},
                  [](const sql::Row& row) { return row.integer(0); });
}

void add_dataset(sql::Writer& w, const std::string& tenant, const std::string& project, const std::string& name) {
  // A dataset that was removed and is declared again goes on counting: a version number never means two things.
  const auto there = w.first("SELECT id FROM data_set WHERE tenant = ? AND project = ? AND name = ?",
                             {tenant, project, name}, [](const sql::Row& row) { return row.integer(0); });
  if (there) {
    w.execute("UPDATE data_set SET gone = 0 WHERE id = ?", {*there});
    return;
  }
  w.execute("INSERT INTO data_set(id, tenant, project, name, last_version) VALUES(?, ?, ?, ?, 0)",
            {next_number(w, "dataset"), tenant, project, name});
}

void remove_empty_dataset(sql::Writer& w, const std::string& tenant, const std::string& project,
                          const std::string& name) {
  const auto versions = w.first(
      "SELECT COUNT(*) FROM data_version v JOIN data_set d ON d.id = v.dataset"
      " WHERE d.tenant = ? AND d.project = ? AND d.name = ?",
      {tenant, project, name}, [](const sql::Row& row) { return row.integer(0); });
  if (versions.value_or(0) > 0)
    throw Error(Code::conflict, fmt::format("dataset '{}' has {} versions; 'falaj dataset rm {}' removes them with it",
                                            name, *versions, name));
  w.execute("UPDATE data_set SET gone = 1 WHERE tenant = ? AND project = ? AND name = ?", {tenant, project, name});
}

std::optional<std::int64_t> dataset_row(sql::Reader& r, const Where& where, const std::string& name) {
  return r.first("SELECT id FROM data_set WHERE tenant = ? AND project = ? AND name = ? AND gone = 0",
                 {where.tenant.str(), where.project.str(), name}, [](const sql::Row& row) { return row.integer(0); });
}

std::int64_t need_dataset(sql::Reader& r, const Where& where, const std::string& name) {
  const auto row = dataset_row(r, where, name);
  if (!row) throw Error(Code::not_found, fmt::format("no dataset named '{}' in this project", name.substr(0, 80)));
  return *row;
}

std::optional<Version> find_version(sql::Reader& r, std::int64_t dataset, const std::string& name,
                                    std::int64_t number) {
  auto found = r.first(
      "SELECT number, id, major, mode, parent, schema, rows, bytes, stats, warnings, source, created_us, created_by,"
      " erased_us, replaced_by, model, model_version FROM data_version WHERE dataset = ? AND number = ?",
      {dataset, number}, [&](const sql::Row& row) { return version_of(row, dataset, name); });
  if (found) found->inputs = version_inputs(r, dataset, number);
  return found;
}

std::optional<Version> newest_version(sql::Reader& r, std::int64_t dataset, const std::string& name) {
  const auto number =
      r.first("SELECT number FROM data_version WHERE dataset = ? AND erased_us IS NULL ORDER BY number DESC LIMIT 1",
              {dataset}, [](const sql::Row& row) { return row.integer(0); });
  return number ? find_version(r, dataset, name, *number) : std::nullopt;
}

std::vector<Version> list_versions(sql::Reader& r, std::int64_t dataset, const std::string& name, std::int64_t below,
                                   std::int64_t limit) {
  auto out = r.all(
      "SELECT number, id, major, mode, parent, schema, rows, bytes, stats, warnings, source, created_us, created_by,"
      " erased_us, replaced_by, model, model_version FROM data_version WHERE dataset = ? AND number < ? ORDER BY "
      "number DESC LIMIT ?",
      {dataset, below, limit}, [&](const sql::Row& row) { return version_of(row, dataset, name); });
  for (auto& version : out) version.inputs = version_inputs(r, dataset, version.number);
  return out;
}

std::vector<Input> version_inputs(sql::Reader& r, std::int64_t dataset, std::int64_t number) {
  return r.all(
      "SELECT d.name, i.of_dataset, i.of_number, i.columns FROM data_input i JOIN data_set d ON d.id = i.of_dataset"
      " WHERE i.dataset = ? AND i.number = ? ORDER BY i.place",
      {dataset, number}, [](const sql::Row& row) {
        return Input{std::string(row.text(0)), row.integer(1), row.integer(2),
                     decode<std::vector<std::string>>(parse_json(row.text(3)), "reading columns")};
      });
}

std::vector<File> version_files(sql::Reader& r, std::int64_t dataset, std::int64_t number) {
  return r.all(
      "SELECT f.id, f.name, f.part, f.rows, f.bytes, f.first_us, f.last_us, f.content, f.keys FROM data_version_file v"
      " JOIN data_file f ON f.id = v.file WHERE v.dataset = ? AND v.number = ? ORDER BY v.place",
      {dataset, number}, [](const sql::Row& row) {
        File f;
        f.id = row.integer(0);
        f.name = row.text(1);
        f.partition = row.text(2);
        f.rows = row.integer(3);
        f.bytes = row.integer(4);
        if (!row.is_null(5)) f.first_us = row.integer(5);
        if (!row.is_null(6)) f.last_us = row.integer(6);
        f.content = row.digest(7);
        f.keys = row.integer(8) != 0;
        return f;
      });
}

void insert_file(sql::Writer& w, std::int64_t dataset, File& f) {
  const auto optional = [](const auto& value) { return value ? sql::Param(*value) : sql::Param(sql::Null{}); };
  f.id = next_number(w, "file");
  w.execute(
      "INSERT INTO data_file(id, dataset, name, part, rows, bytes, first_us, last_us, content, keys)"
      " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {f.id, dataset, f.name, f.partition, f.rows, f.bytes, optional(f.first_us), optional(f.last_us), f.content.view(),
       std::int64_t{f.keys ? 1 : 0}});
}

void insert_version(sql::Writer& w, Version& v, std::vector<File>& files) {
  const auto last = w.first("SELECT last_version FROM data_set WHERE id = ?", {v.row},
                            [](const sql::Row& row) { return row.integer(0); });
  v.number = last.value_or(0) + 1;
  w.execute("UPDATE data_set SET last_version = ? WHERE id = ?", {v.number, v.row});
  const auto schema = schema_json(v.schema), stats = json::serialize(encode(v.stats)),
             warnings = json::serialize(encode(v.warnings));
  const auto optional = [](const auto& value) { return value ? sql::Param(*value) : sql::Param(sql::Null{}); };
  w.execute(
      "INSERT INTO data_version(dataset, number, id, major, mode, parent, schema, rows, bytes, stats, warnings, source,"
      " created_us, created_by, model, model_version) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {v.row, v.number, v.id.view(), v.major, name(v.mode), optional(v.parent), schema, v.rows, v.bytes, stats,
       warnings, v.source, v.created_us, v.created_by,
       v.answered_by ? sql::Param(v.answered_by->model) : sql::Param(sql::Null{}),
       v.answered_by ? sql::Param(v.answered_by->version) : sql::Param(sql::Null{})});
  for (std::size_t i = 0; i < v.inputs.size(); ++i)
    w.execute("INSERT INTO data_input(dataset, number, place, of_dataset, of_number, columns) VALUES(?, ?, ?, ?, ?, ?)",
              {v.row, v.number, static_cast<std::int64_t>(i), v.inputs[i].row, v.inputs[i].number,
               json::serialize(encode(v.inputs[i].columns))});
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto& f = files[i];
    if (f.id == 0) insert_file(w, v.row, f);
    w.execute("INSERT INTO data_version_file(dataset, number, place, file) VALUES(?, ?, ?, ?)",
              {v.row, v.number, static_cast<std::int64_t>(i), f.id});
  }
}

std::vector<std::string> delete_version(sql::Writer& w, std::int64_t dataset, std::int64_t number) {
  const auto mine = version_files(w, dataset, number);
  w.execute("DELETE FROM data_version_file WHERE dataset = ? AND number = ?", {dataset, number});
  w.execute("DELETE FROM data_check WHERE dataset = ? AND version = ?", {dataset, number});
  w.execute("DELETE FROM data_input WHERE dataset = ? AND number = ?", {dataset, number});
  w.execute("DELETE FROM data_version WHERE dataset = ? AND number = ?", {dataset, number});
  std::vector<std::string> gone;
  for (const auto& f : mine) {
    // What is left of an erased version does not keep rows: only files that are made for that.
    const auto used = w.first(
        "SELECT 1 FROM data_version_file l JOIN data_version v ON v.dataset = l.dataset AND v.number = l.number"
        " WHERE l.file = ? AND (v.erased_us IS NULL OR ? = 1) LIMIT 1",
        {f.id, std::int64_t{f.keys ? 1 : 0}}, [](const sql::Row&) { return true; });
    if (used) continue;
    w.execute("DELETE FROM data_version_file WHERE file = ?", {f.id});
    w.execute("DELETE FROM data_file WHERE id = ?", {f.id});
    gone.push_back(f.name);
  }
  return gone;
}

void need_whole(sql::Reader& r, const Input& input) {
  const auto there = r.first("SELECT erased_us FROM data_version WHERE dataset = ? AND number = ?",
                             {input.row, input.number}, [](const sql::Row& row) { return row.is_null(0); });
  if (!there.value_or(false))
    throw Error(Code::conflict, fmt::format("version {} of '{}', of which this is made, is {}: make it of a newer one",
                                            input.number, input.dataset, there ? "erased" : "removed"));
}

std::string resource_name(const Where& where, const std::string& dataset, std::int64_t number) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "dataset", fmt::format("{}@{}", dataset, number))
      .str();
}

Digest version_id(const table::Schema& schema, const std::vector<File>& files) {
  ByteWriter out;
  out.text("falaj dataset version 1");
  out.text(schema_json(schema));
  for (const auto& file : files) out.raw(file.content.view());
  return crypto::sha256(out.bytes());
}

std::string schema_json(const table::Schema& schema) {
  json::array out;
  for (const auto& c : schema)
    out.push_back(json::object{{"name", c.name}, {"type", table::name(c.type)}, {"nullable", c.nullable}});
  return json::serialize(out);
}

table::Schema parse_schema(std::string_view text) {
  table::Schema out;
  for (const auto& c : decode<std::vector<ColumnSpec>>(parse_json(text), "reading a schema"))
    out.push_back({c.name, table::parse_type(c.type).value(), c.nullable});
  return out;
}

}  // namespace falaj::data
