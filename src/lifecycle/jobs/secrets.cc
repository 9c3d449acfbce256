// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/secrets.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/crypto/aead.h"
#include "foundation/crypto/hash.h"

namespace falaj::jobs {
namespace {

constexpr sql::Migration kSecretMigrations[] = {
    {1, "job_secrets",
     "CREATE TABLE job_secret(tenant TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL, sealed BYTEA NOT NULL,"
     " created_us BIGINT NOT NULL, changed_us BIGINT NOT NULL, changed_by TEXT NOT NULL,"
     " PRIMARY KEY(tenant, project, name)) CLUSTERED"},
};

// A sealed value put into another row does not open there.
Bytes secret_header(const Where& where, const std::string& name) {
  return to_bytes(fmt::format("job secret {}/{}/{}", where.tenant.str(), where.project.str(), name));
}

std::string secret_scope(const Where& where, const std::string& name) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "secret", name).str();
}

}  // namespace

std::span<const sql::Migration> Secrets::migrations() { return kSecretMigrations; }

const crypto::Key& Secrets::key() const {
  if (!key_) throw Error(Code::unavailable, "secrets: this server has no key for them");
  return *key_;
}

void Secrets::put(sql::Writer& writer, const Where& where, const std::string& name, const std::string& value,
                  const std::string& by) {
  if (!is_name(name)) throw Error(Code::invalid, fmt::format("name: must be {}", kNameRule));
  if (value.empty() || value.size() > kSecretBytesMax || value.find('\0') != std::string::npos)
    throw Error(Code::invalid, fmt::format("value: must be 1 to {} bytes without a zero byte", kSecretBytesMax));
  const std::string_view tenant(where.tenant.str()), project(where.project.str());
  const auto many =
      writer.first("SELECT COUNT(*) FROM job_secret WHERE tenant = ? AND project = ? AND name <> ?",
                   {tenant, project, std::string_view(name)}, [](const sql::Row& row) { return row.integer(0); });
  if (many && *many >= static_cast<std::int64_t>(kSecretsMax))
    throw Error(Code::exhausted, fmt::format("a project has at most {} secrets", kSecretsMax));
  const auto sealed = crypto::seal(key(), secret_header(where, name), as_bytes(value));
  const auto now = clock_.wall().count();
  writer.execute(
      "INSERT INTO job_secret(tenant, project, name, sealed, created_us, changed_us, changed_by)"
      " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, project, name) DO UPDATE SET sealed = excluded.sealed,"
      " changed_us = excluded.changed_us, changed_by = excluded.changed_by",
      {tenant, project, std::string_view(name), BytesView(sealed), now, now, std::string_view(by)});
  writer.record(
      {secret_scope(where, name), std::nullopt, crypto::sha256(sealed)});  // of what is stored, not of the value
}

void Secrets::remove(sql::Writer& writer, const Where& where, const std::string& name) {
  const auto gone = writer.execute(
      "DELETE FROM job_secret WHERE tenant = ? AND project = ? AND name = ?",
      {std::string_view(where.tenant.str()), std::string_view(where.project.str()), std::string_view(name)});
  if (gone == 0) throw Error(Code::not_found, fmt::format("no secret '{}' in this project", name.substr(0, 64)));
  writer.record({secret_scope(where, name), std::nullopt, std::nullopt});
}

std::vector<SecretInfo> Secrets::list(const Where& where) const {
  return database_.read([&](sql::Reader& reader) {
    return reader.all(
        "SELECT name, changed_by, created_us, changed_us FROM job_secret WHERE tenant = ? AND project = ? ORDER BY "
        "name",
        {std::string_view(where.tenant.str()), std::string_view(where.project.str())}, [](const sql::Row& row) {
          return SecretInfo{std::string(row.text(0)), std::string(row.text(1)), row.integer(2), row.integer(3)};
        });
  });
}

bool Secrets::has(const Where& where, const std::string& name) const {
  for (const auto& info : list(where))
    if (info.name == name) return true;
  return false;
}

std::string Secrets::reveal(const Where& where, const std::string& name) const {
  const auto sealed = database_.read([&](sql::Reader& reader) {
    return reader.first(
        "SELECT sealed FROM job_secret WHERE tenant = ? AND project = ? AND name = ?",
        {std::string_view(where.tenant.str()), std::string_view(where.project.str()), std::string_view(name)},
        [](const sql::Row& row) { return Bytes(row.bytes(0).begin(), row.bytes(0).end()); });
  });
  if (!sealed) throw Error(Code::not_found, fmt::format("no secret '{}' in this project", name));
  return std::string(as_text(crypto::open(key(), secret_header(where, name), *sealed)));
}

}  // namespace falaj::jobs
