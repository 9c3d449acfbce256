// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/base/names.h"
#include "foundation/crypto/key_ring.h"
#include "foundation/sys/clock.h"
#include "governance/vault/root_keys.h"
#include "storage/blob/keys.h"
#include "storage/sql/database.h"

namespace falaj::vault {

struct KeyInfo {
  std::string level, zone, tenant, state;
  std::uint32_t version = 0;
};

struct Rotated {
  std::uint32_t version = 0;   // of the new key
  std::int64_t rewrapped = 0;  // keys below it that were wrapped again
};

// Keeps the keys between the root and the objects in the database, wrapped: crypto::KeyRing decides, this writes, each
// change in one audited write. No object is rewritten when a key rotates. Thread-safe.
class KeyStore {
 public:
  static std::span<const sql::Migration> migrations();

  // `save_roots` makes the root keys durable; called when they change. Throws corrupt or denied when the root key is
  // not the one that wraps what is in the database.
  KeyStore(sql::Database& database, RootKeys roots, std::function<void(const RootKeys&)> save_roots);

  // Makes what is missing for a tenant in a zone; nothing when all is there.
  void ensure(const ZoneName& zone, const TenantName& tenant, const sql::Act& caller);
  std::shared_ptr<const crypto::KeyRing> ring() const;
  std::unique_ptr<blob::Keys> of_zone(const ZoneName& zone) const;  // for a blob::Store; this outlives it

  Rotated rotate_root(const sql::Act& act);
  Rotated rotate_zone(const ZoneName& zone, const sql::Act& act);                              // not_found
  Rotated rotate_tenant(const ZoneName& zone, const TenantName& tenant, const sql::Act& act);  // not_found

  std::vector<KeyInfo> list() const;
  // The root keys that open the keys in `snapshot`, for a backup; secret. Throws conflict when the zones' keys were
  // wrapped anew since the snapshot was made.
  Bytes encode_roots(sql::Reader& snapshot);
  std::uint64_t changes() const { return changes_.load(); }  // grows with each change of a key

 private:
  using Place = std::tuple<crypto::KeyKind, ZoneName, TenantName, std::uint32_t>;
  using Records = std::map<Place, crypto::KeyRecord>;
  void write(const sql::Act& act, std::span<const crypto::KeyRecord> records) REQUIRES(changing_);
  void publish(std::span<const crypto::KeyRecord> changed, const crypto::Key& root) REQUIRES(mu_);
  Records snapshot() const EXCLUDES(mu_);
  static std::vector<crypto::KeyRecord> load(sql::Reader& reader);

  sql::Database& database_;
  const std::function<void(const RootKeys&)> save_roots_;
  std::atomic<std::uint64_t> changes_{0};

  Mutex changing_;    // held over a whole change, the database's part included; taken before mu_
  mutable Mutex mu_;  // guards everything below
  RootKeys roots_ GUARDED_BY(mu_);
  Records records_ GUARDED_BY(mu_);
  std::shared_ptr<crypto::KeyRing> ring_ GUARDED_BY(mu_);
};

}  // namespace falaj::vault
