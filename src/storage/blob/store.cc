// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/store.h"

#include <algorithm>
#include <cstring>

#include "foundation/base/error.h"
#include "storage/blob/batch.h"
#include "storage/blob/blocks.h"
#include "storage/blob/object_reader.h"
#include "storage/blob/upkeep.h"
#include "storage/blob/workers.h"

namespace falaj::blob {

Source source_of(BytesView bytes) {
  return [bytes](std::span<std::byte> out) mutable {
    const std::size_t n = std::min(out.size(), bytes.size());
    if (n > 0) std::memcpy(out.data(), bytes.data(), n);
    bytes = bytes.subspan(n);
    return n;
  };
}

struct Store::Rep {
  Blocks blocks;
  Workers workers;
  const StoreOptions options;
  std::atomic<bool> collecting{false};

  // Throws denied unless the bytes stay in this zone, or may leave it.
  void admit(const Reader& reader, const Address& address) {
    if (reader.zone == blocks.zone()) return;
    const TransferGrant* grant = reader.grant;
    const bool granted = grant && grant->from == blocks.zone() && grant->to == reader.zone &&
                         grant->tenant == reader.tenant && grant->object.value_or(address) == address &&
                         blocks.clock().wall().count() < grant->expires_unix_us;
    if (granted) return;
    blocks.probe().zone_refusals.Increment();
    throw Error(Code::denied, "the object is in zone '" + blocks.zone().value + "' and may not be read in zone '" +
                                  reader.zone.value + "' without a transfer grant");
  }
};

Store::Store(ZoneName zone, Backend& backend, Keys& keys, const sys::Clock& clock, Metrics& metrics,
             StoreOptions options)
    : rep_(new Rep{{std::move(zone), backend, keys, clock, options.grace, metrics},
                   Workers(options.threads),
                   options,
                   {false}}) {}
Store::~Store() = default;

Stored Store::put(const TenantName& tenant, const Source& source, Hold* hold) {
  Batch batch(rep_->blocks, rep_->workers, tenant, rep_->options, Durable::now);
  batch.add(source);
  if (hold) hold->push_back(batch.pins());
  return batch.commit().front();
}

std::vector<Stored> Store::put_many(const TenantName& tenant, std::span<const Source> sources, Hold* hold) {
  Batch batch(rep_->blocks, rep_->workers, tenant, rep_->options, Durable::at_sync);
  for (const auto& source : sources) batch.add(source);
  if (hold) hold->push_back(batch.pins());
  return batch.commit();
}

std::unique_ptr<ObjectReader> Store::get(const Reader& reader, const Address& address, std::uint64_t offset,
                                         std::uint64_t length) {
  rep_->admit(reader, address);
  return std::make_unique<ChunkReader>(rep_->blocks, rep_->workers, rep_->blocks.tenant(reader.tenant), address, offset,
                                       length);
}

ObjectInfo Store::stat(const Reader& reader, const Address& address) {
  rep_->admit(reader, address);
  const Manifest manifest = read_record(rep_->blocks, *rep_->blocks.tenant(reader.tenant), address);
  return {address, manifest.size, manifest.content};
}

bool Store::exists(const Reader& reader, const Address& address) {
  rep_->admit(reader, address);
  return rep_->blocks.exists(*rep_->blocks.tenant(reader.tenant), Kind::object, address.digest);
}

void Store::remove(const TenantName& tenant, const Address& address) {
  rep_->blocks.remove(*rep_->blocks.tenant(tenant), Kind::object, address.digest);
  rep_->blocks.sync_removals();
}

std::vector<ListedObject> Store::list(const TenantName& tenant, const std::optional<Address>& after,
                                      std::size_t limit) {
  const auto keys = rep_->blocks.tenant(tenant);
  const std::string after_name = after ? Blocks::name_of(*keys, Kind::object, after->digest) : "";
  std::vector<ListedObject> listed;
  for (const auto& info : rep_->blocks.list(*keys, Kind::object, after_name, limit)) {
    listed.push_back({{Blocks::address_in(info)}, info.bytes, info.modified_us});
  }
  return listed;
}

namespace {
struct OneAtATime {
  std::atomic<bool>& taken;
  explicit OneAtATime(std::atomic<bool>& t) : taken(t) {
    if (taken.exchange(true)) throw Error(Code::conflict, "a collection is under way");
  }
  ~OneAtATime() { taken = false; }
};
}  // namespace

Collected Store::collect(const TenantName& tenant, std::span<const Address> roots) {
  const OneAtATime one(rep_->collecting);
  return collect_garbage(rep_->blocks, *rep_->blocks.tenant(tenant), roots);
}

Destroyed Store::destroy(const TenantName& tenant, std::span<const Address> objects,
                         const std::function<std::vector<Address>()>& needed) {
  const OneAtATime one(rep_->collecting);
  return destroy_objects(rep_->blocks, *rep_->blocks.tenant(tenant), objects, needed);
}

Scrubbed Store::scrub(const TenantName& tenant) { return scrub_blocks(rep_->blocks, *rep_->blocks.tenant(tenant)); }

std::uint64_t Store::rewrap(const TenantName& tenant) {
  return rewrap_blocks(rep_->blocks, *rep_->blocks.tenant(tenant));
}

}  // namespace falaj::blob
