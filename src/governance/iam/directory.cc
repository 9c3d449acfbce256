// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/directory.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "foundation/crypto/hash.h"

namespace falaj::iam {
namespace {

// Declared objects are served from memory and only kept here, so one table of bodies does for all of them.
constexpr std::array kMigrations = {sql::Migration{1, "iam", R"(
  CREATE TABLE iam_object (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name));
  CREATE TABLE iam_credential (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    secret_hash BYTEA NOT NULL,
    principal TEXT NOT NULL,
    name TEXT NOT NULL,
    restrictions TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    used_us BIGINT,
    revoked_us BIGINT);
  CREATE INDEX iam_credential_principal ON iam_credential (principal);
  CREATE TABLE iam_bootstrap (id BIGINT PRIMARY KEY, at_us BIGINT NOT NULL)
)"}};

template <class T>
constexpr std::string_view kKindOf = "";
template <>
constexpr std::string_view kKindOf<Tenant> = "tenant";
template <>
constexpr std::string_view kKindOf<Project> = "project";
template <>
constexpr std::string_view kKindOf<Zone> = "zone";
template <>
constexpr std::string_view kKindOf<User> = "user";
template <>
constexpr std::string_view kKindOf<Service> = "service";
template <>
constexpr std::string_view kKindOf<Group> = "group";
template <>
constexpr std::string_view kKindOf<Quota> = "quota";
template <>
constexpr std::string_view kKindOf<Role> = "role";
template <>
constexpr std::string_view kKindOf<Binding> = "binding";
template <>
constexpr std::string_view kKindOf<TransferGrant> = "transfergrant";
template <>
constexpr std::string_view kKindOf<Certificate> = "certificate";
template <>
constexpr std::string_view kKindOf<Password> = "password";

std::string_view name_of(CredentialKind kind) { return kind == CredentialKind::token ? "token" : "session"; }

Scope scope_of(CredentialKind kind, const Principal& principal, const TokenId& id) {
  return Scope::of(principal.tenant, "", name_of(kind), id.str());
}

std::vector<Restriction> read_restrictions(std::string_view body) {
  return decode<std::vector<Restriction>>(parse_json(body), "reading the restrictions of a token");
}

// What a stored row says, for the audit record: everything but the secret's hash.
Digest digest_of(const TokenInfo& info) {
  return crypto::sha256(
      canonical(json::object{{"id", info.id.str()},
                             {"principal", info.principal},
                             {"name", info.name},
                             {"restrictions", encode(info.restrictions)},
                             {"created", info.created_us},
                             {"expires", info.expires_us},
                             {"revoked", info.revoked_us ? json::value(*info.revoked_us) : nullptr}}));
}

TokenInfo read_token(const sql::Row& row) {
  TokenInfo info{TokenId::parse(row.text(0)),
                 std::string(row.text(1)),
                 std::string(row.text(2)),
                 read_restrictions(row.text(3)),
                 row.integer(4),
                 row.integer(5),
                 std::nullopt,
                 std::nullopt};
  if (!row.is_null(6)) info.used_us = row.integer(6);
  if (!row.is_null(7)) info.revoked_us = row.integer(7);
  return info;
}

std::optional<sql::Query> existence_query(Principal::Kind kind) {
  if (kind == Principal::Kind::user) return sql::Query("SELECT 1 FROM iam_object WHERE kind = 'user' AND name = ?");
  if (kind == Principal::Kind::service)
    return sql::Query("SELECT 1 FROM iam_object WHERE kind = 'service' AND name = ?");
  return std::nullopt;
}

void require_exists(sql::Reader& reader, const Principal& principal) {
  const auto query = existence_query(principal.kind);
  if (!query) throw Error(Code::invalid, fmt::format("only users and services hold tokens, not {}", principal.str()));
  const auto key = owned_name(principal.tenant, principal.name);
  if (!reader.first(*query, {key}, [](const sql::Row&) { return true; }))
    throw Error(Code::not_found, fmt::format("no such principal: {}", principal.str()));
}

template <class T>
Objects<T> load_objects(sql::Reader& reader) {
  Objects<T> out;
  reader.query("SELECT name, body FROM iam_object WHERE kind = ?", {kKindOf<T>}, [&](const sql::Row& row) {
    try {
      out.emplace(row.text(0), decode<T>(parse_json(row.text(1)), "reading the directory"));
    } catch (const Error& e) {
      throw Error(Code::corrupt, fmt::format("directory: {} '{}': {}", kKindOf<T>, row.text(0), e.what()));
    }
  });
  return out;
}

}  // namespace

std::span<const sql::Migration> Directory::migrations() { return kMigrations; }

Directory::Directory(sql::Database& database, const sys::Clock& clock, sys::Random& random,
                     const crypto::Key& workload_key, DirectoryOptions options)
    : database_(database),
      clock_(clock),
      random_(random),
      ids_(clock, random),
      workload_key_(workload_key.copy()),
      options_(options) {
  load();
}

void Directory::load() {
  database_.read([&](sql::Reader& reader) {
    State state;
    std::apply([&]<class... T>(Objects<T>&... objects) { ((objects = load_objects<T>(reader)), ...); }, state);
    reader.query(
        "SELECT id, kind, secret_hash, principal, restrictions, created_us, expires_us, used_us FROM iam_credential "
        "WHERE revoked_us IS NULL AND expires_us > ?",
        {now_us()}, [&](const sql::Row& row) {
          const auto kind = row.text(1) == "token" ? CredentialKind::token : CredentialKind::session;
          credentials_.put({kind, TokenId::parse(row.text(0)), row.digest(2), Principal::parse(row.text(3)),
                            read_restrictions(row.text(4)), row.integer(5), row.integer(6)},
                           row.is_null(7) ? row.integer(5) : row.integer(7));
        });
    Lock lock(mu_);
    state_ = std::move(state);
    published_ = nullptr;
  });
}

std::shared_ptr<const Snapshot> Directory::snapshot() const {
  Lock lock(mu_);
  // Made when asked for rather than after each change: many changes at once then cost one.
  if (!published_) published_ = std::make_shared<const Snapshot>(state_);
  return published_;
}

template <class T>
void Directory::put(sql::Writer& writer, const T& object) {
  const auto key = key_of(object);
  writer.execute(
      "INSERT INTO iam_object (kind, name, body) VALUES (?, ?, ?) "
      "ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body",
      {kKindOf<T>, key, canonical(encode(object))});
  writer.after_commit([this, key, object] {
    Lock lock(mu_);
    std::get<Objects<T>>(state_).insert_or_assign(key, object);
    published_ = nullptr;
  });
}

template <class T>
void Directory::remove(sql::Writer& writer, const std::string& key) {
  if (writer.execute("DELETE FROM iam_object WHERE kind = ? AND name = ?", {kKindOf<T>, key}) == 0)
    throw Error(Code::not_found, fmt::format("no {} '{}'", kKindOf<T>, key));
  if constexpr (std::is_same_v<T, User> || std::is_same_v<T, Service>)
    drop_credentials(writer, fmt::format("{}/{}", kKindOf<T>, key), true);
  writer.after_commit([this, key] {
    Lock lock(mu_);
    std::get<Objects<T>>(state_).erase(key);
    published_ = nullptr;
  });
}

template void Directory::put(sql::Writer&, const Tenant&);
template void Directory::put(sql::Writer&, const Project&);
template void Directory::put(sql::Writer&, const Zone&);
template void Directory::put(sql::Writer&, const User&);
template void Directory::put(sql::Writer&, const Service&);
template void Directory::put(sql::Writer&, const Group&);
template void Directory::put(sql::Writer&, const Quota&);
template void Directory::put(sql::Writer&, const Role&);
template void Directory::put(sql::Writer&, const Binding&);
template void Directory::put(sql::Writer&, const TransferGrant&);
template void Directory::put(sql::Writer&, const Certificate&);
template void Directory::put(sql::Writer&, const Password&);
template void Directory::remove<Tenant>(sql::Writer&, const std::string&);
template void Directory::remove<Project>(sql::Writer&, const std::string&);
template void Directory::remove<Zone>(sql::Writer&, const std::string&);
template void Directory::remove<User>(sql::Writer&, const std::string&);
template void Directory::remove<Service>(sql::Writer&, const std::string&);
template void Directory::remove<Group>(sql::Writer&, const std::string&);
template void Directory::remove<Quota>(sql::Writer&, const std::string&);
template void Directory::remove<Role>(sql::Writer&, const std::string&);
template void Directory::remove<Binding>(sql::Writer&, const std::string&);
template void Directory::remove<TransferGrant>(sql::Writer&, const std::string&);
template void Directory::remove<Certificate>(sql::Writer&, const std::string&);
template void Directory::remove<Password>(sql::Writer&, const std::string&);

Issued Directory::issue(sql::Writer& writer, CredentialKind kind, const Principal& principal, const std::string& name,
                        std::vector<Restriction> restrictions, std::int64_t ttl_us) {
  require_exists(writer, principal);
  Credential credential;
  credential.id = ids_.next<crypto::TokenTag>();
  random_.fill(credential.secret);
  const auto created = now_us();
  const TokenInfo info{credential.id, principal.str(),  name,         restrictions,
                       created,       created + ttl_us, std::nullopt, std::nullopt};
  CredentialRow row{kind,           credential.id,           crypto::sha256(BytesView(credential.secret)),
                    principal,      std::move(restrictions), created,
                    info.expires_us};
  row.principal.groups.clear();
  writer.execute(
      "INSERT INTO iam_credential (id, kind, secret_hash, principal, name, restrictions, created_us, expires_us) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      {info.id.str(), name_of(kind), row.secret_hash.view(), info.principal, name, canonical(encode(info.restrictions)),
       created, info.expires_us});
  writer.record({scope_of(kind, principal, info.id).str(), std::nullopt, digest_of(info)});
  writer.after_commit([this, row] { credentials_.put(row, row.created_us); });
  return {info.id, format_credential(kind, credential), info.expires_us};
}

