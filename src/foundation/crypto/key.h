// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "foundation/base/bytes.h"

namespace falaj::crypto {

// 256 secret bits. They live in locked pages that core dumps leave out, are wiped when dropped, never printed, and
// copied only by saying so.
class Key {
 public:
  static constexpr std::size_t kBytes = 32;
  static Key from(BytesView bytes);  // throws corrupt unless there are 32
  static Key random();               // from the cryptographic library's generator
  // Made in place by `fill(std::span<std::byte, 32>)`, so that the bytes are nowhere else.
  template <class Fill>
  static Key filled(Fill&& fill) {
    Key key;
    fill(std::span<std::byte, kBytes>(key.slot_, kBytes));
    return key;
  }
  ~Key();
  Key(Key&& other) noexcept;
  Key& operator=(Key&& other) noexcept;
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;
  Key copy() const { return from(view()); }
  BytesView view() const { return {slot_, kBytes}; }  // Requires: not moved from

 private:
  Key();
  std::byte* slot_;  // in the process's secret pages; null when moved from
};

Digest hmac_sha256(const Key& key, BytesView bytes);
Digest hmac_sha256(BytesView key, BytesView bytes);  // for protocols whose keys have other lengths
// HKDF-SHA256: one key for each purpose from one key.
Key derive(const Key& key, BytesView salt, std::string_view purpose);

}  // namespace falaj::crypto
