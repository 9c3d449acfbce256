// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "storage/blob/blocks.h"
#include "storage/blob/manifest.h"
#include "storage/blob/store.h"
#include "storage/blob/workers.h"

namespace falaj::blob {

// Objects of one tenant that become durable together. Private to the store; used by one thread.
//
// The order of writes is what makes an acknowledged object whole: an object's record is written only after what it
// refers to is on disk. Whoever finds a record that opens may rely on the rest.
class Batch {
 public:
  // `records`: how the records of objects are written; `now` for one object, where it costs less than a sync.
  Batch(Blocks& blocks, Workers& workers, const TenantName& tenant, const StoreOptions& options, Durable records);
  ~Batch();

  void add(const Source& source);
  std::vector<Stored> commit();  // in the order they were added
  std::shared_ptr<const void> pins() const { return pins_; }

 private:
  struct Object;
  struct Result {
    Part part;
    std::uint64_t new_bytes = 0;
  };
  struct UnderWay {
    std::size_t object;
    Pending<Result> result;
  };

  void add_small(BytesView all);
  void add_large(BytesView first, const Source& source);
  void start_chunk(std::size_t object, Bytes bytes);
  void settle_until(std::size_t under_way_max);
  void settle(std::size_t object, const Result& result);
  void close_list(Object& object);
  void write_record(Object& object);

  Blocks& blocks_;
  Workers& workers_;
  const std::shared_ptr<const Tenant> tenant_;
  const StoreOptions& options_;
  const Durable records_;
  Bytes beginning_;  // of the object being added: enough to tell whether it is small
  const std::shared_ptr<Pins::Put> pins_;
  class Buffers {  // of chunks, used again; thread-safe
   public:
    Bytes take();  // empty
    void give_back(Bytes buffer);

   private:
    Mutex mu_;
    std::vector<Bytes> free_ GUARDED_BY(mu_);
  } buffers_;
  std::deque<UnderWay> under_way_;  // oldest first: chunks of an object are settled in order
  std::deque<Object> objects_;
  bool any_large_ = false;
};

}  // namespace falaj::blob
