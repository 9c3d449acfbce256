// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "foundation/base/bytes.h"
#include "foundation/base/names.h"

namespace falaj::blob {

// Names an object of one tenant by its content, with a key of that tenant's: the same bytes have the same address, and
// an address says nothing about bytes to somebody without the key.
struct Address {
  Digest digest;
  static Address parse(std::string_view hex) { return {Digest::parse(hex)}; }  // throws invalid
  std::string hex() const { return digest.hex(); }
  friend auto operator<=>(const Address&, const Address&) = default;
};

struct ObjectInfo {
  Address address;
  std::uint64_t size = 0;
  // Says whether two objects are the same, for every tenant alike: SHA-256 over the digests of the chunks that the
  // content is cut into (ContentHasher computes it, docs/formats/blob.md defines it). Not the SHA-256 of the bytes.
  Digest content;
  friend bool operator==(const ObjectInfo&, const ObjectInfo&) = default;
};

struct Stored {
  ObjectInfo info;
  std::uint64_t new_bytes = 0;  // what the backend holds more than before; 0 for known content
};

struct ListedObject {
  Address address;
  std::uint64_t record_bytes = 0;  // of the object's record: all of it when small, else its list of chunks
  std::int64_t modified_us = 0;
};

// Fills `out` with the next bytes, as many as there are; 0 at the end.
using Source = std::function<std::size_t(std::span<std::byte> out)>;
Source source_of(BytesView bytes);  // Requires: `bytes` outlives it

// That bytes of `tenant` may leave zone `from` for zone `to`, until then. Made, and recorded, by governance.
struct TransferGrant {
  ZoneName from, to;
  TenantName tenant;
  std::optional<Address> object;  // none: all of the tenant's
  std::int64_t expires_unix_us = 0;
};

// On whose behalf bytes are read, and in which zone they will be.
struct Reader {
  TenantName tenant;
  ZoneName zone;
  const TransferGrant* grant = nullptr;
};

}  // namespace falaj::blob

template <>
struct std::hash<falaj::blob::Address> {
  std::size_t operator()(const falaj::blob::Address& a) const noexcept { return std::hash<falaj::Digest>()(a.digest); }
};
