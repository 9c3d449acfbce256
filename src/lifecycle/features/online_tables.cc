// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/online_tables.h"

#include "foundation/base/json.h"

namespace falaj::features {
namespace {

constexpr sql::Migration kMigrations[] = {
    {1, "features",
     "CREATE TABLE feature_online(meaning BYTEA PRIMARY KEY, tenant TEXT NOT NULL, project TEXT NOT NULL,"
     " view TEXT NOT NULL, revision BIGINT NOT NULL, dataset TEXT NOT NULL, state TEXT NOT NULL);"
     "CREATE INDEX feature_online_where ON feature_online(tenant, project, view);"
     "CREATE TABLE feature_pushed(tenant TEXT NOT NULL, project TEXT NOT NULL, dataset TEXT NOT NULL,"
     " epoch BIGINT NOT NULL, sequence BIGINT NOT NULL, flushing BIGINT NOT NULL, upload TEXT NOT NULL,"
     " waiting BIGINT NOT NULL, PRIMARY KEY(tenant, project, dataset));"
     "CREATE TABLE feature_pushed_rows(tenant TEXT NOT NULL, project TEXT NOT NULL, dataset TEXT NOT NULL,"
     " sequence BIGINT NOT NULL, epoch BIGINT NOT NULL, as_of_us BIGINT NOT NULL, rows BIGINT NOT NULL,"
     " sealed BYTEA NOT NULL, PRIMARY KEY(tenant, project, dataset, sequence));"
     "CREATE TABLE feature_push_id(tenant TEXT NOT NULL, project TEXT NOT NULL, dataset TEXT NOT NULL,"
     " id TEXT NOT NULL, sequence BIGINT NOT NULL, at_us BIGINT NOT NULL, PRIMARY KEY(tenant, project, dataset, id));"
     "CREATE INDEX feature_push_id_at ON feature_push_id(at_us);"
     "CREATE TABLE feature_flush(tenant TEXT NOT NULL, project TEXT NOT NULL, dataset TEXT NOT NULL,"
     " version BIGINT NOT NULL, epoch BIGINT NOT NULL, PRIMARY KEY(tenant, project, dataset, version));"
     "CREATE TABLE feature_store(one BIGINT PRIMARY KEY, id TEXT NOT NULL)"},
    {2, "features",
     "CREATE TABLE feature_check(tenant TEXT NOT NULL, project TEXT NOT NULL, view TEXT NOT NULL,"
     " number BIGINT NOT NULL, result TEXT NOT NULL, PRIMARY KEY(tenant, project, view, number))"},
};

Where where_of(std::string_view tenant, std::string_view project) {
  return {TenantName::parse(tenant), ProjectName::parse(project)};
}

OnlineView view_at(const sql::Row& row) {
  return {row.digest(0),
          where_of(row.text(1), row.text(2)),
          std::string(row.text(3)),
          row.integer(4),
          std::string(row.text(5)),
          decode<OnlineState>(parse_json(row.text(6)), "reading what is online")};
}

PushedSet set_of(const sql::Row& row) {
  return {where_of(row.text(0), row.text(1)),
          std::string(row.text(2)),
          row.integer(3),
          row.integer(4),
          row.integer(5),
          std::string(row.text(6)),
          row.integer(7)};
}

}  // namespace

std::span<const sql::Migration> online_migrations() { return kMigrations; }

std::optional<OnlineView> find_view(sql::Reader& r, const Digest& meaning) {
  return r.first("SELECT * FROM feature_online WHERE meaning = ?", {meaning.view()}, view_at);
}

std::vector<OnlineView> list_views(sql::Reader& r, const std::optional<Where>& where) {
  if (!where) return r.all("SELECT * FROM feature_online ORDER BY tenant, project, view, revision", {}, view_at);
  return r.all("SELECT * FROM feature_online WHERE tenant = ? AND project = ? ORDER BY view, revision",
               {where->tenant.str(), where->project.str()}, view_at);
}

void put_view(sql::Writer& w, const OnlineView& v) {
  const auto state = json::serialize(encode(static_cast<const OnlineState&>(v)));
  w.execute(
      "INSERT INTO feature_online VALUES(?, ?, ?, ?, ?, ?, ?) ON CONFLICT(meaning) DO UPDATE SET"
      " revision = excluded.revision, state = excluded.state",
      {v.meaning.view(), v.where.tenant.str(), v.where.project.str(), v.view, v.revision, v.dataset, state});
}

void delete_view(sql::Writer& w, const Digest& meaning) {
  w.execute("DELETE FROM feature_online WHERE meaning = ?", {meaning.view()});
}

std::string store_id(sql::Reader& r) {
  return r.first("SELECT id FROM feature_store", {}, [](const sql::Row& row) { return std::string(row.text(0)); })
      .value_or("");
}

void put_store_id(sql::Writer& w, const std::string& id) {
  w.execute("INSERT INTO feature_store VALUES(1, ?) ON CONFLICT(one) DO UPDATE SET id = excluded.id", {id});
}

std::optional<PushedSet> find_pushed(sql::Reader& r, const Where& where, const std::string& dataset) {
  return r.first("SELECT * FROM feature_pushed WHERE tenant = ? AND project = ? AND dataset = ?",
                 {where.tenant.str(), where.project.str(), dataset}, set_of);
}

std::vector<PushedSet> list_pushed(sql::Reader& r) {
  return r.all("SELECT * FROM feature_pushed ORDER BY tenant, project, dataset", {}, set_of);
}

void put_pushed(sql::Writer& w, const PushedSet& set) {
  w.execute(
      "INSERT INTO feature_pushed VALUES(?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(tenant, project, dataset) DO UPDATE SET"
      " epoch = excluded.epoch, sequence = excluded.sequence, flushing = excluded.flushing, upload = excluded.upload,"
      " waiting = excluded.waiting",
      {set.where.tenant.str(), set.where.project.str(), set.dataset, set.epoch, set.sequence, set.flushing, set.upload,
       set.waiting});
}

void insert_rows(sql::Writer& w, const Where& where, const std::string& dataset, const PushedRows& rows) {
  w.execute("INSERT INTO feature_pushed_rows VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
            {where.tenant.str(), where.project.str(), dataset, rows.sequence, rows.epoch, rows.as_of_us, rows.rows,
             BytesView(rows.sealed)});
}

std::vector<PushedRows> read_rows(sql::Reader& r, const Where& where, const std::string& dataset, std::int64_t after,
                                  std::int64_t through_epoch, std::int64_t limit) {
  return r.all(
      "SELECT sequence, epoch, as_of_us, rows, sealed FROM feature_pushed_rows WHERE tenant = ? AND project = ?"
      " AND dataset = ? AND sequence > ? AND epoch <= ? ORDER BY sequence LIMIT ?",
      {where.tenant.str(), where.project.str(), dataset, after, through_epoch, limit}, [](const sql::Row& row) {
        const auto sealed = row.bytes(4);
        return PushedRows{row.integer(0), row.integer(1), row.integer(2), row.integer(3),
                          Bytes(sealed.begin(), sealed.end())};
      });
}

std::int64_t last_sequence(sql::Reader& r, const Where& where, const std::string& dataset, std::int64_t through_epoch) {
  return r
      .first(
          "SELECT COALESCE(MAX(sequence), 0) FROM feature_pushed_rows WHERE tenant = ? AND project = ? AND dataset = ?"
          " AND epoch <= ?",
          {where.tenant.str(), where.project.str(), dataset, through_epoch},
          [](const sql::Row& row) { return row.integer(0); })
      .value_or(0);
}

std::int64_t delete_rows(sql::Writer& w, const Where& where, const std::string& dataset, std::int64_t through_epoch) {
  const auto rows = w.first(
      "SELECT CAST(COALESCE(SUM(rows), 0) AS BIGINT) FROM feature_pushed_rows WHERE tenant = ? AND project = ?"
      " AND dataset = ? AND epoch <= ?",
      {where.tenant.str(), where.project.str(), dataset, through_epoch},
      [](const sql::Row& row) { return row.integer(0); });
  w.execute("DELETE FROM feature_pushed_rows WHERE tenant = ? AND project = ? AND dataset = ? AND epoch <= ?",
            {where.tenant.str(), where.project.str(), dataset, through_epoch});
  return *rows;
}

std::optional<std::int64_t> find_push_id(sql::Reader& r, const Where& where, const std::string& dataset,
                                         const std::string& id) {
  return r.first("SELECT sequence FROM feature_push_id WHERE tenant = ? AND project = ? AND dataset = ? AND id = ?",
                 {where.tenant.str(), where.project.str(), dataset, id},
                 [](const sql::Row& row) { return row.integer(0); });
}

void put_push_id(sql::Writer& w, const Where& where, const std::string& dataset, const std::string& id,
                 std::int64_t sequence, std::int64_t at_us) {
  w.execute("INSERT INTO feature_push_id VALUES(?, ?, ?, ?, ?, ?)",
            {where.tenant.str(), where.project.str(), dataset, id, sequence, at_us});
}

std::int64_t delete_push_ids(sql::Writer& w, std::int64_t before_us) {
  return w.execute("DELETE FROM feature_push_id WHERE at_us < ?", {before_us});
}

void put_flush(sql::Writer& w, const Where& where, const std::string& dataset, std::int64_t version,
               std::int64_t epoch) {
  w.execute(
      "INSERT INTO feature_flush VALUES(?, ?, ?, ?, ?) ON CONFLICT(tenant, project, dataset, version) DO UPDATE"
      " SET epoch = excluded.epoch",
      {where.tenant.str(), where.project.str(), dataset, version, epoch});
}

std::int64_t covered_by(sql::Reader& r, const Where& where, const std::string& dataset, std::int64_t version) {
  return r
      .first(
          "SELECT COALESCE(MAX(epoch), 0) FROM feature_flush WHERE tenant = ? AND project = ? AND dataset = ?"
          " AND version <= ?",
          {where.tenant.str(), where.project.str(), dataset, version},
          [](const sql::Row& row) { return row.integer(0); })
      .value_or(0);
}

}  // namespace falaj::features
