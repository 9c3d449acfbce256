// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/vault.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::vault {
namespace {

constexpr sql::Migration kMigrations[] = {
    {1, "vault", R"(
  CREATE TABLE blob_name (
    tenant TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL,
    zone TEXT NOT NULL, address BYTEA NOT NULL, bytes BIGINT NOT NULL, content BYTEA NOT NULL,
    created_us BIGINT NOT NULL, created_by TEXT NOT NULL,
    PRIMARY KEY (tenant, project, name));
  CREATE TABLE blob_pin (
    tenant TEXT NOT NULL, project TEXT NOT NULL, zone TEXT NOT NULL, address BYTEA NOT NULL, reason TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, project, zone, address, reason));
  CREATE TABLE blob_usage (
    tenant TEXT NOT NULL, project TEXT NOT NULL, names BIGINT NOT NULL, bytes BIGINT NOT NULL,
    PRIMARY KEY (tenant, project))
)"},
};

// Files of a batch that are held in memory together, and stored with one sync.
constexpr std::size_t kGroupFiles = 8192;
constexpr std::uint64_t kGroupBytes = 64ULL << 20;
constexpr std::uint64_t kAloneBytes = 4ULL << 20;  // such a file is streamed by itself

static_assert(std::string_view("/t//p//blob/").size() + 2 * 63 + kNameBytesMax <= iam::Scope::kPathBytesMax);

bool is_plain(std::string_view text) {
  return text.size() <= kNameBytesMax && is_utf8(text) &&
         std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

void check_text(std::string_view what, std::string_view text) {
  if (text.empty() || !is_plain(text))
    throw Error(Code::invalid,
                fmt::format("{}: must be 1 to {} bytes of UTF-8 without control characters", what, kNameBytesMax));
}

// The least text that comes after every name which begins with `prefix`.
std::string end_of(std::string prefix) {
  while (!prefix.empty()) {
    std::size_t at = prefix.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(prefix[at]) & 0xC0) == 0x80) --at;
    const std::string_view last = std::string_view(prefix).substr(at);
    if (last == "\U0010FFFF") {
      prefix.resize(at);
      continue;
    }
    // The next character: its bytes as a number, one more, with a carry over the six bits that each of them holds.
    if (last == "\u07FF") return prefix.substr(0, at) + "\u0800";
    if (last == "\uD7FF") return prefix.substr(0, at) + "\uE000";  // between them are no characters
    if (last == "\uFFFF") return prefix.substr(0, at) + "\U00010000";
    for (std::size_t i = prefix.size() - 1;; --i) {
      const auto byte = static_cast<unsigned char>(prefix[i]);
      const bool carries = i > at && byte == 0xBF;
      prefix[i] = static_cast<char>(carries ? 0x80 : byte + 1);
      if (!carries) return prefix;
    }
  }
  std::string end;
  for (std::size_t i = 0; i <= kNameBytesMax / 4; ++i) end += "\U0010FFFF";
  return end;
}

Entry read_entry(const sql::Row& row) {
  return {std::string(row.text(0)),
          {row.digest(1)},
          ZoneName::parse(row.text(2)),
          static_cast<std::uint64_t>(row.integer(3)),
          row.digest(4),
          row.integer(5),
          std::string(row.text(6)),
          0,
          {}};
}

Error no_name(const std::string& name) {
  return Error(Code::not_found, fmt::format("no blob of that name in this project: {}", name));
}

std::optional<Entry> find(sql::Reader& reader, const Where& where, const std::string& name) {
  if (!is_plain(name)) return std::nullopt;  // nothing has such a name, and an engine might choke on it
  return reader.first(
      "SELECT name, address, zone, bytes, content, created_us, created_by FROM blob_name WHERE tenant = ? AND project "
      "= ? AND name = ?",
      {where.tenant.str(), where.project.str(), name}, read_entry);
}

struct Usage {
  std::int64_t names = 0, bytes = 0;
};