Issued Directory::issue_token(sql::Writer& writer, const NewToken& token) {
  if (token.name.empty() || token.name.size() > 128)
    throw Error(Code::invalid, "token: the name must have 1 to 128 bytes");
  if (token.ttl_us <= 0 || token.ttl_us > kTokenLifeMaxUs)
    throw Error(Code::invalid, fmt::format("token: must live at most {}", format_duration_us(kTokenLifeMaxUs)));
  return issue(writer, CredentialKind::token, token.principal, token.name, token.restrictions, token.ttl_us);
}

void Directory::revoke_token(sql::Writer& writer, const TokenId& id) {
  const auto text = id.str();
  auto info = writer.first(
      "SELECT id, principal, name, restrictions, created_us, expires_us, used_us, revoked_us FROM iam_credential "
      "WHERE id = ? AND kind = 'token'",
      {text}, read_token);
  if (!info) throw Error(Code::not_found, fmt::format("no token {}", text));
  if (info->revoked_us) return;
  const auto before = digest_of(*info);
  info->revoked_us = now_us();
  writer.execute("UPDATE iam_credential SET revoked_us = ? WHERE id = ?", {*info->revoked_us, text});
  writer.record(
      {scope_of(CredentialKind::token, Principal::parse(info->principal), id).str(), before, digest_of(*info)});
  writer.after_commit([this, id] { credentials_.erase(id); });
}

