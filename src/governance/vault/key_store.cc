// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/key_store.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::vault {
namespace {

using crypto::KeyKind;
using crypto::KeyRecord;
using crypto::KeyState;

constexpr sql::Migration kMigrations[] = {
    {1, "keys",
     "CREATE TABLE vault_key (kind BIGINT NOT NULL, zone TEXT NOT NULL, tenant TEXT NOT NULL, version BIGINT NOT NULL, "
     "state BIGINT NOT NULL, wrapped BYTEA NOT NULL, PRIMARY KEY (kind, zone, tenant, version))"},
};

// The rows of one zone, for its blob store.
class ZoneKeys final : public blob::Keys {
 public:
  ZoneKeys(const KeyStore& store, ZoneName zone) : store_(store), zone_(std::move(zone)) {}
  crypto::VersionedKey newest(const TenantName& tenant) override { return store_.ring()->newest(zone_, tenant); }
  crypto::Key version(const TenantName& tenant, std::uint32_t version) override {
    return store_.ring()->version(zone_, tenant, version);
  }
  crypto::Key address_key(const TenantName& tenant) override { return store_.ring()->address_key(zone_, tenant); }

 private:
  const KeyStore& store_;
  const ZoneName zone_;
};

}  // namespace

std::span<const sql::Migration> KeyStore::migrations() { return kMigrations; }

std::vector<KeyRecord> KeyStore::load(sql::Database& database) {
  return database.read([](sql::Reader& reader) {
    return reader.all("SELECT kind, zone, tenant, version, state, wrapped FROM vault_key", {}, [](const sql::Row& row) {
      const auto wrapped = row.bytes(5);
      return KeyRecord{static_cast<KeyKind>(row.integer(0)),  ZoneName{std::string(row.text(1))},
                       TenantName{std::string(row.text(2))},  static_cast<std::uint32_t>(row.integer(3)),
                       static_cast<KeyState>(row.integer(4)), {wrapped.begin(), wrapped.end()}};
    });
  });
}

KeyStore::KeyStore(sql::Database& database, RootKeys roots, std::function<void(const RootKeys&)> save_roots)
    : database_(database), save_roots_(std::move(save_roots)), roots_(std::move(roots)) {
  const auto records = load(database);
  Lock lock(mu_);
  // Two roots are there only when a rotation was cut short; whichever opens the zones' keys is the one in force.
  for (std::size_t back = 0;; ++back) {
    auto ring = std::make_shared<crypto::KeyRing>(roots_.nth_newest(back).copy(), records);
    try {
      ring->verify();
    } catch (const Error&) {
      if (back + 1 == roots_.count())
        throw Error(Code::corrupt,
                    "the root key does not open the keys in the database: is this the key file of another platform?");
      continue;
    }
    if (roots_.count() > 1) {
      roots_.keep_only(back);
      save_roots_(roots_);
    }
    ring_ = std::move(ring);
    break;
  }
  for (const auto& r : records) records_.insert_or_assign({r.kind, r.zone, r.tenant, r.version}, r);
}

std::shared_ptr<const crypto::KeyRing> KeyStore::ring() const {
  Lock lock(mu_);
  return ring_;
}

std::unique_ptr<blob::Keys> KeyStore::of_zone(const ZoneName& zone) const {
  return std::make_unique<ZoneKeys>(*this, zone);
}

void KeyStore::write(const sql::Act& act, std::span<const KeyRecord> records) {
  database_.write(act, [&](sql::Writer& writer) {
    for (const auto& r : records) {
      writer.execute(
          "INSERT INTO vault_key (kind, zone, tenant, version, state, wrapped) VALUES (?, ?, ?, ?, ?, ?) "
          "ON CONFLICT (kind, zone, tenant, version) DO UPDATE SET state = excluded.state, wrapped = excluded.wrapped",
          {static_cast<std::int64_t>(r.kind), r.zone.str(), r.tenant.str(), std::int64_t{r.version},
           static_cast<std::int64_t>(r.state), BytesView(r.wrapped)});
      writer.record({fmt::format("/key/{}-{}-{}-{}", crypto::name(r.kind), r.zone.str(), r.tenant.str(), r.version),
                     std::nullopt, crypto::sha256(r.wrapped)});
    }
  });
  Lock lock(mu_);
  ring_->apply(records);
  for (const auto& r : records) records_.insert_or_assign({r.kind, r.zone, r.tenant, r.version}, r);
}

