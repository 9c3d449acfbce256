// SPDX-License-Identifier: Apache-2.0
#include "governance/vault/key_store.h"

#include <unordered_map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::vault {
namespace {

using crypto::KeyKind;
using crypto::KeyRecord;
using crypto::KeyState;

constexpr sql::Migration kKeyMigrations[] = {
    {1, "keys",
     "CREATE TABLE vault_key (kind BIGINT NOT NULL, zone TEXT NOT NULL, tenant TEXT NOT NULL, version BIGINT NOT NULL, "
     "state BIGINT NOT NULL, wrapped BYTEA NOT NULL, PRIMARY KEY (kind, zone, tenant, version))"},
};

// The keys of one zone, for its blob store. Every put and get asks for two, so the open keys of the tenants at work are
// kept until some key changes.
class ZoneKeys final : public blob::Keys {
 public:
  ZoneKeys(const KeyStore& store, ZoneName zone) : store_(store), zone_(std::move(zone)) {}
  crypto::VersionedKey newest(const TenantName& tenant) override {
    Lock lock(mu_);
    const auto& keys = opened(tenant);
    return {keys.newest.version, keys.newest.key.copy()};
  }
  crypto::Key version(const TenantName& tenant, std::uint32_t version) override {
    return store_.ring()->version(zone_, tenant, version);
  }
  crypto::Key address_key(const TenantName& tenant) override {
    Lock lock(mu_);
    return opened(tenant).address.copy();
  }

 private:
  static constexpr std::size_t kTenantsMax = 1024;
  struct Opened {
    crypto::VersionedKey newest;
    crypto::Key address;
  };
  const Opened& opened(const TenantName& tenant) REQUIRES(mu_) {
    const auto changes = store_.changes();  // before the ring: a change in between is seen the next time
    if (changes != as_of_ || opened_.size() >= kTenantsMax) opened_.clear();
    as_of_ = changes;
    if (const auto found = opened_.find(tenant); found != opened_.end()) return found->second;
    const auto ring = store_.ring();
    return opened_.emplace(tenant, Opened{ring->newest(zone_, tenant), ring->address_key(zone_, tenant)}).first->second;
  }

  const KeyStore& store_;
  const ZoneName zone_;
  Mutex mu_;
  std::uint64_t as_of_ GUARDED_BY(mu_) = 0;
  std::unordered_map<TenantName, Opened> opened_ GUARDED_BY(mu_);
};

}  // namespace

std::span<const sql::Migration> KeyStore::migrations() { return kKeyMigrations; }

std::vector<KeyRecord> KeyStore::load(sql::Reader& reader) {
  return reader.all("SELECT kind, zone, tenant, version, state, wrapped FROM vault_key", {}, [](const sql::Row& row) {
    const auto wrapped = row.bytes(5);
    return KeyRecord{static_cast<KeyKind>(row.integer(0)),  ZoneName{std::string(row.text(1))},
                     TenantName{std::string(row.text(2))},  static_cast<std::uint32_t>(row.integer(3)),
                     static_cast<KeyState>(row.integer(4)), {wrapped.begin(), wrapped.end()}};
  });
}

KeyStore::KeyStore(sql::Database& database, RootKeys roots, std::function<void(const RootKeys&)> save_roots)
    : database_(database), save_roots_(std::move(save_roots)), roots_(std::move(roots)) {
  const auto records = database.read([](sql::Reader& reader) { return load(reader); });
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
  publish(records, roots_.nth_newest(0));
}

// A new ring when records change, since whoever holds the old one may be between the key of a zone and one that it
// opens. What is only added goes into the ring that is there: a tenant's first put costs the same however many there
// are.
void KeyStore::publish(std::span<const KeyRecord> changed, const crypto::Key& root) {
  bool only_added = true;
  for (const auto& r : changed)
    only_added = records_.insert_or_assign({r.kind, r.zone, r.tenant, r.version}, r).second && only_added;
  if (only_added) {
    ring_->apply(changed);
  } else {
    std::vector<KeyRecord> all;
    for (const auto& [place, record] : records_) all.push_back(record);
    ring_ = std::make_shared<crypto::KeyRing>(root.copy(), std::move(all));
  }
  ++changes_;  // after the ring: keys opened from the old one before this are dropped by it
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
  const RootKeys only_new = RootKeys::decode(both.encode());
  {
    // Before the file: should saving it fail, keys made from now on must be wrapped like those in the database.
    Lock lock(mu_);
    publish(records, both.nth_newest(0));
    roots_ = std::move(both);
  }
  save_roots_(only_new);
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

Bytes KeyStore::encode_roots(sql::Reader& snapshot) {
  Lock change(changing_);
  const auto seen = load(snapshot);
  Lock lock(mu_);
  for (const auto& r : seen) {
    const auto now = records_.find({r.kind, r.zone, r.tenant, r.version});
    if (r.kind == KeyKind::zone && (now == records_.end() || now->second.wrapped != r.wrapped))
      throw Error(Code::conflict, "the keys were rotated just now: try again");
  }
  return roots_.encode();
}

}  // namespace falaj::vault