Usage usage_of(sql::Reader& reader, const iam::Scope& scope) {
  const auto read = [](const sql::Row& row) { return Usage{row.integer(0), row.integer(1)}; };
  const std::string tenant(scope.tenant()), project(scope.project());
  const auto found = project.empty()
                         ? reader.first(
                               "SELECT CAST(COALESCE(SUM(names), 0) AS BIGINT), CAST(COALESCE(SUM(bytes), 0) AS "
                               "BIGINT) FROM blob_usage WHERE tenant = ?",
                               {tenant}, read)
                         : reader.first("SELECT names, bytes FROM blob_usage WHERE tenant = ? AND project = ?",
                                        {tenant, project}, read);
  return found.value_or(Usage{});
}

void add_usage(sql::Writer& writer, const Where& where, const Usage& more) {
  writer.execute(
      "INSERT INTO blob_usage (tenant, project, names, bytes) VALUES (?, ?, ?, ?) ON CONFLICT (tenant, project) DO "
      "UPDATE SET "
      "names = blob_usage.names + excluded.names, bytes = blob_usage.bytes + excluded.bytes",
      {where.tenant.str(), where.project.str(), more.names, more.bytes});
}

void check_quotas(sql::Reader& reader, const iam::Snapshot& directory, const Where& where) {
  for (const auto& quota : directory.quotas(where.scope())) {
    const Usage used = usage_of(reader, quota.scope);
    const auto check = [&](const std::optional<std::int64_t>& most, std::int64_t now, std::string_view what) {
      if (most && now > *most)
        throw Error(Code::exhausted, fmt::format("quota {} of {}: {} would be {}, more than {}", quota.name,
                                                 quota.scope.str(), what, now, *most));
    };
    check(quota.blob_bytes, used.bytes, "blob bytes");
    check(quota.blob_objects, used.names, "blob objects");
  }
}

std::string resource_of(const Where& where, const std::string& name) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "blob", name).str();
}

void forget(sql::Writer& writer, const Where& where, const Entry& entry) {
  writer.execute("DELETE FROM blob_name WHERE tenant = ? AND project = ? AND name = ?",
                 {where.tenant.str(), where.project.str(), entry.name});
  add_usage(writer, where, {-1, -static_cast<std::int64_t>(entry.bytes)});
  writer.record({resource_of(where, entry.name), entry.content, std::nullopt});
}

}  // namespace

std::span<const sql::Migration> Vault::migrations() { return kMigrations; }

Vault::Vault(sql::Database& database, const iam::Directory& directory, KeyStore& keys, MakeBackend make_backend,
             const sys::Clock& clock, Metrics& metrics, blob::StoreOptions options)
    : database_(database),
      directory_(directory),
      keys_(keys),
      make_backend_(std::move(make_backend)),
      clock_(clock),
      metrics_(metrics),
      options_(options) {
  auto& names = metrics.gauge("falaj_vault_names", "Blobs that have a name.");
  auto& bytes =
      metrics.gauge("falaj_vault_bytes", "Bytes of the blobs that have a name, before deduplication and packing.");
  metrics.before_render([this, &names, &bytes] {
    const auto now = totals();
    names.Set(static_cast<double>(now.names));
    bytes.Set(static_cast<double>(now.bytes));
  });
}

Vault::~Vault() = default;

blob::Store& Vault::store(const ZoneName& zone) {
  const auto snapshot = directory_.snapshot();
  const auto* declared = snapshot->find<iam::Zone>(zone.str());
  if (!declared) throw Error(Code::not_found, fmt::format("no such zone: {}", zone.str()));
  Lock lock(mu_);
  auto& opened = stores_[zone];
  if (!opened.store) {
    opened.backend = make_backend_(*declared);
    opened.keys = keys_.of_zone(zone);
    opened.store = std::make_unique<blob::Store>(zone, *opened.backend, *opened.keys, clock_, metrics_, options_);
  }
  return *opened.store;
}

