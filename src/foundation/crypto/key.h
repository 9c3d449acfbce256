// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "foundation/base/bytes.h"

namespace falaj::crypto {

// 256 secret bits. Wiped when dropped, left out of core dumps, never printed; copied only by saying so.
class Key {
 public:
  static constexpr std::size_t kBytes = 32;
  static Key from(BytesView bytes);  // Requires: 32 bytes; throws corrupt otherwise
  ~Key();
  Key(Key&&) noexcept;
  Key& operator=(Key&&) noexcept;
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;
  Key copy() const { return from(view()); }
  BytesView view() const { return bytes_; }

 private:
  Key() = default;
  std::array<std::byte, kBytes> bytes_{};
};

Digest hmac_sha256(const Key& key, BytesView bytes);
// HKDF-SHA256: one key for each purpose from one key.
Key derive(const Key& key, BytesView salt, std::string_view purpose);

}  // namespace falaj::crypto
