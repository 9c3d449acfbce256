// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "foundation/base/mutex.h"
#include "governance/resource/resource.h"

namespace falaj::resource {

// Resources as clients get them, ready to send: most reads ask for what was read before. Thread-safe. Holds at most
// kBytesMax of text; when full everything is forgotten.
class TextCache {
 public:
  using Text = std::shared_ptr<const std::string>;
  static constexpr std::size_t kBytesMax = 16 << 20, kTextBytesMax = 256 << 10;

  struct Found {
    Text text;               // null: not kept; read it and put it
    std::uint64_t seen = 0;  // to give to put
  };
  Found find(const Key& key) const;
  // Keeps nothing if anything was forgotten since `seen`: the text may be of before that change.
  void put(const Key& key, Text text, std::uint64_t seen);
  void forget(const Key& key);

 private:
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  mutable Mutex mu_;  // guards everything below
  std::unordered_map<Key, Text, Hash> texts_ GUARDED_BY(mu_);
  std::size_t bytes_ GUARDED_BY(mu_) = 0;
  std::uint64_t forgotten_ GUARDED_BY(mu_) = 0;
};

}  // namespace falaj::resource
