// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/mutex.h"
#include "foundation/base/names.h"
#include "foundation/crypto/key.h"

namespace falaj::crypto {

struct VersionedKey {
  std::uint32_t version = 0;
  Key key;
};

// The keys at rest: the root key wraps zones' keys, a zone's key wraps its tenants' keys and address keys, and those
// wrap data keys (storage/blob). Only the root key is kept outside.
enum class KeyKind : std::uint8_t { zone = 1, tenant = 2, address = 3 };
enum class KeyState : std::uint8_t {
  active = 1,     // the newest: what is made from now on uses it
  retired = 2,    // opens what was made with it
  destroyed = 3,  // gone, and with it all that only it opened
};
std::string_view name(KeyKind kind);
std::string_view name(KeyState state);

struct KeyRecord {
  KeyKind kind = KeyKind::zone;
  ZoneName zone;
  TenantName tenant;          // empty for a zone's key
  std::uint32_t version = 1;  // an address key has only one
  KeyState state = KeyState::active;
  Bytes wrapped;  // empty when destroyed
};

// All wrapped keys and the way down to each. It changes nothing by itself: a plan_ function returns the records to
// write, whoever keeps them writes them (in one transaction), then apply() makes them count. Thread-safe; plans are the
// business of one thread at a time.
// Errors: not_found, exists, denied (destroyed), corrupt (a record that the key above does not open).
class KeyRing {
 public:
  KeyRing(Key root, std::vector<KeyRecord> records);

  std::vector<KeyRecord> plan_zone(const ZoneName& zone) const;
  std::vector<KeyRecord> plan_tenant(const ZoneName& zone, const TenantName& tenant) const;
  // A new version; older ones still open what they wrapped.
  std::vector<KeyRecord> plan_tenant_rotation(const ZoneName& zone, const TenantName& tenant) const;
  // A new version that wraps all of the zone's keys anew; the old one is destroyed, since nothing needs it.
  std::vector<KeyRecord> plan_zone_rotation(const ZoneName& zone) const;
  // Every zone's keys wrapped by another root. After writing them, make a new KeyRing with it.
  std::vector<KeyRecord> plan_root_rotation(const Key& new_root) const;
  // Destroys all versions: nobody ever reads the tenant's bytes in that zone again.
  std::vector<KeyRecord> plan_shredding(const ZoneName& zone, const TenantName& tenant) const;
  // Destroys retired versions below `version`; for after everything was rewrapped.
  std::vector<KeyRecord> plan_retirement(const ZoneName& zone, const TenantName& tenant, std::uint32_t version) const;
  void apply(std::span<const KeyRecord> records);

  VersionedKey newest(const ZoneName& zone, const TenantName& tenant) const;
  Key version(const ZoneName& zone, const TenantName& tenant, std::uint32_t version) const;
  Key address_key(const ZoneName& zone, const TenantName& tenant) const;
  void verify() const;  // opens every key; throws corrupt

 private:
  struct Name {
    KeyKind kind;
    ZoneName zone;
    TenantName tenant;
    std::uint32_t version;
    friend auto operator<=>(const Name&, const Name&) = default;
  };
  static Name name_of(const KeyRecord& record);
  std::vector<KeyRecord> versions(KeyKind kind, const ZoneName& zone, const TenantName& tenant) const;
  KeyRecord active(KeyKind kind, const ZoneName& zone, const TenantName& tenant) const;
  KeyRecord find(const Name& name) const;
  Key zone_key(const ZoneName& zone) const;

  const Key root_;

  mutable Mutex mu_;
  std::map<Name, KeyRecord> records_ GUARDED_BY(mu_);
};

}  // namespace falaj::crypto
