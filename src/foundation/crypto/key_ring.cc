// SPDX-License-Identifier: Apache-2.0
#include "foundation/crypto/key_ring.h"

#include <limits>

#include "foundation/base/error.h"
#include "foundation/crypto/aead.h"

namespace falaj::crypto {

namespace {

// Bound to a wrapped key, so that no record can stand in for another.
Bytes bound(const KeyRecord& record) {
  ByteWriter out;
  out.text("falaj key v1");
  out.u8(static_cast<std::uint8_t>(record.kind));
  out.text(record.zone.value);
  out.text(record.tenant.value);
  out.u32(record.version);
  return out.take();
}

std::string describe(KeyKind kind, const ZoneName& zone, const TenantName& tenant) {
  std::string text = std::string(name(kind)) + " key of zone '" + zone.value + "'";
  return tenant.empty() ? text : text + ", tenant '" + tenant.value + "'";
}

Key unwrap(const Key& above, const KeyRecord& record) {
  if (record.state == KeyState::destroyed) {
    throw Error(Code::denied, "destroyed: " + describe(record.kind, record.zone, record.tenant));
  }
  try {
    return unwrap_key(above, record.wrapped, bound(record));
  } catch (const Error&) {
    throw Error(Code::corrupt, "the key above does not open the " + describe(record.kind, record.zone, record.tenant));
  }
}

KeyRecord wrap(const Key& above, KeyRecord record, const Key& key) {
  record.wrapped = wrap_key(above, key, bound(record));
  return record;
}

KeyRecord destroyed(KeyRecord record) {
  record.state = KeyState::destroyed;
  record.wrapped.clear();
  return record;
}

}  // namespace

std::string_view name(KeyKind kind) {
  return kind == KeyKind::zone ? "zone" : kind == KeyKind::tenant ? "tenant" : "address";
}
std::string_view name(KeyState state) {
  return state == KeyState::active ? "active" : state == KeyState::retired ? "retired" : "destroyed";
}

KeyRing::KeyRing(Key root, std::vector<KeyRecord> records) : root_(std::move(root)) { apply(records); }

KeyRing::Name KeyRing::name_of(const KeyRecord& record) {
  return {record.kind, record.zone, record.tenant, record.version};
}

void KeyRing::apply(std::span<const KeyRecord> records) {
  Lock lock(mu_);
  for (const auto& record : records) records_.insert_or_assign(name_of(record), record);
}

std::vector<KeyRecord> KeyRing::versions(KeyKind kind, const ZoneName& zone, const TenantName& tenant) const {
  Lock lock(mu_);
  std::vector<KeyRecord> found;
  const auto end = records_.upper_bound({kind, zone, tenant, std::numeric_limits<std::uint32_t>::max()});
  for (auto it = records_.lower_bound({kind, zone, tenant, 0}); it != end; ++it) found.push_back(it->second);
  return found;
}

KeyRecord KeyRing::active(KeyKind kind, const ZoneName& zone, const TenantName& tenant) const {
  const auto all = versions(kind, zone, tenant);
  if (all.empty()) throw Error(Code::not_found, "no " + describe(kind, zone, tenant));
  return all.back();  // versions only grow; a destroyed one fails when it is opened
}

KeyRecord KeyRing::find(const Name& name) const {
  Lock lock(mu_);
  const auto it = records_.find(name);
  if (it == records_.end()) {
    throw Error(Code::not_found, "no version " + std::to_string(name.version) + " of the " +
                                     describe(name.kind, name.zone, name.tenant));
  }
  return it->second;
}

Key KeyRing::zone_key(const ZoneName& zone) const { return unwrap(root_, active(KeyKind::zone, zone, {})); }

VersionedKey KeyRing::newest(const ZoneName& zone, const TenantName& tenant) const {
  const KeyRecord record = active(KeyKind::tenant, zone, tenant);
  return {record.version, unwrap(zone_key(zone), record)};
}
Key KeyRing::version(const ZoneName& zone, const TenantName& tenant, std::uint32_t version) const {
  return unwrap(zone_key(zone), find({KeyKind::tenant, zone, tenant, version}));
}
Key KeyRing::address_key(const ZoneName& zone, const TenantName& tenant) const {
  return unwrap(zone_key(zone), active(KeyKind::address, zone, tenant));
}

void KeyRing::verify() const {
  std::vector<KeyRecord> all;
  {
    Lock lock(mu_);
    for (const auto& [name, record] : records_) all.push_back(record);
  }
  for (const auto& record : all) {
    if (record.state == KeyState::destroyed) continue;
    (void)(record.kind == KeyKind::zone ? unwrap(root_, record) : unwrap(zone_key(record.zone), record));
  }
}

std::vector<KeyRecord> KeyRing::plan_zone(const ZoneName& zone) const {
  if (!versions(KeyKind::zone, zone, {}).empty()) throw Error(Code::exists, "the zone has a key: " + zone.value);
  return {wrap(root_, {KeyKind::zone, zone, {}, 1, KeyState::active, {}}, Key::random())};
}

std::vector<KeyRecord> KeyRing::plan_tenant(const ZoneName& zone, const TenantName& tenant) const {
  if (!versions(KeyKind::tenant, zone, tenant).empty()) {
    throw Error(Code::exists, "the tenant has keys in that zone: " + tenant.value);
  }
  const Key above = zone_key(zone);
  return {wrap(above, {KeyKind::tenant, zone, tenant, 1, KeyState::active, {}}, Key::random()),
          wrap(above, {KeyKind::address, zone, tenant, 1, KeyState::active, {}}, Key::random())};
}

std::vector<KeyRecord> KeyRing::plan_tenant_rotation(const ZoneName& zone, const TenantName& tenant) const {
  KeyRecord old = active(KeyKind::tenant, zone, tenant);
  const Key above = zone_key(zone);
  (void)unwrap(above, old);  // a destroyed tenant stays destroyed
  KeyRecord fresh = wrap(above, {KeyKind::tenant, zone, tenant, old.version + 1, KeyState::active, {}}, Key::random());
  old.state = KeyState::retired;
  return {std::move(old), std::move(fresh)};
}

std::vector<KeyRecord> KeyRing::plan_zone_rotation(const ZoneName& zone) const {
  const KeyRecord old = active(KeyKind::zone, zone, {});
  const Key old_key = unwrap(root_, old), new_key = Key::random();
  std::vector<KeyRecord> plan = {destroyed(old)};
  plan.push_back(wrap(root_, {KeyKind::zone, zone, {}, old.version + 1, KeyState::active, {}}, new_key));
  Lock lock(mu_);
  for (const auto& [name, record] : records_) {
    const bool below = record.zone == zone && record.kind != KeyKind::zone && record.state != KeyState::destroyed;
    if (below) plan.push_back(wrap(new_key, record, unwrap(old_key, record)));
  }
  return plan;
}

std::vector<KeyRecord> KeyRing::plan_root_rotation(const Key& new_root) const {
  std::vector<KeyRecord> plan;
  Lock lock(mu_);
  for (const auto& [name, record] : records_) {
    const bool below = record.kind == KeyKind::zone && record.state != KeyState::destroyed;
    if (below) plan.push_back(wrap(new_root, record, unwrap(root_, record)));
  }
  return plan;
}

std::vector<KeyRecord> KeyRing::plan_shredding(const ZoneName& zone, const TenantName& tenant) const {
  std::vector<KeyRecord> plan;
  for (const KeyKind kind : {KeyKind::tenant, KeyKind::address}) {
    for (const auto& record : versions(kind, zone, tenant)) plan.push_back(destroyed(record));
  }
  if (plan.empty()) throw Error(Code::not_found, "no " + describe(KeyKind::tenant, zone, tenant));
  return plan;
}

std::vector<KeyRecord> KeyRing::plan_retirement(const ZoneName& zone, const TenantName& tenant,
                                                std::uint32_t version) const {
  std::vector<KeyRecord> plan;
  for (const auto& record : versions(KeyKind::tenant, zone, tenant)) {
    if (record.state == KeyState::retired && record.version < version) plan.push_back(destroyed(record));
  }
  return plan;
}

}  // namespace falaj::crypto