ZoneName Vault::zone_for(const Where& where, const std::optional<ZoneName>& wanted) const {
  const auto snapshot = directory_.snapshot();
  const auto* tenant = snapshot->find<iam::Tenant>(where.tenant.str());
  const auto* project = snapshot->find<iam::Project>(iam::owned_name(where.tenant.str(), where.project.str()));
  if (!tenant || !project) throw Error(Code::not_found, fmt::format("no such project: {}", where.scope().str()));
  const ZoneName zone = wanted.value_or(project->zone);
  if (std::find(tenant->zones.begin(), tenant->zones.end(), zone) == tenant->zones.end()) {
    std::vector<std::string> allowed;
    for (const auto& z : tenant->zones) allowed.push_back(z.str());
    throw Error(Code::denied, fmt::format("zone: tenant {} may keep bytes in {}, not in {}", where.tenant.str(),
                                          join(allowed, ", "), zone.str()));
  }
  return zone;
}

Entry Vault::put(const Where& where, const std::optional<ZoneName>& zone, const std::string& name,
                 const blob::Source& source, const sql::Act& act) {
  check_text("name", name);
  blob::Hold hold;  // until it has its name
  auto entry = store_bytes(where, zone, source, act, &hold);
  entry.name = name;
  write_names(where, {&entry, 1}, act);
  return entry;
}

Entry Vault::put_unnamed(const Where& where, const blob::Source& source, const sql::Act& act) {
  return store_bytes(where, std::nullopt, source, act);
}

Entry Vault::store_bytes(const Where& where, const std::optional<ZoneName>& zone, const blob::Source& source,
                         const sql::Act& act, blob::Hold* hold) {
  const ZoneName in = zone_for(where, zone);
  keys_.ensure(in, where.tenant, act);
  const auto stored = store(in).put(where.tenant, source, hold);
  return {"",        stored.info.address, in, stored.info.size, stored.info.content, clock_.wall().count(),
          act.actor, stored.new_bytes,    {}};
}

Batch Vault::put_many(const Where& where, const std::optional<ZoneName>& zone,
                      const std::function<std::optional<NewFile>()>& next, const sql::Act& act) {
  const ZoneName in = zone_for(where, zone);
  keys_.ensure(in, where.tenant, act);
  auto& target = store(in);
  Batch batch;
  blob::Hold hold;
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, Bytes>> group;
  std::uint64_t group_bytes = 0;
  const auto add = [&](std::string name, const blob::Stored& stored) {
    batch.new_bytes += stored.new_bytes;
    batch.bytes += stored.info.size;
    entries.push_back({std::move(name),
                       stored.info.address,
                       in,
                       stored.info.size,
                       stored.info.content,
                       clock_.wall().count(),
                       act.actor,
                       stored.new_bytes,
                       {}});
  };
  const auto flush = [&] {
    std::vector<blob::Source> sources;
    for (const auto& [name, bytes] : group) sources.push_back(blob::source_of(bytes));
    const auto stored = target.put_many(where.tenant, sources, &hold);
    for (std::size_t i = 0; i < group.size(); ++i) add(std::move(group[i].first), stored[i]);
    group.clear();
    group_bytes = 0;
  };
  while (auto file = next()) {
    check_text("name", file->name);
    if (entries.size() + group.size() >= kBatchFilesMax)
      throw Error(Code::exhausted, fmt::format("a batch has at most {} files", kBatchFilesMax));
    if (file->bytes >= kAloneBytes) {
      add(std::move(file->name), target.put(where.tenant, file->source, &hold));
      continue;
    }
    Bytes bytes(file->bytes);
    for (std::size_t got = 0; got < bytes.size();) {
      const std::size_t n = file->source(std::span(bytes).subspan(got));
      if (n == 0) throw Error(Code::invalid, fmt::format("the batch ends inside of a file: {}", file->name));
      got += n;
    }
    group_bytes += bytes.size();
    group.emplace_back(std::move(file->name), std::move(bytes));
    if (group.size() >= kGroupFiles || group_bytes >= kGroupBytes) flush();
  }
  if (!group.empty()) flush();
  batch.files = entries.size();
  if (!entries.empty()) write_names(where, entries, act);
  return batch;
}

