// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "storage/blob/backend.h"
#include "storage/blob/block.h"
#include "storage/blob/keys.h"
#include "storage/blob/object.h"
#include "storage/blob/pins.h"
#include "storage/blob/probe.h"

namespace falaj::blob {

// A tenant's keys, taken once for a whole put or get.
struct Tenant {
  TenantName name;
  std::string space;  // the first element of its blobs' names: no user's word becomes a path
  crypto::Key address_key;
  VersionedKey newest;
};

// Sealed blocks in a backend, for one zone. Thread-safe.
class Blocks {
 public:
  Blocks(ZoneName zone, Backend& backend, Keys& keys, const sys::Clock& clock, sys::Micros grace, Metrics& metrics)
      : zone_(std::move(zone)), backend_(backend), keys_(keys), clock_(clock), grace_(grace), probe_(metrics) {}

  std::shared_ptr<const Tenant> tenant(const TenantName& name);  // not_found, denied

  // Returns the bytes that the backend holds more than before: none when a whole block is there already. A damaged one
  // is replaced. Ensures: an object's record is then younger than half the grace, so that the collector spares it.
  std::uint64_t put(const Tenant& tenant, Kind kind, const Digest& address, BytesView body, Durable durable,
                    Pins::Put& pins);
  // Throws not_found, corrupt (with the name).
  Bytes get(const Tenant& tenant, Kind kind, const Digest& address);
  bool exists(const Tenant& tenant, Kind kind, const Digest& address);
  // Rewrites the block for the newest version of the tenant's key; false when it has it already.
  bool rewrap(const Tenant& tenant, Kind kind, const Digest& address);
  // Blocks of one kind after `after` ("" at first), in order of their addresses.
  std::vector<BlobInfo> list(const Tenant& tenant, Kind kind, const std::string& after, std::size_t limit);
  void remove(const Tenant& tenant, Kind kind, const Digest& address);
  // Everything put, or found there already, is durable when it returns; free when it is so already.
  void sync();
  void sync_removals() { backend_.sync(); }

  static std::string name_of(const Tenant& tenant, Kind kind, const Digest& address);
  static Digest address_in(const BlobInfo& info);  // throws invalid
  bool is_older_than(const BlobInfo& info, sys::Micros age) const;

  const ZoneName& zone() const { return zone_; }
  sys::Micros grace() const { return grace_; }
  const sys::Clock& clock() const { return clock_; }
  Probe& probe() { return probe_; }
  Pins& pins() { return pins_; }

 private:
  Bytes open(const Tenant& tenant, Kind kind, const Digest& address, BytesView block);
  KeyOfVersion key_of(const Tenant& tenant);
  void write(const std::string& name, BytesView block, Durable durable, Existing existing);
  bool is_whole(const Tenant& tenant, Kind kind, const Digest& address);
  void remember_whole(const Digest& address);

  const ZoneName zone_;
  Backend& backend_;
  Keys& keys_;
  const sys::Clock& clock_;
  const sys::Micros grace_;
  Probe probe_;
  Pins pins_;

  // Whether there is anything to sync. A put counts as under way until its write shows in `writes_`.
  std::atomic<std::uint64_t> puts_under_way_{0};
  std::atomic<std::uint64_t> writes_{1};  // not 0: what an earlier process left may not be on disk yet
  std::atomic<std::uint64_t> writes_synced_{0};

  Mutex mu_;
  // Blocks that this process wrote or opened. One that was there before may be what a power loss left of it, so it is
  // opened once before anything relies on it.
  std::unordered_set<Digest> whole_ GUARDED_BY(mu_);
};

}  // namespace falaj::blob