std::vector<TokenInfo> Directory::tokens(sql::Reader& reader, const Principal& principal) const {
  return reader.all(
      "SELECT id, principal, name, restrictions, created_us, expires_us, used_us, revoked_us FROM iam_credential "
      "WHERE principal = ? AND kind = 'token' ORDER BY id",
      {principal.str()}, read_token);
}

void Directory::drop_credentials(sql::Writer& writer, const std::string& principal, bool tokens_too) {
  if (tokens_too) {
    writer.execute("DELETE FROM iam_credential WHERE principal = ?", {principal});
    writer.execute("DELETE FROM iam_object WHERE kind = 'password' AND name = ?", {principal});
    std::vector<std::string> bound;
    for (auto& [key, certificate] : load_objects<Certificate>(writer))
      if (certificate.principal == principal) bound.push_back(key);
    for (const auto& key : bound) remove<Certificate>(writer, key);
  } else {
    writer.execute("DELETE FROM iam_credential WHERE principal = ? AND kind = 'session'", {principal});
  }
  writer.after_commit([this, principal, tokens_too] {
    credentials_.erase_if([&](const CredentialRow& row) {
      return (tokens_too || row.kind == CredentialKind::session) && row.principal.str() == principal;
    });
    if (!tokens_too) return;
    Lock lock(mu_);
    std::get<Objects<Password>>(state_).erase(principal);
    published_ = nullptr;
  });
}

