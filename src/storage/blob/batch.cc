// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/batch.h"

#include <utility>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"

namespace falaj::blob {

namespace {
// What is read at once: a cut leaves at most this much to be copied into the next chunk.
constexpr std::size_t kReadBytes = 128 * 1024;
}  // namespace

struct Batch::Object {
  bool small = true;
  ContentDigest content;
  std::vector<Part> chunks;  // of the list being filled
  std::vector<Part> lists;
  Stored stored;
};

Batch::Batch(Blocks& blocks, Workers& workers, const TenantName& tenant, const StoreOptions& options, Durable records)
    : blocks_(blocks),
      workers_(workers),
      tenant_(blocks.tenant(tenant)),
      options_(options),
      records_(records),
      beginning_(kInlineBytesMax + 1),
      pins_(std::make_shared<Pins::Put>(blocks.pins())) {}

Batch::~Batch() {
  for (const auto& work : under_way_) work.result.wait();  // it uses our pins
}

namespace {
// Fills `out`; fewer bytes only at the end.
std::size_t fill(std::span<std::byte> out, const Source& source) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const std::size_t n = source(out.subspan(filled));
    CHECK(n <= out.size() - filled, "a source gives no more than there is room for");
    if (n == 0) break;
    filled += n;
  }
  return filled;
}
}  // namespace

void Batch::add(const Source& source) {
  const auto first = BytesView(beginning_).first(fill(beginning_, source));
  objects_.emplace_back();
  if (first.size() <= kInlineBytesMax) {
    add_small(first);
  } else {
    add_large(first, source);
  }
}

void Batch::add_small(BytesView all) {
  const std::size_t index = objects_.size() - 1;
  Object& object = objects_.back();
  auto store = [this, &object, bytes = Bytes(all.begin(), all.end())]() mutable -> Result {
    if (!bytes.empty()) object.content.add({bytes.size(), crypto::sha256(bytes)});
    const std::uint64_t size = bytes.size();
    const Manifest manifest{Manifest::Form::inlined, size, object.content.finish(), std::move(bytes), {}};
    const Digest address = address_of(tenant_->address_key, Kind::object, manifest.content);
    object.stored.info = {{address}, size, manifest.content};
    object.stored.new_bytes = blocks_.put(*tenant_, Kind::object, address, encode(manifest), records_, *pins_);
    return {};
  };
  under_way_.push_back({index, workers_.run(std::move(store))});
  settle_until(workers_.width());
}

void Batch::add_large(BytesView first, const Source& source) {
  const std::size_t index = objects_.size() - 1;
  objects_.back().small = false;
  any_large_ = true;
  Chunker chunker;
  Bytes chunk(first.begin(), first.end());
  std::size_t seen = 0;  // of `chunk`, by the chunker
  std::uint64_t total = 0;
  for (bool ended = false; !ended || seen < chunk.size();) {
    if (const auto cut = chunker.next(BytesView(chunk).subspan(seen))) {
      const auto end = chunk.begin() + static_cast<std::ptrdiff_t>(seen + *cut);
      Bytes rest = buffers_.take();
      rest.assign(end, chunk.end());
      chunk.erase(end, chunk.end());
      total += chunk.size();
      if (total > options_.object_bytes_max) throw Error(Code::exhausted, "the object is larger than this store takes");
      start_chunk(index, std::exchange(chunk, std::move(rest)));
      seen = 0;
      continue;
    }
    seen = chunk.size();
    if (ended) break;
    chunk.resize(seen + kReadBytes);
    const std::size_t n = fill(std::span(chunk).subspan(seen), source);
    chunk.resize(seen + n);
    ended = n < kReadBytes;
  }
  if (total + chunk.size() > options_.object_bytes_max) {
    throw Error(Code::exhausted, "the object is larger than this store takes");
  }
  if (!chunk.empty()) start_chunk(index, std::move(chunk));
}

Bytes Batch::Buffers::take() {
  Lock lock(mu_);
  if (free_.empty()) return {};
  Bytes buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void Batch::Buffers::give_back(Bytes buffer) {
  buffer.clear();
  Lock lock(mu_);
  free_.push_back(std::move(buffer));
}

void Batch::start_chunk(std::size_t object, Bytes bytes) {
  auto store = [this, bytes = std::move(bytes)]() mutable -> Result {
    const Part part{bytes.size(), crypto::sha256(bytes)};
    const Digest address = address_of(tenant_->address_key, Kind::chunk, part.digest);
    const std::uint64_t new_bytes = blocks_.put(*tenant_, Kind::chunk, address, bytes, Durable::at_sync, *pins_);
    buffers_.give_back(std::move(bytes));
    return {part, new_bytes};
  };
  under_way_.push_back({object, workers_.run(std::move(store))});
  settle_until(workers_.width());
}

void Batch::settle_until(std::size_t under_way_max) {
  while (under_way_.size() > under_way_max) {
    UnderWay work = std::move(under_way_.front());
    under_way_.pop_front();
    settle(work.object, work.result.get());
  }
}

void Batch::settle(std::size_t index, const Result& result) {
  Object& object = objects_[index];
  if (object.small) return;
  object.content.add(result.part);
  object.stored.new_bytes += result.new_bytes;
  if (object.chunks.size() == options_.list_entries) close_list(object);
  object.chunks.push_back(result.part);
}

void Batch::close_list(Object& object) {
  if (object.lists.size() == kListsMax) throw Error(Code::exhausted, "the object has too many chunks");
  const Bytes body = encode_list(object.chunks);
  Part list{0, crypto::sha256(body)};
  for (const auto& chunk : object.chunks) list.bytes += chunk.bytes;
  const Digest address = address_of(tenant_->address_key, Kind::list, list.digest);
  object.stored.new_bytes += blocks_.put(*tenant_, Kind::list, address, body, Durable::at_sync, *pins_);
  object.lists.push_back(list);
  object.chunks.clear();
}

void Batch::write_record(Object& object) {
  const bool one_list = object.lists.empty();
  Manifest manifest{one_list ? Manifest::Form::chunks : Manifest::Form::lists, object.content.size(), {}, {}, {}};
  manifest.content = object.content.finish();
  manifest.parts = std::move(one_list ? object.chunks : object.lists);
  const Digest address = address_of(tenant_->address_key, Kind::object, manifest.content);
  object.stored.info = {{address}, manifest.size, manifest.content};
  object.stored.new_bytes += blocks_.put(*tenant_, Kind::object, address, encode(manifest), records_, *pins_);
}

std::vector<Stored> Batch::commit() {
  settle_until(0);
  if (any_large_) {
    for (auto& object : objects_) {
      if (!object.small && !object.lists.empty()) close_list(object);
    }
    blocks_.sync();
    for (auto& object : objects_) {
      if (!object.small) write_record(object);
    }
  }
  blocks_.sync();
  std::vector<Stored> stored;
  for (const auto& object : objects_) {
    blocks_.probe().bytes_put.Increment(static_cast<double>(object.stored.info.size));
    stored.push_back(object.stored);
  }
  return stored;
}

}  // namespace falaj::blob
