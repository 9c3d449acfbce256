// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "foundation/base/names.h"
#include "foundation/crypto/key.h"
#include "foundation/crypto/key_ring.h"

namespace falaj::blob {

using crypto::VersionedKey;

// What the store needs to know of a tenant's keys in its zone. Thread-safe. Errors: not_found (no such tenant or
// version), denied (destroyed).
class Keys {
 public:
  virtual ~Keys() = default;
  virtual VersionedKey newest(const TenantName& tenant) = 0;  // wraps the data keys of what is put from now on
  virtual crypto::Key version(const TenantName& tenant, std::uint32_t version) = 0;
  virtual crypto::Key address_key(const TenantName& tenant) = 0;  // never changes: content keeps its address
};

// One zone of a key ring.
class RingKeys final : public Keys {
 public:
  RingKeys(const crypto::KeyRing& ring, ZoneName zone) : ring_(ring), zone_(std::move(zone)) {}
  VersionedKey newest(const TenantName& tenant) override { return ring_.newest(zone_, tenant); }
  crypto::Key version(const TenantName& tenant, std::uint32_t version) override {
    return ring_.version(zone_, tenant, version);
  }
  crypto::Key address_key(const TenantName& tenant) override { return ring_.address_key(zone_, tenant); }

 private:
  const crypto::KeyRing& ring_;
  const ZoneName zone_;
};

}  // namespace falaj::blob
