// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/names.h"
#include "foundation/sys/clock.h"
#include "storage/blob/backend.h"
#include "storage/blob/keys.h"
#include "storage/blob/manifest.h"
#include "storage/blob/object.h"

namespace falaj::blob {

struct StoreOptions {
  unsigned threads = 1;  // besides the caller's own
  // How long an object that nobody names is safe from the collector: name what you put within this.
  sys::Micros grace = std::chrono::hours(24);
  std::uint64_t object_bytes_max = std::uint64_t{1} << 44;
  std::size_t list_entries = kListEntries;  // chunks that an object's record or one list names; less only in tests
};

// An object's bytes, in order. Not thread-safe. Every piece was verified before it is given out.
class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual const ObjectInfo& info() const = 0;
  virtual Bytes next() = 0;  // empty at the end; throws corrupt, unavailable
  Bytes read_all();
};

struct Collected {
  std::uint64_t objects = 0, blocks = 0, bytes = 0;  // removed; an object's record is one of the blocks
  std::vector<Address> missing;                      // roots that are not there
};
// What was put is spared by the collector, and by destroy, as long as one of these lives that was given to the put:
// until it has a name. It does not outlive the store.
using Hold = std::vector<std::shared_ptr<const void>>;

struct Destroyed {
  std::uint64_t objects = 0, blocks = 0, bytes = 0;  // removed
  std::vector<Address> needed;                       // of those that were asked for: they stay
};
struct Damage {
  std::string name;  // of the block, as the backend knows it
  std::string reason;
};
struct Scrubbed {
  std::uint64_t blocks = 0, bytes = 0;  // looked at
  std::vector<Damage> damaged;
};

// Objects of many tenants in one zone: cut into chunks by content, named by a hash under a key of the tenant's, packed,
// and sealed for the tenant and the zone. Putting the same content again stores nothing. Deduplication never crosses a
// tenant. Thread-safe; memory stays constant however large an object is.
// Errors: not_found, denied (another zone, a destroyed key), corrupt (with the block's name), unavailable, exhausted.
class Store {
 public:
  Store(ZoneName zone, Backend& backend, Keys& keys, const sys::Clock& clock, Metrics& metrics,
        StoreOptions options = {});
  ~Store();

  // Acknowledged means durable: both return when everything is on disk.
  Stored put(const TenantName& tenant, const Source& source, Hold* hold = nullptr);
  std::vector<Stored> put_many(const TenantName& tenant, std::span<const Source> sources,
                               Hold* hold = nullptr);  // one sync for all

  // From `offset`, at most `length` bytes; fewer where the object ends.
  std::unique_ptr<ObjectReader> get(const Reader& reader, const Address& address, std::uint64_t offset = 0,
                                    std::uint64_t length = Backend::kToTheEnd);
  ObjectInfo stat(const Reader& reader, const Address& address);
  bool exists(const Reader& reader, const Address& address);
  // Forgets the object now, for whoever put it; what it was made of goes with the next collection.
  void remove(const TenantName& tenant, const Address& address);
  // In order of addresses, after `after`.
  std::vector<ListedObject> list(const TenantName& tenant, const std::optional<Address>& after, std::size_t limit);

  // Removes what is older than the grace and belongs neither to a root nor to an object put within the grace. Puts may
  // go on meanwhile. Throws conflict when one is under way already, corrupt when a live object cannot be read: nothing
  // is removed then, since what it refers to is not known.
  Collected collect(const TenantName& tenant, std::span<const Address> roots);
  // Removes these objects now, however young, and with them every block that no other object refers to. `needed` gives
  // what stays; it is asked when no put can end any more without being seen. Safe to repeat after a crash. Throws as
  // collect does.
  Destroyed destroy(const TenantName& tenant, std::span<const Address> objects,
                    const std::function<std::vector<Address>()>& needed);
  // Reads and verifies everything of a tenant.
  Scrubbed scrub(const TenantName& tenant);
  // Wraps all data keys by the tenant's newest key; returns how many blocks were rewritten. Older versions of the key
  // are not needed any more when it returns.
  std::uint64_t rewrap(const TenantName& tenant);

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace falaj::blob
