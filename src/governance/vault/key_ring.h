// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/base/names.h"
#include "foundation/sys/clock.h"
#include "governance/vault/root_keys.h"
#include "storage/blob/keys.h"
#include "storage/sql/database.h"

namespace falaj::vault {

struct KeyInfo {
  std::string level;  // "zone", "tenant" or "address"
  std::string zone, tenant;
  std::uint32_t version = 0;
  bool newest = false;
  std::int64_t created_us = 0;
};

struct Rotated {
  std::uint32_t version = 0;  // of the new key
  std::int64_t rewrapped = 0;  // keys below it that were wrapped again
};

// The keys between the root and the objects, each wrapped by the one above it:
//   root -> zone -> tenant in that zone -> (in each block) data key
// A level rotates by making a new key and wrapping again only the keys below it; data keys stay with the version that
// wrapped them, so no object is rewritten. A tenant also has an address key per zone, which never changes.
// Thread-safe.
class KeyRing {
 public:
  static std::span<const sql::Migration> migrations();

  // `save_roots` makes the root keys durable; called when they change.
  KeyRing(sql::Database& database, RootKeys roots, std::function<void(const RootKeys&)> save_roots, const sys::Clock& clock);

  // Makes what is missing for a tenant in a zone, in one audited write; nothing when all is there.
  void ensure(const ZoneName& zone, const TenantName& tenant, const sql::Act& caller);
  std::unique_ptr<blob::Keys> of_zone(const ZoneName& zone);  // for a blob::Store; the ring outlives it

  Rotated rotate_root(const sql::Act& act);
  Rotated rotate_zone(const ZoneName& zone, const sql::Act& act);                             // not_found
  Rotated rotate_tenant(const ZoneName& zone, const TenantName& tenant, const sql::Act& act);  // not_found

  std::vector<KeyInfo> list() const;
  Bytes encode_roots() const;  // for a backup; secret

 private:
  struct Slot {
    std::string level, zone, tenant;
    friend auto operator<=>(const Slot&, const Slot&) = default;
  };
  struct Row {
    std::uint32_t parent_version = 0;
    Bytes wrapped;
    std::int64_t created_us = 0;
  };
  using Table = std::map<Slot, std::map<std::uint32_t, Row>>;  // by version
  friend class ZoneKeys;

  crypto::Key key(const Slot& slot, std::optional<std::uint32_t> version) const EXCLUDES(mu_);
  std::uint32_t newest_version(const Slot& slot) const EXCLUDES(mu_);  // not_found
  // Replaces the table by `next`, first in the database: rows that differ are written, rows that are gone deleted.
  void change(const sql::Act& act, const Table& next) REQUIRES(changing_);

  static crypto::Key unwrap(const Table& table, const RootKeys& roots, const Slot& slot, std::uint32_t version);
  static Row wrap(const Table& table, const RootKeys& roots, const Slot& slot, std::uint32_t version, const crypto::Key& key, std::int64_t created_us);

  sql::Database& database_;
  const std::function<void(const RootKeys&)> save_roots_;
  const sys::Clock& clock_;

  Mutex changing_;    // held over a whole change, the database's part included; taken before mu_
  mutable Mutex mu_;  // guards everything below
  RootKeys roots_ GUARDED_BY(mu_);
  Table table_ GUARDED_BY(mu_);
};

}  // namespace falaj::vault
