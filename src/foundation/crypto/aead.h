// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "foundation/base/bytes.h"
#include "foundation/crypto/key.h"

namespace falaj::crypto {

// The one way bytes are encrypted here: AES-256-GCM in chunks with counter nonces and a last-chunk flag (the STREAM
// construction), under a key used for this stream only. The header is bound to every chunk, so truncating, reordering,
// splicing and moving a stream to another tenant or zone are all found. docs/formats/sealed_stream.md has the layout.
inline constexpr std::size_t kSealChunkBytes = 64 * 1024;
inline constexpr std::size_t kSealTagBytes = 16;

// Requires: `key` is fresh for this stream (a new random key, or derived with a salt that is).
class Sealer {
 public:
  Sealer(const Key& key, BytesView header);
  ~Sealer();
  // Returns the sealed bytes that are complete now.
  Bytes update(BytesView plain);
  Bytes finish();

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// Returns plain bytes only after their chunk was verified; throws corrupt at the first chunk that is not what was sealed.
class Opener {
 public:
  Opener(const Key& key, BytesView header);
  ~Opener();
  Bytes update(BytesView sealed);
  Bytes finish();  // throws corrupt when the last chunk is missing

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// Whole small things at once.
Bytes seal(const Key& key, BytesView header, BytesView plain);
Bytes open(const Key& key, BytesView header, BytesView sealed);  // throws corrupt

// A key sealed under another: 32 random bytes of salt, then the sealed key; `context` says what it is for and must be
// the same when it is unwrapped. throws corrupt.
Bytes wrap_key(const Key& wrapping, const Key& wrapped, BytesView context, BytesView salt32);
Key unwrap_key(const Key& wrapping, BytesView wrapped, BytesView context);

}  // namespace falaj::crypto