KeyStore::Records KeyStore::snapshot() const {
  Lock lock(mu_);
  return records_;
}

void KeyStore::ensure(const ZoneName& zone, const TenantName& tenant, const sql::Act& caller) {
  const auto there = [&](KeyKind kind, const TenantName& whose) {
    Lock lock(mu_);
    return records_.contains({kind, zone, whose, 1});
  };
  if (there(KeyKind::address, tenant)) return;
  Lock change(changing_);
  const sql::Act act{caller.actor, "key.create", "/t/" + tenant.str(), caller.request_id};
  if (!there(KeyKind::zone, TenantName{})) write(act, ring()->plan_zone(zone));
  if (!there(KeyKind::address, tenant)) write(act, ring()->plan_tenant(zone, tenant));
}

Rotated KeyStore::rotate_root(const sql::Act& act) {
  Lock change(changing_);
  Rotated rotated;
  RootKeys both = [&] {
    Lock lock(mu_);
    return RootKeys::decode(roots_.encode());
  }();
  rotated.version = both.add_root();
  save_roots_(both);  // until the zones' keys are written anew, a start must find either root
  const auto records = ring()->plan_root_rotation(both.nth_newest(0));
  rotated.rewrapped = static_cast<std::int64_t>(records.size());
  database_.write(act, [&](sql::Writer& writer) {
    for (const auto& r : records)
      writer.execute("UPDATE vault_key SET wrapped = ? WHERE kind = ? AND zone = ? AND tenant = ? AND version = ?",
                     {BytesView(r.wrapped), static_cast<std::int64_t>(r.kind), r.zone.str(), r.tenant.str(),
                      std::int64_t{r.version}});
  });
  both.keep_only(0);
  save_roots_(both);
  Lock lock(mu_);
  for (const auto& r : records) records_.insert_or_assign({r.kind, r.zone, r.tenant, r.version}, r);
  std::vector<KeyRecord> all;
  for (const auto& [place, record] : records_) all.push_back(record);
  ring_ = std::make_shared<crypto::KeyRing>(both.nth_newest(0).copy(), std::move(all));
  roots_ = std::move(both);
  return rotated;
}

Rotated KeyStore::rotate_zone(const ZoneName& zone, const sql::Act& act) {
  Lock change(changing_);
  const auto records = ring()->plan_zone_rotation(zone);
  write(act, records);
  Rotated rotated;
  for (const auto& r : records) {
    if (r.kind != KeyKind::zone)
      ++rotated.rewrapped;
    else if (r.state == KeyState::active)
      rotated.version = r.version;
  }
  return rotated;
}

Rotated KeyStore::rotate_tenant(const ZoneName& zone, const TenantName& tenant, const sql::Act& act) {
  Lock change(changing_);
  write(act, ring()->plan_tenant_rotation(zone, tenant));
  return {ring()->newest(zone, tenant).version, 0};
}

std::vector<KeyInfo> KeyStore::list() const {
  std::vector<KeyInfo> out;
  for (const auto& [place, r] : snapshot())
    out.push_back({std::string(crypto::name(r.kind)), r.zone.str(), r.tenant.str(), std::string(crypto::name(r.state)),
                   r.version});
  return out;
}

Bytes KeyStore::encode_roots() const {
  Lock lock(mu_);
  return roots_.encode();
}

}  // namespace falaj::vault
