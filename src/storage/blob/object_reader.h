// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "storage/blob/blocks.h"
#include "storage/blob/manifest.h"
#include "storage/blob/store.h"
#include "storage/blob/workers.h"

namespace falaj::blob {

// Private to the store: an object's record, with a missing or damaged one told apart.
Manifest read_record(Blocks& blocks, const Tenant& tenant, const Address& address);  // not_found, corrupt
std::vector<Part> read_list(Blocks& blocks, const Tenant& tenant, const Part& list);

// Reads a few chunks ahead of the caller.
class ChunkReader final : public ObjectReader {
 public:
  ChunkReader(Blocks& blocks, Workers& workers, std::shared_ptr<const Tenant> tenant, const Address& address,
              std::uint64_t offset, std::uint64_t length);
  ~ChunkReader() override;
  const ObjectInfo& info() const override { return info_; }
  Bytes next() override;

 private:
  void read_ahead();
  const Part* next_part();
  static Bytes read_chunk(Blocks& blocks, const Tenant& tenant, const Part& chunk);

  Blocks& blocks_;
  Workers& workers_;
  const std::shared_ptr<const Tenant> tenant_;
  Manifest manifest_;
  ObjectInfo info_;
  std::uint64_t skip_;  // still to be left out before the first byte wanted
  std::uint64_t left_;  // still to be given out

  std::vector<Part> chunks_;  // of the list being read
  std::size_t list_ = 0, chunk_ = 0;
  std::uint64_t started_ = 0;  // bytes of the chunks under way, counted from the first byte wanted
  std::deque<Pending<Bytes>> ahead_;
};

}  // namespace falaj::blob
