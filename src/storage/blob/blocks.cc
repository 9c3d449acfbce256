// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/blocks.h"

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/crypto/hash.h"

namespace falaj::blob {

namespace {

constexpr std::size_t kWholeMax = 1U << 18;  // 256 GiB of chunks, about 16 MB

std::string space_of(const ZoneName& zone, const TenantName& tenant) {
  ByteWriter out;
  out.text("falaj blob space");
  out.text(zone.value);
  out.text(tenant.value);
  return crypto::sha256(out.bytes()).hex().substr(0, 32);
}

std::string prefix_of(const Tenant& tenant, Kind kind) { return tenant.space + "/" + static_cast<char>(kind) + "/"; }

}  // namespace

std::string Blocks::name_of(const Tenant& tenant, Kind kind, const Digest& address) {
  return prefix_of(tenant, kind) + address.hex();
}

Digest Blocks::address_in(const BlobInfo& info) { return Digest::parse(info.name.substr(info.name.rfind('/') + 1)); }

bool Blocks::is_older_than(const BlobInfo& info, sys::Micros age) const {
  return info.modified_us < (clock_.wall() - age).count();
}

std::shared_ptr<const Tenant> Blocks::tenant(const TenantName& name) {
  return std::shared_ptr<const Tenant>(
      new Tenant{name, space_of(zone_, name), keys_.address_key(name), keys_.newest(name)});
}

KeyOfVersion Blocks::key_of(const Tenant& tenant) {
  return [this, &tenant](std::uint32_t version) {
    if (version == tenant.newest.version) return tenant.newest.key.copy();
    try {
      return keys_.version(tenant.name, version);
    } catch (const Error& error) {
      if (error.code() != Code::not_found) throw;
      throw Error(Code::corrupt, "the tenant has no key of version " + std::to_string(version));
    }
  };
}

Bytes Blocks::open(const Tenant& tenant, Kind kind, const Digest& address, BytesView block) {
  try {
    return open_block({zone_, tenant.name, kind, address}, key_of(tenant), block);
  } catch (const Error& error) {
    if (error.code() != Code::corrupt) throw;
    probe_.blocks_damaged.Increment();
    throw Error(Code::corrupt, name_of(tenant, kind, address) + ": " + error.what());
  }
}

void Blocks::remember_whole(const Digest& address) {
  Lock lock(mu_);
  if (whole_.size() >= kWholeMax) whole_.clear();
  whole_.insert(address);
}

bool Blocks::is_whole(const Tenant& tenant, Kind kind, const Digest& address) {
  {
    Lock lock(mu_);
    if (whole_.contains(address)) return true;
  }
  try {
    (void)get(tenant, kind, address);
    return true;
  } catch (const Error& error) {
    if (error.code() != Code::corrupt && error.code() != Code::not_found) throw;
    return false;
  }
}

void Blocks::write(const std::string& name, BytesView block, Durable durable, Existing existing) {
  struct UnderWay {
    std::atomic<std::uint64_t>& count;
    explicit UnderWay(std::atomic<std::uint64_t>& c) : count(c) { ++count; }
    ~UnderWay() { --count; }
  } const under_way(puts_under_way_);
  backend_.put(name, block, durable, existing);
  if (durable == Durable::at_sync) ++writes_;
}

void Blocks::sync() {
  const bool idle = puts_under_way_ == 0;  // read first: a put that ends now shows in writes_
  const std::uint64_t writes = writes_;
  if (idle && writes == writes_synced_) return;
  backend_.sync();
  std::uint64_t synced = writes_synced_;
  while (synced < writes && !writes_synced_.compare_exchange_weak(synced, writes)) {
  }
}

std::uint64_t Blocks::put(const Tenant& tenant, Kind kind, const Digest& address, BytesView body, Durable durable,
                          Pins::Put& pins) {
  const std::string name = name_of(tenant, kind, address);
  pins.add(address);
  const auto there = backend_.stat(name);
  const bool whole = there && is_whole(tenant, kind, address);
  // What an object refers to is safe as long as its record is young; so an old record is written again.
  const bool too_old = kind == Kind::object && there && is_older_than(*there, grace_ / 2);
  if (whole && !too_old) {
    probe_.blocks_known.Increment();
    return 0;
  }
  if (there && !whole) {
    log::warn("blob_block_repaired", {{"name", name}});
    probe_.blocks_repaired.Increment();
  }
  thread_local Bytes block;
  seal_block(block, {zone_, tenant.name, kind, address}, tenant.newest.version, tenant.newest.key, body);
  write(name, block, durable, there ? Existing::replace : Existing::keep);
  remember_whole(address);
  probe_.blocks_stored.Increment();
  probe_.bytes_stored.Increment(static_cast<double>(block.size()));
  return there ? 0 : block.size();
}

Bytes Blocks::get(const Tenant& tenant, Kind kind, const Digest& address) {
  const Bytes block = backend_.get(name_of(tenant, kind, address), 0, kBlockBytesMax + 1);
  Bytes body = open(tenant, kind, address, block);
  remember_whole(address);
  return body;
}

bool Blocks::exists(const Tenant& tenant, Kind kind, const Digest& address) {
  return backend_.stat(name_of(tenant, kind, address)).has_value();
}

bool Blocks::rewrap(const Tenant& tenant, Kind kind, const Digest& address) {
  const std::string name = name_of(tenant, kind, address);
  if (parse_block_header(backend_.get(name, 0, kBlockHeaderBytes)).key_version == tenant.newest.version) return false;
  const Bytes block = backend_.get(name, 0, kBlockBytesMax + 1);
  const BlockId id{zone_, tenant.name, kind, address};
  write(name, rewrap_block(id, key_of(tenant), tenant.newest.version, block), Durable::at_sync, Existing::replace);
  return true;
}

std::vector<BlobInfo> Blocks::list(const Tenant& tenant, Kind kind, const std::string& after, std::size_t limit) {
  return backend_.list(prefix_of(tenant, kind), after, limit);
}

void Blocks::remove(const Tenant& tenant, Kind kind, const Digest& address) {
  backend_.remove(name_of(tenant, kind, address));
  Lock lock(mu_);
  whole_.erase(address);
}

}  // namespace falaj::blob
