// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/upkeep.h"

#include <unordered_set>

#include "foundation/base/error.h"
#include "foundation/base/log.h"
#include "foundation/crypto/hash.h"
#include "storage/blob/manifest.h"
#include "storage/blob/object_reader.h"

namespace falaj::blob {

namespace {

constexpr Kind kKinds[] = {Kind::object, Kind::list, Kind::chunk};
constexpr std::size_t kPage = 4096;

template <class See>
void for_each_block(Blocks& blocks, const Tenant& tenant, Kind kind, See see) {
  std::string after;
  for (;;) {
    const auto page = blocks.list(tenant, kind, after, kPage);
    if (page.empty()) return;
    for (const auto& info : page) see(info);
    after = page.back().name;
  }
}

// Calls `see(kind, address)` for all that a record refers to.
template <class See>
void for_each_referred(Blocks& blocks, const Tenant& tenant, const Manifest& manifest, See see) {
  const auto see_chunks = [&](const std::vector<Part>& chunks) {
    for (const auto& chunk : chunks) see(Kind::chunk, address_of(tenant.address_key, Kind::chunk, chunk.digest));
  };
  if (manifest.form == Manifest::Form::chunks) see_chunks(manifest.parts);
  if (manifest.form != Manifest::Form::lists) return;
  for (const auto& list : manifest.parts) {
    see(Kind::list, address_of(tenant.address_key, Kind::list, list.digest));
    see_chunks(read_list(blocks, tenant, list));
  }
}

// Every address that must stay: of roots, of what `spared` says, and of all that those refer to. A block's kind is part
// of what its address is made of, so one set holds all kinds.
std::unordered_set<Digest> mark(Blocks& blocks, const Tenant& tenant, std::span<const Address> roots,
                                const std::function<bool(const Digest&, const BlobInfo&)>& spared,
                                std::vector<Address>& missing) {
  std::unordered_set<Digest> live;
  std::unordered_set<Address> wanted(roots.begin(), roots.end());
  for_each_block(blocks, tenant, Kind::object, [&](const BlobInfo& info) {
    const Digest address = Blocks::address_in(info);
    const bool is_root = wanted.erase({address}) > 0;
    if (!is_root && !spared(address, info)) return;
    live.insert(address);
    try {
      for_each_referred(blocks, tenant, read_record(blocks, tenant, {address}),
                        [&](Kind, const Digest& referred) { live.insert(referred); });
    } catch (const Error& error) {
      if (error.code() == Code::not_found) return;  // removed meanwhile
      // Never a root: what a power loss left of a put that nobody was told of. A later put of it writes it anew.
      if (!is_root && error.code() == Code::corrupt) {
        log::warn("blob_unnamed_object_damaged", {{"name", info.name}});
        return;
      }
      throw;
    }
  });
  missing.assign(wanted.begin(), wanted.end());
  return live;
}

}  // namespace

// Why a put that goes on meanwhile loses nothing. Let a put rely on a block that was there and that no root needs.
//  - While it runs, the block is pinned (pins.h), and if it ends during this collection, until the collection ends.
//  - If it ended before the collection began, its record was listed by mark(): younger than the grace, since a put
//    writes an old record again, it is live with all it refers to.
//  - If the process died, the put was never acknowledged.
// A block written by the put itself is younger than the grace. All of it holds as long as one process puts and
// collects.
Collected collect_garbage(Blocks& blocks, const Tenant& tenant, std::span<const Address> roots) {
  Pins::Collection collection(blocks.pins());
  Collected collected;
  const auto young = [&](const Digest&, const BlobInfo& info) { return !blocks.is_older_than(info, blocks.grace()); };
  const auto live = mark(blocks, tenant, roots, young, collected.missing);
  // Records first: after a crash in between no record is left without what it refers to.
  for (const Kind kind : kKinds) {
    for_each_block(blocks, tenant, kind, [&](const BlobInfo& info) {
      const Digest address = Blocks::address_in(info);
      if (live.contains(address) || !blocks.is_older_than(info, blocks.grace())) return;
      if (!collection.unless_pinned(address, [&] { blocks.remove(tenant, kind, address); })) return;
      collected.objects += kind == Kind::object ? 1 : 0;
      collected.blocks += 1;
      collected.bytes += info.bytes;
    });
    if (kind == Kind::object && collected.objects > 0) blocks.sync_removals();
  }
  blocks.probe().blocks_collected.Increment(static_cast<double>(collected.blocks));
  return collected;
}

// The same without the grace: what a put relies on is pinned until it has a name (store.h, Hold), and a put that ends
// from here on leaves its pins; so whatever is not pinned, not needed and referred to by no record is nobody's. Objects
// that nobody names but nobody wants destroyed stay until they are collected.
Destroyed destroy_objects(Blocks& blocks, const Tenant& tenant, std::span<const Address> objects,
                          const std::function<std::vector<Address>()>& needed) {
  Pins::Collection collection(blocks.pins());
  const auto roots = needed();
  const std::unordered_set<Address> kept(roots.begin(), roots.end());
  Destroyed destroyed;
  std::unordered_set<Digest> doomed;
  for (const auto& object : objects) {
    if (kept.contains(object))
      destroyed.needed.push_back(object);
    else
      doomed.insert(object.digest);
  }
  const auto remove = [&](Kind kind, const Digest& address) {
    return collection.unless_pinned(address, [&] { blocks.remove(tenant, kind, address); });
  };
  // Records first, as in a collection; a repetition after a crash finds what they left by what refers to it: nothing.
  for (auto it = doomed.begin(); it != doomed.end();) {
    const bool there = blocks.exists(tenant, Kind::object, *it);
    if (!there || remove(Kind::object, *it)) {
      destroyed.objects += there ? 1 : 0;
      ++it;
      continue;
    }
    destroyed.needed.push_back({*it});
    it = doomed.erase(it);
  }
  blocks.sync_removals();
  std::vector<Address> missing;
  const auto not_doomed = [&](const Digest& address, const BlobInfo&) { return !doomed.contains(address); };
  const auto live = mark(blocks, tenant, roots, not_doomed, missing);
  for (const Kind kind : {Kind::list, Kind::chunk}) {
    for_each_block(blocks, tenant, kind, [&](const BlobInfo& info) {
      const Digest address = Blocks::address_in(info);
      if (live.contains(address) || !remove(kind, address)) return;
      destroyed.blocks += 1;
      destroyed.bytes += info.bytes;
    });
  }
  blocks.sync_removals();
  blocks.probe().blocks_collected.Increment(static_cast<double>(destroyed.blocks));
  return destroyed;
}

Scrubbed scrub_blocks(Blocks& blocks, const Tenant& tenant) {
  Scrubbed scrubbed;
  std::unordered_set<Digest> there;
  // Chunks and lists first, so that what is put meanwhile is not missed below.
  const auto look = [&](Kind kind, const BlobInfo& info) {
    scrubbed.blocks += 1;
    scrubbed.bytes += info.bytes;
    try {
      const Digest address = Blocks::address_in(info);
      const Bytes body = blocks.get(tenant, kind, address);
      if (kind == Kind::object) {
        const Manifest manifest = read_record(blocks, tenant, {address});
        if (address_of(tenant.address_key, kind, manifest.content) != address) {
          throw Error(Code::corrupt, "its address is not that of its content");
        }
        for_each_referred(blocks, tenant, manifest, [&](Kind referred_kind, const Digest& referred) {
          if (there.contains(referred) || blocks.exists(tenant, referred_kind, referred)) return;
          scrubbed.damaged.push_back(
              {Blocks::name_of(tenant, referred_kind, referred), "missing; object " + address.hex() + " refers to it"});
        });
      } else if (address_of(tenant.address_key, kind, crypto::sha256(body)) != address) {
        throw Error(Code::corrupt, "its address is not that of its content");
      }
      there.insert(address);
    } catch (const Error& error) {
      if (error.code() == Code::not_found) return;  // removed meanwhile
      if (error.code() == Code::unavailable) throw;
      scrubbed.damaged.push_back({info.name, error.what()});
    }
  };
  for (const Kind kind : {Kind::chunk, Kind::list, Kind::object}) {
    for_each_block(blocks, tenant, kind, [&](const BlobInfo& info) { look(kind, info); });
  }
  return scrubbed;
}

std::uint64_t rewrap_blocks(Blocks& blocks, const Tenant& tenant) {
  std::uint64_t rewritten = 0;
  for (const Kind kind : kKinds) {
    for_each_block(blocks, tenant, kind, [&](const BlobInfo& info) {
      rewritten += blocks.rewrap(tenant, kind, Blocks::address_in(info)) ? 1 : 0;
    });
  }
  blocks.sync();
  return rewritten;
}

}  // namespace falaj::blob
