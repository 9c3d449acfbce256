// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "foundation/base/bytes.h"
#include "foundation/base/mutex.h"

namespace falaj::blob {

// Keeps the collector away from blocks that a put under way relies on. Thread-safe.
//
// A put pins an address before it looks whether the block is there; the collector removes an address only while nobody
// has pinned it, and a put that wants it meanwhile waits. A put that ends during a collection leaves its pins until the
// collection is over: the collection may have listed the objects before this one was among them.
class Pins {
 public:
  class Put {
   public:
    explicit Put(Pins& pins) : pins_(pins) {}
    ~Put() { pins_.release(addresses_); }
    Put(const Put&) = delete;
    Put& operator=(const Put&) = delete;
    void add(const Digest& address);  // thread-safe

   private:
    Pins& pins_;
    Mutex mu_;
    std::vector<Digest> addresses_;  // added to under mu_, read when nobody adds any more
  };

  // Requires: one at a time, which the caller sees to.
  class Collection {
   public:
    explicit Collection(Pins& pins);
    ~Collection();
    Collection(const Collection&) = delete;
    Collection& operator=(const Collection&) = delete;
    // Runs `remove` unless the address is pinned; false then.
    bool unless_pinned(const Digest& address, const std::function<void()>& remove);

   private:
    Pins& pins_;
  };

 private:
  void pin(const Digest& address);
  void release(const std::vector<Digest>& addresses);

  Mutex mu_;
  std::condition_variable removed_;
  std::unordered_map<Digest, std::size_t> pinned_ GUARDED_BY(mu_);
  std::unordered_set<Digest> ended_during_collection_ GUARDED_BY(mu_);
  std::unordered_set<Digest> being_removed_ GUARDED_BY(mu_);
  bool collecting_ GUARDED_BY(mu_) = false;
};

}  // namespace falaj::blob