void Vault::write_names(const Where& where, std::span<const Entry> entries, const sql::Act& act) {
  const auto snapshot = directory_.snapshot();
  database_.write(act, [&](sql::Writer& writer) {
    Usage more;
    for (const auto& entry : entries) {
      const auto before = find(writer, where, entry.name);
      writer.execute(
          "INSERT INTO blob_name (tenant, project, name, zone, address, bytes, content, created_us, created_by) VALUES "
          "(?, ?, ?, ?, ?, ?, ?, ?, ?) "
          "ON CONFLICT (tenant, project, name) DO UPDATE SET zone = excluded.zone, address = excluded.address, bytes = "
          "excluded.bytes, "
          "content = excluded.content, created_us = excluded.created_us, created_by = excluded.created_by",
          {where.tenant.str(), where.project.str(), entry.name, entry.zone.str(), entry.address.digest.view(),
           static_cast<std::int64_t>(entry.bytes), entry.content.view(), entry.created_us, entry.created_by});
      more.names += before ? 0 : 1;
      more.bytes += static_cast<std::int64_t>(entry.bytes) - (before ? static_cast<std::int64_t>(before->bytes) : 0);
      writer.record(
          {resource_of(where, entry.name), before ? std::optional(before->content) : std::nullopt, entry.content});
    }
    add_usage(writer, where, more);
    if (more.bytes > 0 || more.names > 0) check_quotas(writer, *snapshot, where);
  });
}

std::unique_ptr<blob::ObjectReader> Vault::open(const Where& where, const Entry& entry, std::uint64_t offset,
                                                std::uint64_t length) {
  const auto snapshot = directory_.snapshot();
  const auto* project = snapshot->find<iam::Project>(iam::owned_name(where.tenant.str(), where.project.str()));
  if (!project) throw Error(Code::not_found, fmt::format("no such project: {}", where.scope().str()));
  std::optional<blob::TransferGrant> grant;
  if (project->zone != entry.zone) {
    const auto resource = iam::Scope::of(where.tenant.str(), where.project.str(), "blob", entry.name);
    if (const auto* found =
            iam::find_grant(snapshot->transfer_grants(), entry.zone, project->zone, resource, clock_.wall().count()))
      grant = {entry.zone, project->zone, where.tenant, entry.address, found->expires_us};
  }
  return store(entry.zone).get({where.tenant, project->zone, grant ? &*grant : nullptr}, entry.address, offset, length);
}

Entry Vault::info(const Where& where, const std::string& name) const {
  return database_.read([&](sql::Reader& reader) {
    auto entry = find(reader, where, name);
    if (!entry) throw no_name(name);
    entry->pins = reader.all(
        "SELECT reason FROM blob_pin WHERE tenant = ? AND project = ? AND zone = ? AND address = ? ORDER BY reason",
        {where.tenant.str(), where.project.str(), entry->zone.str(), entry->address.digest.view()},
        [](const sql::Row& row) { return std::string(row.text(0)); });
    return *entry;
  });
}

std::vector<Entry> Vault::list(const Where& where, const std::string& prefix, const std::string& after,
                               std::size_t limit) const {
  return database_.read([&](sql::Reader& reader) { return list(reader, where, prefix, after, limit); });
}

std::vector<Entry> Vault::list(sql::Reader& reader, const Where& where, const std::string& prefix,
                               const std::string& after, std::size_t limit) const {
  if (!is_plain(prefix)) return {};
  if (!is_plain(after)) throw Error(Code::invalid, "after: not a name");
  const std::string end = end_of(prefix);
  const auto most = static_cast<std::int64_t>(limit);
  // One lower bound each: given two, SQLite begins at the first of them and every page would read all those before.
  return after >= prefix && !after.empty()
             ? reader.all(
                   "SELECT name, address, zone, bytes, content, created_us, created_by FROM blob_name WHERE tenant = "
                   "? AND project = ? AND name > ? AND name < ? ORDER BY name LIMIT ?",
                   {where.tenant.str(), where.project.str(), after, end, most}, read_entry)
             : reader.all(
                   "SELECT name, address, zone, bytes, content, created_us, created_by FROM blob_name WHERE tenant = "
                   "? AND project = ? AND name >= ? AND name < ? ORDER BY name LIMIT ?",
                   {where.tenant.str(), where.project.str(), prefix, end, most}, read_entry);
}

