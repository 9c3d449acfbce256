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

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/base/names.h"
#include "foundation/sys/clock.h"
#include "governance/iam/directory.h"
#include "governance/vault/key_store.h"
#include "storage/blob/store.h"
#include "storage/sql/database.h"

namespace falaj::vault {

struct Where {
  TenantName tenant;
  ProjectName project;
  iam::Scope scope() const { return iam::Scope::of_project(tenant.str(), project.str()); }
};

// A name in a project and the object it stands for.
struct Entry {
  std::string name;
  blob::Address address;
  ZoneName zone;
  std::uint64_t bytes = 0;
  Digest content;
  std::int64_t created_us = 0;
  std::string created_by;
  std::uint64_t new_bytes = 0;    // stored for it just now; 0 for known content
  std::vector<std::string> pins;  // reasons; only filled by info
};

// One file of a batch. Its source is read before the next file is asked for.
struct NewFile {
  std::string name;
  std::uint64_t bytes = 0;
  blob::Source source;
};
struct Batch {
  std::uint64_t files = 0, bytes = 0, new_bytes = 0;
};

// An object where it is, whatever names it.
struct Placed {
  ZoneName zone;
  blob::Address address;
  friend auto operator<=>(const Placed&, const Placed&) = default;
};
struct CollectReport {
  std::uint64_t objects = 0, bytes = 0, kept = 0;
  std::vector<std::string> missing;  // named, but not in the store
};
struct ScrubReport {
  std::uint64_t objects = 0, bytes = 0;
  std::vector<std::string> damaged;  // "zone/tenant: block: why"
};

inline constexpr std::size_t kNameBytesMax = 880;  // with its tenant and project a Scope
inline constexpr std::size_t kBatchFilesMax = 1'000'000;

// Bytes by name: who owns them, in which zone they are, what keeps them alive. Every byte is put and read through here,
// so a zone's rule and a tenant's keys hold whatever a handler does. Thread-safe.
class Vault {
 public:
  using MakeBackend = std::function<std::unique_ptr<blob::Backend>(const iam::Zone&)>;
  static std::span<const sql::Migration> migrations();

  Vault(sql::Database& database, const iam::Directory& directory, KeyStore& keys, MakeBackend make_backend,
        const sys::Clock& clock, Metrics& metrics, blob::StoreOptions options = {});
  ~Vault();

  // Stores the bytes, durable, then the name in one audited write; a name that is there gets the new object.
  // `zone`: one of the tenant's; the project's when not given. Errors: invalid, not_found, exhausted (a quota).
  Entry put(const Where& where, const std::optional<ZoneName>& zone, const std::string& name,
            const blob::Source& source, const sql::Act& act);
  // All names appear in one write, after all bytes are durable.
  Batch put_many(const Where& where, const std::optional<ZoneName>& zone,
                 const std::function<std::optional<NewFile>()>& next, const sql::Act& act);
  // Bytes to be read again soon, of no name: they go with a collection after the grace.
  Entry put_unnamed(const Where& where, const blob::Source& source, const sql::Act& act);

  // Throws denied when the bytes are in another zone than the project and no transfer grant covers them.
  std::unique_ptr<blob::ObjectReader> open(const Where& where, const Entry& entry, std::uint64_t offset,
                                           std::uint64_t length);

  Entry info(const Where& where, const std::string& name) const;  // not_found
  std::vector<Entry> list(const Where& where, const std::string& prefix, const std::string& after,
                          std::size_t limit) const;
  void remove(const Where& where, const std::string& name, const sql::Act& act);  // not_found
  // Up to `limit` names that begin with `prefix`, in one write; nothing is written when there is none.
  struct Removed {
    std::uint64_t names = 0, bytes = 0;
  };
  Removed remove_below(const Where& where, const std::string& prefix, std::size_t limit, const sql::Act& act);
  Removed total_below(sql::Reader& reader, const Where& where, const std::string& prefix) const;  // what it would be
  // Keeps an object whatever happens to its names. `name_or_address`: an address is only known here if a pin holds it.
  void pin(const Where& where, const std::string& name, const std::string& reason, const sql::Act& act);
  void unpin(const Where& where, const std::string& name_or_address, const std::string& reason, const sql::Act& act);

  // ---- the same within another's read or write
  // Requires: the entry was listed in the same write, or is pinned: else its object may be gone by now.
  void pin(sql::Writer& writer, const Where& where, const Entry& entry, const std::string& reason);
  void unpin(sql::Writer& writer, const Where& where, const Entry& entry, const std::string& reason);  // idempotent
  std::vector<Entry> list(sql::Reader& reader, const Where& where, const std::string& prefix, const std::string& after,
                          std::size_t limit) const;

  // While one lives, everything that was named or pinned when it was made stays readable: collect throws conflict.
  class Hold {
   public:
    explicit Hold(Vault& vault);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Vault& vault_;
  };
  // Deletes what nothing names or pins and is older than the grace. What cannot be collected does not keep the rest
  // from it; the first reason is thrown at the end.
  CollectReport collect(const sql::Act& act);
  // Destroys these now, without the grace, with all that nothing else is made of; returns those that a name, a pin or a
  // put under way still needs, which stay. Throws conflict while a backup or a collection goes on; safe to repeat.
  std::vector<Placed> destroy(const TenantName& tenant, std::span<const Placed> objects, const sql::Act& act);
  ScrubReport scrub();
  struct Totals {
    std::uint64_t names = 0, bytes = 0;
    std::vector<std::string> zones;
  };
  Totals totals() const;

  // Every object that something keeps, for a backup.
  struct Kept {
    ZoneName zone;
    TenantName tenant;
    blob::Address address;
  };
  std::vector<Kept> kept(sql::Reader& reader) const;
  blob::Store& store(const ZoneName& zone);  // not_found

 private:
  struct Opened {
    std::unique_ptr<blob::Backend> backend;
    std::unique_ptr<blob::Keys> keys;
    std::unique_ptr<blob::Store> store;
  };
  ZoneName zone_for(const Where& where, const std::optional<ZoneName>& wanted) const;
  Entry store_bytes(const Where& where, const std::optional<ZoneName>& zone, const blob::Source& source,
                    const sql::Act& act, blob::Hold* hold = nullptr);
  void write_names(const Where& where, std::span<const Entry> entries, const sql::Act& act);

  sql::Database& database_;
  const iam::Directory& directory_;
  KeyStore& keys_;
  const MakeBackend make_backend_;
  const sys::Clock& clock_;
  Metrics& metrics_;
  const blob::StoreOptions options_;

  Mutex mu_;
  std::map<ZoneName, Opened> stores_ GUARDED_BY(mu_);
  int holds_ GUARDED_BY(mu_) = 0;
};

}  // namespace falaj::vault
