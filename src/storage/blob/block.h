// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "foundation/base/bytes.h"
#include "foundation/base/names.h"
#include "foundation/crypto/aead.h"
#include "foundation/crypto/key.h"
#include "storage/blob/chunker.h"

namespace falaj::blob {

// One stored file: a few bytes in clear, a data key wrapped by the tenant's, and the sealed body. Functions of values:
// no backend, no clock. docs/formats/blob.md has the layout.
enum class Kind : std::uint8_t { object = 'o', list = 'l', chunk = 'c' };

// Whose block it is and what it is called; bound to the bytes, so that none can stand in for another.
struct BlockId {
  const ZoneName& zone;
  const TenantName& tenant;
  Kind kind;
  Digest address;
};

inline constexpr std::size_t kBlockHeaderBytes = 16 + crypto::kWrappedKeyBytes;
inline constexpr std::size_t kBodyBytesMax = kChunkBytesMax + 4096;
inline constexpr std::size_t kBlockBytesMax = kBlockHeaderBytes + kBodyBytesMax + 128 * 1024;

struct BlockHeader {
  Kind kind = Kind::chunk;
  bool packed = false;  // with zstd
  std::uint32_t key_version = 0;
  std::uint32_t body_bytes = 0;  // before packing
  BytesView wrapped_key;         // into what was parsed
};
BlockHeader parse_block_header(BytesView block);  // throws corrupt

// Packs the body where that saves a tenth or more, and seals it under a fresh data key.
// Requires: body is at most kBodyBytesMax.
Bytes seal_block(const BlockId& id, std::uint32_t key_version, const crypto::Key& tenant_key, BytesView body);
// The same into memory that is used again: pages fresh from the kernel cost a fifth of all the work on a chunk.
void seal_block(Bytes& out, const BlockId& id, std::uint32_t key_version, const crypto::Key& tenant_key,
                BytesView body);

using KeyOfVersion = std::function<crypto::Key(std::uint32_t version)>;
// Throws corrupt when it is anything else than what was sealed as `id`.
Bytes open_block(const BlockId& id, const KeyOfVersion& key_of, BytesView block);
// The same block with its data key wrapped by another version of the tenant's key; the body is not touched.
Bytes rewrap_block(const BlockId& id, const KeyOfVersion& key_of, std::uint32_t version, BytesView block);

}  // namespace falaj::blob