void Vault::remove(const Where& where, const std::string& name, const sql::Act& act) {
  database_.write(act, [&](sql::Writer& writer) {
    const auto before = find(writer, where, name);
    if (!before) throw no_name(name);
    forget(writer, where, *before);
  });
}

Vault::Removed Vault::remove_below(const Where& where, const std::string& prefix, std::size_t limit,
                                   const sql::Act& act) {
  if (list(where, prefix, "", 1).empty()) return {};
  return database_.write(act, [&](sql::Writer& writer) {
    Removed removed;
    for (const auto& entry : list(writer, where, prefix, "", limit)) {
      forget(writer, where, entry);
      removed.names += 1;
      removed.bytes += entry.bytes;
    }
    return removed;
  });
}

Vault::Removed Vault::total_below(sql::Reader& reader, const Where& where, const std::string& prefix) const {
  if (!is_plain(prefix)) return {};
  return *reader.first(
      "SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM blob_name WHERE tenant = ? AND project = ? AND"
      " name >= ? AND name < ?",
      {where.tenant.str(), where.project.str(), prefix, end_of(prefix)}, [](const sql::Row& row) {
        return Removed{static_cast<std::uint64_t>(row.integer(0)), static_cast<std::uint64_t>(row.integer(1))};
      });
}

void Vault::pin(const Where& where, const std::string& name, const std::string& reason, const sql::Act& act) {
  check_text("reason", reason);
  database_.write(act, [&](sql::Writer& writer) {
    const auto entry = find(writer, where, name);
    if (!entry) throw no_name(name);
    pin(writer, where, *entry, reason);
  });
}

void Vault::pin(sql::Writer& writer, const Where& where, const Entry& entry, const std::string& reason) {
  check_text("reason", reason);
  writer.execute(
      "INSERT INTO blob_pin (tenant, project, zone, address, reason, created_us) VALUES (?, ?, ?, ?, ?, ?) ON "
      "CONFLICT DO NOTHING",
      {where.tenant.str(), where.project.str(), entry.zone.str(), entry.address.digest.view(), reason,
       clock_.wall().count()});
}

void Vault::unpin(sql::Writer& writer, const Where& where, const Entry& entry, const std::string& reason) {
  writer.execute("DELETE FROM blob_pin WHERE tenant = ? AND project = ? AND zone = ? AND address = ? AND reason = ?",
                 {where.tenant.str(), where.project.str(), entry.zone.str(), entry.address.digest.view(), reason});
}

void Vault::unpin(const Where& where, const std::string& name_or_address, const std::string& reason,
                  const sql::Act& act) {
  check_text("reason", reason);
  database_.write(act, [&](sql::Writer& writer) {
    const auto entry = find(writer, where, name_or_address);
    const blob::Address address = entry ? entry->address : blob::Address::parse(name_or_address);
    if (writer.execute("DELETE FROM blob_pin WHERE tenant = ? AND project = ? AND address = ? AND reason = ?",
                       {where.tenant.str(), where.project.str(), address.digest.view(), reason}) == 0)
      throw Error(Code::not_found, fmt::format("no pin for that reason: {}", reason));
  });
}

std::vector<Vault::Kept> Vault::kept(sql::Reader& reader) const {
  return reader.all(
      "SELECT DISTINCT zone, tenant, address FROM blob_name UNION SELECT DISTINCT zone, tenant, address FROM blob_pin "
      "ORDER BY 1, 2, 3",
      {}, [](const sql::Row& row) {
        return Kept{ZoneName::parse(row.text(0)), TenantName::parse(row.text(1)), {row.digest(2)}};
      });
}

Vault::Hold::Hold(Vault& vault) : vault_(vault) {
  Lock lock(vault_.mu_);
  ++vault_.holds_;
}
Vault::Hold::~Hold() {
  Lock lock(vault_.mu_);
  --vault_.holds_;
}