Issued Directory::open_session(sql::Writer& writer, const Principal& user) {
  return issue(writer, CredentialKind::session, user, "", {}, options_.session_life_us);
}

void Directory::close_session(sql::Writer& writer, const TokenId& id) {
  writer.execute("DELETE FROM iam_credential WHERE id = ? AND kind = 'session'", {id.str()});
  writer.after_commit([this, id] { credentials_.erase(id); });
}

void Directory::set_password(sql::Writer& writer, const Principal& user, const std::string& hash) {
  if (user.kind != Principal::Kind::user)
    throw Error(Code::invalid, fmt::format("only users have passwords, not {}", user.str()));
  require_exists(writer, user);
  put(writer, Password{user.str(), hash});
  drop_credentials(writer, user.str(), false);
}

std::optional<Issued> Directory::bootstrap(std::int64_t token_ttl_us, const std::function<void(const Issued&)>& keep) {
  const auto done = [](sql::Reader& reader) {
    return reader.first("SELECT 1 FROM iam_bootstrap", {}, [](const sql::Row&) { return true; }).has_value();
  };
  if (database_.read(done)) return std::nullopt;
  return database_.write(
      {"system/bootstrap", "iam.bootstrap", "/", ""}, [&](sql::Writer& writer) -> std::optional<Issued> {
        if (done(writer)) return std::nullopt;
        writer.execute("INSERT INTO iam_bootstrap (id, at_us) VALUES (1, ?)", {now_us()});
        const User admin{"", "admin", "", "", false};
        put(writer, admin);
        put(writer, Binding{"bootstrap", "admin", {"user/admin"}, Scope()});
        auto issued = issue_token(writer, {Principal::parse("user/admin"), "bootstrap", {}, token_ttl_us});
        if (keep) keep(issued);
        return issued;
      });
}

std::int64_t Directory::flush_usage(sql::Writer& writer) const {
  std::int64_t changed = 0;
  for (const auto& entry : credentials_.all()) {
    const auto used = entry->used_us.load(std::memory_order_relaxed);
    if (used == entry->saved_us.load(std::memory_order_relaxed)) continue;
    changed += writer.execute("UPDATE iam_credential SET used_us = ? WHERE id = ?", {used, entry->row.id.str()});
    writer.after_commit([entry, used] { entry->saved_us.store(used, std::memory_order_relaxed); });
  }
  return changed;
}

std::int64_t Directory::purge(sql::Writer& writer) {
  constexpr std::int64_t kKeptUs = std::int64_t{30} * 24 * 3600 * 1'000'000;  // a dead token stays to be asked about
  const auto now = now_us();
  auto changed = writer.execute("DELETE FROM iam_credential WHERE kind = 'session' AND expires_us <= ?", {now});
  changed += writer.execute("DELETE FROM iam_credential WHERE kind = 'token' AND (expires_us <= ? OR revoked_us <= ?)",
                            {now - kKeptUs, now - kKeptUs});
  writer.after_commit(
      [this, now] { credentials_.erase_if([&](const CredentialRow& row) { return row.expires_us <= now; }); });
  return changed;
}

}  // namespace falaj::iam
