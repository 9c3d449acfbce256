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

}  // namespace falaj::blob
