// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/store.h"

#include <array>

namespace falaj::resource::store {
namespace {

constexpr std::array kMigrations = {sql::Migration{1, "resource", R"(
  CREATE TABLE resource (
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    revision BIGINT NOT NULL,
    body TEXT NOT NULL,
    digest BYTEA NOT NULL,
    created_us BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    actor TEXT NOT NULL,
    PRIMARY KEY (kind, tenant, project, name));
  CREATE TABLE resource_revision (
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    revision BIGINT NOT NULL,
    verb TEXT NOT NULL,
    body TEXT,
    digest BYTEA,
    actor TEXT NOT NULL,
    at_us BIGINT NOT NULL,
    PRIMARY KEY (kind, tenant, project, name, revision));
  CREATE TABLE resource_reference (
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    to_kind TEXT NOT NULL,
    to_tenant TEXT NOT NULL,
    to_project TEXT NOT NULL,
    to_name TEXT NOT NULL,
    PRIMARY KEY (kind, tenant, project, name, to_kind, to_tenant, to_project, to_name));
  CREATE INDEX resource_reference_to ON resource_reference (to_kind, to_tenant, to_project, to_name)
)"}};

Stored read_stored(const sql::Row& row) {
  return {read_body(row.text(0)), row.integer(1), row.digest(2),
          row.integer(3),         row.integer(4), std::string(row.text(5))};
}

Revision read_revision(const sql::Row& row) {
  Revision out{row.integer(0), std::string(row.text(1)), std::string(row.text(2)), row.integer(3), std::nullopt,
               std::nullopt};
  if (!row.is_null(4)) out.resource = read_body(row.text(4));
  if (!row.is_null(5)) out.digest = row.digest(5);
  return out;
}

// Revisions go on counting when a resource is deleted and made again, so a number always means the same thing.
std::int64_t next_revision(sql::Reader& reader, const Key& key) {
  return 1 + reader
                 .first(
                     "SELECT COALESCE(MAX(revision), 0) FROM resource_revision WHERE kind = ? AND tenant = ? AND "
                     "project = ? AND name = ?",
                     {key.kind, key.tenant, key.project, key.name}, [](const sql::Row& row) { return row.integer(0); })
                 .value_or(0);
}

}  // namespace

std::span<const sql::Migration> migrations() { return kMigrations; }

std::optional<Stored> find(sql::Reader& reader, const Key& key) {
  return reader.first(
      "SELECT body, revision, digest, created_us, at_us, actor FROM resource WHERE kind = ? AND tenant = ? AND project "
      "= ? AND "
      "name = ?",
      {key.kind, key.tenant, key.project, key.name}, read_stored);
}

std::vector<Stored> page(sql::Reader& reader, std::string_view kind, std::string_view tenant, std::string_view project,
                         const Key& after, std::int64_t most) {
  if (!project.empty())
    return reader.all(
        "SELECT body, revision, digest, created_us, at_us, actor FROM resource WHERE kind = ? AND tenant = ? AND "
        "project = ? "
        "AND (tenant, project, name) > (?, ?, ?) ORDER BY tenant, project, name LIMIT ?",
        {kind, tenant, project, after.tenant, after.project, after.name, most}, read_stored);
  if (!tenant.empty())
    return reader.all(
        "SELECT body, revision, digest, created_us, at_us, actor FROM resource WHERE kind = ? AND tenant = ? "
        "AND (tenant, project, name) > (?, ?, ?) ORDER BY tenant, project, name LIMIT ?",
        {kind, tenant, after.tenant, after.project, after.name, most}, read_stored);
  return reader.all(
      "SELECT body, revision, digest, created_us, at_us, actor FROM resource WHERE kind = ? "
      "AND (tenant, project, name) > (?, ?, ?) ORDER BY tenant, project, name LIMIT ?",
      {kind, after.tenant, after.project, after.name, most}, read_stored);
}

std::vector<Key> dependents(sql::Reader& reader, const Key& key) {
  return reader.all(
      "SELECT kind, tenant, project, name FROM resource_reference "
      "WHERE to_kind = ? AND to_tenant = ? AND to_project = ? AND to_name = ? ORDER BY kind, tenant, project, name",
      {key.kind, key.tenant, key.project, key.name}, [](const sql::Row& row) {
        return Key{std::string(row.text(0)), std::string(row.text(1)), std::string(row.text(2)),
                   std::string(row.text(3))};
      });
}

std::vector<Revision> history(sql::Reader& reader, const Key& key) {
  return reader.all(
      "SELECT revision, verb, actor, at_us, body, digest FROM resource_revision "
      "WHERE kind = ? AND tenant = ? AND project = ? AND name = ? ORDER BY revision",
      {key.kind, key.tenant, key.project, key.name}, read_revision);
}

std::optional<Revision> revision(sql::Reader& reader, const Key& key, std::int64_t revision) {
  return reader.first(
      "SELECT revision, verb, actor, at_us, body, digest FROM resource_revision "
      "WHERE kind = ? AND tenant = ? AND project = ? AND name = ? AND revision = ?",
      {key.kind, key.tenant, key.project, key.name, revision}, read_revision);
}

std::int64_t put(sql::Writer& writer, const Resource& resource, std::span<const Reference> references,
                 std::string_view actor, std::int64_t at_us) {
  const auto key = resource.key();
  const auto body = canonical(resource.body());
  const auto digest = resource.digest();
  const auto revision = next_revision(writer, key);
  const bool existed =
      writer.execute(
          "UPDATE resource SET revision = ?, body = ?, digest = ?, actor = ?, at_us = ? "
          "WHERE kind = ? AND tenant = ? AND project = ? AND name = ?",
          {revision, body, digest.view(), actor, at_us, key.kind, key.tenant, key.project, key.name}) == 1;
  if (!existed)
    writer.execute(
        "INSERT INTO resource (kind, tenant, project, name, revision, body, digest, created_us, at_us, actor) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        {key.kind, key.tenant, key.project, key.name, revision, body, digest.view(), at_us, at_us, actor});
  writer.execute(
      "INSERT INTO resource_revision (kind, tenant, project, name, revision, verb, body, digest, actor, at_us) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {key.kind, key.tenant, key.project, key.name, revision, existed ? "update" : "create", body, digest.view(), actor,
       at_us});
  writer.execute("DELETE FROM resource_reference WHERE kind = ? AND tenant = ? AND project = ? AND name = ?",
                 {key.kind, key.tenant, key.project, key.name});
  for (const auto& [to, where] : references)
    writer.execute(
        "INSERT INTO resource_reference (kind, tenant, project, name, to_kind, to_tenant, to_project, to_name) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        {key.kind, key.tenant, key.project, key.name, to.kind, to.tenant, to.project, to.name});
  return revision;
}

std::int64_t remove(sql::Writer& writer, const Key& key, std::string_view actor, std::int64_t at_us) {
  const auto revision = next_revision(writer, key);
  writer.execute("DELETE FROM resource WHERE kind = ? AND tenant = ? AND project = ? AND name = ?",
                 {key.kind, key.tenant, key.project, key.name});
  writer.execute("DELETE FROM resource_reference WHERE kind = ? AND tenant = ? AND project = ? AND name = ?",
                 {key.kind, key.tenant, key.project, key.name});
  writer.execute(
      "INSERT INTO resource_revision (kind, tenant, project, name, revision, verb, actor, at_us) "
      "VALUES (?, ?, ?, ?, ?, 'delete', ?, ?)",
      {key.kind, key.tenant, key.project, key.name, revision, actor, at_us});
  return revision;
}

}  // namespace falaj::resource::store
