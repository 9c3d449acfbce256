// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/key_ring.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/aead.h"
#include "foundation/crypto/hash.h"

namespace falaj::vault {
namespace {

constexpr sql::Migration kMigrations[] = {
    {1, "keys",
     "CREATE TABLE vault_key (level TEXT NOT NULL, zone TEXT NOT NULL, tenant TEXT NOT NULL, version BIGINT NOT NULL, "
     "parent_version BIGINT NOT NULL, wrapped BYTEA NOT NULL, created_us BIGINT NOT NULL, "
     "PRIMARY KEY (level, zone, tenant, version))"},
};

}  // namespace

// One zone's view of the ring, for its blob store.
class ZoneKeys final : public blob::Keys {
 public:
  ZoneKeys(const KeyRing& ring, ZoneName zone) : ring_(ring), zone_(std::move(zone)) {}

  blob::VersionedKey newest(const TenantName& tenant) override {
    const KeyRing::Slot slot{"tenant", zone_.str(), tenant.str()};
    const std::uint32_t version = ring_.newest_version(slot);
    return {version, ring_.key(slot, version)};
  }
  crypto::Key version(const TenantName& tenant, std::uint32_t version) override {
    return ring_.key({"tenant", zone_.str(), tenant.str()}, version);
  }
  crypto::Key address_key(const TenantName& tenant) override { return ring_.key({"address", zone_.str(), tenant.str()}, std::nullopt); }

 private:
  const KeyRing& ring_;
  const ZoneName zone_;
};

std::span<const sql::Migration> KeyRing::migrations() { return kMigrations; }

KeyRing::KeyRing(sql::Database& database, RootKeys roots, std::function<void(const RootKeys&)> save_roots, const sys::Clock& clock)
    : database_(database), save_roots_(std::move(save_roots)), clock_(clock), roots_(std::move(roots)) {
  Table table;
  database_.read([&](sql::Reader& reader) {
    reader.query("SELECT level, zone, tenant, version, parent_version, wrapped, created_us FROM vault_key", {}, [&](const sql::Row& row) {
      const Slot slot{std::string(row.text(0)), std::string(row.text(1)), std::string(row.text(2))};
      const auto wrapped = row.bytes(5);
      table[slot][static_cast<std::uint32_t>(row.integer(3))] = {static_cast<std::uint32_t>(row.integer(4)), {wrapped.begin(), wrapped.end()}, row.integer(6)};
    });
  });
  Lock lock(mu_);
  // A wrong root key is found at the start, not at the first read of a blob.
  for (const auto& [slot, versions] : table) unwrap(table, roots_, slot, versions.rbegin()->first);
  table_ = std::move(table);
}

crypto::Key KeyRing::unwrap(const Table& table, const RootKeys& roots, const Slot& slot, std::uint32_t version) {
  const auto versions = table.find(slot);
  if (versions == table.end() || !versions->second.contains(version))
    throw Error(Code::not_found, fmt::format("no key of level {} for zone '{}', tenant '{}', version {}", slot.level, slot.zone, slot.tenant, version));
  const Row& row = versions->second.at(version);
  const auto context = fmt::format("{}\n{}\n{}\n{}", slot.level, slot.zone, slot.tenant, version);
  try {
    if (slot.level == "zone") return crypto::unwrap_key(roots.of_version(row.parent_version), row.wrapped, as_bytes(context));
    return crypto::unwrap_key(unwrap(table, roots, {"zone", slot.zone, ""}, row.parent_version), row.wrapped, as_bytes(context));
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("unwrapping the {} key of zone '{}', tenant '{}', version {}: {}", slot.level, slot.zone, slot.tenant, version, e.what()));
  }
}

KeyRing::Row KeyRing::wrap(const Table& table, const RootKeys& roots, const Slot& slot, std::uint32_t version, const crypto::Key& key, std::int64_t created_us) {
  const auto context = fmt::format("{}\n{}\n{}\n{}", slot.level, slot.zone, slot.tenant, version);
  if (slot.level == "zone") {
    const auto& root = roots.newest();
    return {root.version, crypto::wrap_key(root.key, key, as_bytes(context)), created_us};
  }
  const Slot zone{"zone", slot.zone, ""};
  const std::uint32_t parent = table.at(zone).rbegin()->first;
  return {parent, crypto::wrap_key(unwrap(table, roots, zone, parent), key, as_bytes(context)), created_us};
}

crypto::Key KeyRing::key(const Slot& slot, std::optional<std::uint32_t> version) const {
  const std::uint32_t wanted = version ? *version : newest_version(slot);
  Lock lock(mu_);
  return unwrap(table_, roots_, slot, wanted);
}

std::uint32_t KeyRing::newest_version(const Slot& slot) const {
  Lock lock(mu_);
  const auto found = table_.find(slot);
  if (found == table_.end())
    throw Error(Code::not_found, fmt::format("no key of level {} for zone '{}', tenant '{}'", slot.level, slot.zone, slot.tenant));
  return found->second.rbegin()->first;
}

std::unique_ptr<blob::Keys> KeyRing::of_zone(const ZoneName& zone) { return std::make_unique<ZoneKeys>(*this, zone); }

