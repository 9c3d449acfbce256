// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/object_reader.h"

#include <algorithm>

#include "foundation/base/error.h"

namespace falaj::blob {

namespace {

// A block that an object refers to: that it is not there is damage, not an answer.
Bytes read_referred(Blocks& blocks, const Tenant& tenant, Kind kind, const Digest& digest) {
  const Digest address = address_of(tenant.address_key, kind, digest);
  try {
    return blocks.get(tenant, kind, address);
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    throw Error(Code::corrupt, Blocks::name_of(tenant, kind, address) + ": a stored block is missing");
  }
}

// An error in what a block says, with the block's name.
template <class Parse>
auto parsed(const Tenant& tenant, Kind kind, const Digest& address, Parse parse) {
  try {
    return parse();
  } catch (const Error& error) {
    throw Error(Code::corrupt, Blocks::name_of(tenant, kind, address) + ": " + error.what());
  }
}

}  // namespace

Manifest read_record(Blocks& blocks, const Tenant& tenant, const Address& address) {
  Bytes body;
  try {
    body = blocks.get(tenant, Kind::object, address.digest);
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    throw Error(Code::not_found, "no such object: " + address.hex());
  }
  return parsed(tenant, Kind::object, address.digest, [&] { return parse_manifest(body); });
}

std::vector<Part> read_list(Blocks& blocks, const Tenant& tenant, const Part& list) {
  const Bytes body = read_referred(blocks, tenant, Kind::list, list.digest);
  const Digest address = address_of(tenant.address_key, Kind::list, list.digest);
  return parsed(tenant, Kind::list, address, [&] { return parse_list(body); });
}

Bytes ObjectReader::read_all() {
  Bytes all = next();
  for (Bytes more = next(); !more.empty(); more = next()) all.insert(all.end(), more.begin(), more.end());
  return all;
}

ChunkReader::ChunkReader(Blocks& blocks, Workers& workers, std::shared_ptr<const Tenant> tenant, const Address& address,
                         std::uint64_t offset, std::uint64_t length)
    : blocks_(blocks),
      workers_(workers),
      tenant_(std::move(tenant)),
      manifest_(read_record(blocks, *tenant_, address)),
      info_{address, manifest_.size, manifest_.content},
      skip_(std::min(offset, info_.size)),
      left_(std::min(length, info_.size - skip_)) {
  if (manifest_.form == Manifest::Form::chunks) chunks_ = std::move(manifest_.parts);
}

ChunkReader::~ChunkReader() {
  for (auto& chunk : ahead_) chunk.wait();
}

Bytes ChunkReader::read_chunk(Blocks& blocks, const Tenant& tenant, const Part& chunk) {
  Bytes bytes = read_referred(blocks, tenant, Kind::chunk, chunk.digest);
  if (bytes.size() != chunk.bytes) {
    const Digest address = address_of(tenant.address_key, Kind::chunk, chunk.digest);
    throw Error(Code::corrupt, Blocks::name_of(tenant, Kind::chunk, address) + ": it has another size than was stored");
  }
  return bytes;
}

// The next chunk, in whatever list it is; null after the last. Lists and chunks before `skip_` are passed by unread.
const Part* ChunkReader::next_part() {
  for (;;) {
    for (; chunk_ < chunks_.size(); ++chunk_) {
      if (started_ > 0 || chunks_[chunk_].bytes > skip_) return &chunks_[chunk_++];
      skip_ -= chunks_[chunk_].bytes;
    }
    if (manifest_.form != Manifest::Form::lists || list_ == manifest_.parts.size()) return nullptr;
    const Part& list = manifest_.parts[list_++];
    if (started_ == 0 && list.bytes <= skip_) {
      skip_ -= list.bytes;
      continue;
    }
    chunks_ = read_list(blocks_, *tenant_, list);
    chunk_ = 0;
  }
}

void ChunkReader::read_ahead() {
  while (ahead_.size() < workers_.width() && started_ < skip_ + left_) {
    const Part* part = next_part();
    if (!part) return;
    started_ += part->bytes;
    ahead_.push_back(workers_.run(
        [&blocks = blocks_, tenant = tenant_, part = *part] { return read_chunk(blocks, *tenant, part); }));
  }
}

Bytes ChunkReader::next() {
  if (left_ == 0) return {};
  Bytes bytes;
  if (manifest_.form == Manifest::Form::inlined) {
    bytes = std::move(manifest_.bytes);
  } else {
    read_ahead();
    if (ahead_.empty()) throw Error(Code::corrupt, "an object ends before its size: " + info_.address.hex());
    auto chunk = std::move(ahead_.front());
    ahead_.pop_front();
    bytes = chunk.get();
    started_ -= bytes.size();
  }
  if (skip_ > 0) bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(skip_));
  skip_ = 0;
  if (bytes.size() > left_) bytes.resize(left_);
  left_ -= bytes.size();
  blocks_.probe().bytes_got.Increment(static_cast<double>(bytes.size()));
  return bytes;
}

}  // namespace falaj::blob