CollectReport Vault::collect(const sql::Act& act) {
  CollectReport report;
  std::map<std::pair<ZoneName, TenantName>, std::vector<blob::Address>> roots;
  // Every tenant that ever had keys in a zone, so that one without a name left is swept too.
  for (const auto& key : keys_.list())
    if (key.level == "tenant") roots[{ZoneName::parse(key.zone), TenantName::parse(key.tenant)}];
  for (const auto& k : database_.read([&](sql::Reader& reader) { return kept(reader); }))
    roots[{k.zone, k.tenant}].push_back(k.address);
  {
    // After the names were read: whoever holds from now on sees no name that was read here and is gone since.
    Lock lock(mu_);
    if (holds_ > 0) throw Error(Code::conflict, "a backup is under way: what it copies is not collected");
  }
  std::optional<Error> failed;
  for (const auto& [place, addresses] : roots) {
    try {
      const auto collected = store(place.first).collect(place.second, addresses);
      report.objects += collected.objects;
      report.bytes += collected.bytes;
      report.kept += addresses.size();
      for (const auto& missing : collected.missing) report.missing.push_back(missing.hex());
    } catch (const Error& e) {
      // A zone that was removed when nothing was in it any more.
      if (e.code() == Code::not_found && addresses.empty()) continue;
      if (!failed)
        failed.emplace(e.code(), fmt::format("collecting {}/{}: {}", place.first.str(), place.second.str(), e.what()));
    }
  }
  database_.write(act, [&](sql::Writer&) {});  // what was deleted is in no row; that it was done is on record
  if (failed) throw *failed;
  return report;
}

std::vector<Placed> Vault::destroy(const TenantName& tenant, std::span<const Placed> objects, const sql::Act& act) {
  std::map<ZoneName, std::vector<blob::Address>> by_zone;
  for (const auto& object : objects) by_zone[object.zone].push_back(object.address);
  std::vector<Placed> needed;
  for (const auto& of_zone : by_zone) {
    const auto& zone = of_zone.first;
    const auto destroyed = store(zone).destroy(tenant, of_zone.second, [&] {
      std::vector<blob::Address> out;
      for (const auto& k : database_.read([&](sql::Reader& reader) { return kept(reader); }))
        if (k.zone == zone && k.tenant == tenant) out.push_back(k.address);
      Lock lock(mu_);  // after the names were read, as in collect
      if (holds_ > 0) throw Error(Code::conflict, "a backup is under way: what it copies is not destroyed");
      return out;
    });
    for (const auto& address : destroyed.needed) needed.push_back({zone, address});
  }
  if (!by_zone.empty()) database_.write(act, [&](sql::Writer&) {});  // as in collect
  return needed;
}

ScrubReport Vault::scrub() {
  ScrubReport report;
  for (const auto& key : keys_.list()) {
    if (key.level != "tenant" || key.state != "active") continue;
    const auto scrubbed = store(ZoneName::parse(key.zone)).scrub(TenantName::parse(key.tenant));
    report.objects += scrubbed.blocks;
    report.bytes += scrubbed.bytes;
    for (const auto& damage : scrubbed.damaged)
      report.damaged.push_back(fmt::format("{}/{}: {}", key.zone, key.tenant, damage.reason));
  }
  return report;
}

Vault::Totals Vault::totals() const {
  Totals totals;
  database_.read([&](sql::Reader& reader) {
    reader.query(
        "SELECT CAST(COALESCE(SUM(names), 0) AS BIGINT), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM blob_usage", {},
        [&](const sql::Row& row) {
          totals.names = static_cast<std::uint64_t>(row.integer(0));
          totals.bytes = static_cast<std::uint64_t>(row.integer(1));
        });
  });
  std::set<std::string> zones;
  for (const auto& key : keys_.list()) zones.insert(key.zone);
  totals.zones.assign(zones.begin(), zones.end());
  return totals;
}

}  // namespace falaj::vault