void KeyRing::change(const sql::Act& act, const Table& next) {
  Table before;
  {
    Lock lock(mu_);
    before = table_;
  }
  database_.write(act, [&](sql::Writer& writer) {
    for (const auto& [slot, versions] : before)
      for (const auto& [version, row] : versions)
        if (const auto found = next.find(slot); found == next.end() || !found->second.contains(version))
          writer.execute("DELETE FROM vault_key WHERE level = ? AND zone = ? AND tenant = ? AND version = ?",
                         {slot.level, slot.zone, slot.tenant, std::int64_t{version}});
    for (const auto& [slot, versions] : next)
      for (const auto& [version, row] : versions) {
        const auto found = before.find(slot);
        const bool same = found != before.end() && found->second.contains(version) && found->second.at(version).wrapped == row.wrapped;
        if (same) continue;
        writer.execute(
            "INSERT INTO vault_key (level, zone, tenant, version, parent_version, wrapped, created_us) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (level, zone, tenant, version) DO UPDATE SET parent_version = excluded.parent_version, wrapped = excluded.wrapped",
            {slot.level, slot.zone, slot.tenant, std::int64_t{version}, std::int64_t{row.parent_version}, BytesView(row.wrapped), row.created_us});
        writer.record({fmt::format("/key/{}-{}-{}-{}", slot.level, slot.zone, slot.tenant, version), std::nullopt, crypto::sha256(row.wrapped)});
      }
  });
  Lock lock(mu_);
  table_ = next;
}

void KeyRing::ensure(const ZoneName& zone, const TenantName& tenant, const sql::Act& caller) {
  const Slot slots[] = {{"zone", zone.str(), ""}, {"tenant", zone.str(), tenant.str()}, {"address", zone.str(), tenant.str()}};
  const auto missing = [&](const Table& table) {
    for (const auto& slot : slots)
      if (!table.contains(slot)) return true;
    return false;
  };
  {
    Lock lock(mu_);
    if (!missing(table_)) return;
  }
  Lock change_lock(changing_);
  Table next;
  {
    Lock lock(mu_);
    if (!missing(table_)) return;  // somebody else was faster
    next = table_;
    for (const auto& slot : slots)
      if (!next.contains(slot)) next[slot][1] = wrap(next, roots_, slot, 1, crypto::Key::random(), clock_.wall().count());
  }
  change({caller.actor, "key.create", fmt::format("/t/{}", tenant.str()), caller.request_id}, next);
}

Rotated KeyRing::rotate_root(const sql::Act& act) {
  Lock change_lock(changing_);
  Table next;
  Rotated rotated;
  RootKeys with_new = [&] {
    Lock lock(mu_);
    return RootKeys::decode(roots_.encode());
  }();
  rotated.version = with_new.add_root();
  // Both roots are in the file until every zone key is wrapped by the new one: a kill in between loses nothing.
  save_roots_(with_new);
  {
    Lock lock(mu_);
    next = table_;
    for (auto& [slot, versions] : next) {
      if (slot.level != "zone") continue;
      for (auto& [version, row] : versions) {
        row = wrap(next, with_new, slot, version, unwrap(table_, roots_, slot, version), row.created_us);
        ++rotated.rewrapped;
      }
    }
    roots_ = RootKeys::decode(with_new.encode());
  }
  change(act, next);
  with_new.drop_old();
  save_roots_(with_new);
  Lock lock(mu_);
  roots_ = std::move(with_new);
  return rotated;
}

Rotated KeyRing::rotate_zone(const ZoneName& zone, const sql::Act& act) {
  Lock change_lock(changing_);
  const Slot slot{"zone", zone.str(), ""};
  Rotated rotated;
  rotated.version = newest_version(slot) + 1;
  Table next;
  {
    Lock lock(mu_);
    next = table_;
    next[slot][rotated.version] = wrap(next, roots_, slot, rotated.version, crypto::Key::random(), clock_.wall().count());
    for (auto& [child, versions] : next) {
      if (child.level == "zone" || child.zone != zone.str()) continue;
      for (auto& [version, row] : versions) {
        row = wrap(next, roots_, child, version, unwrap(table_, roots_, child, version), row.created_us);
        ++rotated.rewrapped;
      }
    }
    auto& versions = next[slot];
    versions.erase(versions.begin(), std::prev(versions.end()));  // nothing is wrapped by the old ones any more
  }
  change(act, next);
  return rotated;
}

Rotated KeyRing::rotate_tenant(const ZoneName& zone, const TenantName& tenant, const sql::Act& act) {
  Lock change_lock(changing_);
  const Slot slot{"tenant", zone.str(), tenant.str()};
  const std::uint32_t version = newest_version(slot) + 1;
  Table next;
  {
    Lock lock(mu_);
    next = table_;
    next[slot][version] = wrap(next, roots_, slot, version, crypto::Key::random(), clock_.wall().count());
  }
  change(act, next);
  return {version, 0};
}

std::vector<KeyInfo> KeyRing::list() const {
  Lock lock(mu_);
  std::vector<KeyInfo> out;
  for (const auto& [slot, versions] : table_)
    for (const auto& [version, row] : versions)
      out.push_back({slot.level, slot.zone, slot.tenant, version, version == versions.rbegin()->first, row.created_us});
  return out;
}

Bytes KeyRing::encode_roots() const {
  Lock lock(mu_);
  return roots_.encode();
}

}  // namespace falaj::vault
