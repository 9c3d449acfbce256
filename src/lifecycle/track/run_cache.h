// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "foundation/base/mutex.h"
#include "lifecycle/track/types.h"

namespace falaj::track {

// Runs as they were last read: pages of a search show the same ones again and again. Thread-safe. Holds about
// kBytesMax; when full everything is forgotten.
class RunCache {
 public:
  using Kept = std::shared_ptr<const Run>;
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20, kRunBytesMax = std::size_t{256} << 10;

  std::uint64_t seen() const;                                    // to be asked before what is put was read
  Kept find(std::int64_t experiment, std::int64_t place) const;  // null: not kept
  // Keeps nothing if anything was forgotten since `seen`: the run may be of before that change.
  void put(std::int64_t experiment, std::int64_t place, Kept run, std::uint64_t seen);
  void forget(std::int64_t experiment, std::int64_t place);
  void forget_all();

 private:
  struct Entry {
    Kept run;
    std::size_t bytes = 0;
  };
  struct Hash {
    std::size_t operator()(const std::pair<std::int64_t, std::int64_t>& key) const {
      return static_cast<std::size_t>(key.first * 1'000'003 + key.second);
    }
  };
  mutable Mutex mu_;  // guards everything below
  std::unordered_map<std::pair<std::int64_t, std::int64_t>, Entry, Hash> runs_ GUARDED_BY(mu_);
  std::size_t bytes_ GUARDED_BY(mu_) = 0;
  std::uint64_t forgotten_ GUARDED_BY(mu_) = 0;
};

}  // namespace falaj::track
