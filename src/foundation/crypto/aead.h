// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "foundation/base/bytes.h"
#include "foundation/crypto/key.h"

namespace falaj::crypto {

// The way bytes are encrypted here (record.h is for small rows alone): AES-256-GCM in chunks with counter nonces and a
// last-chunk flag (the STREAM construction), under a key used for this stream only. The header is bound to every chunk,
// so truncating, reordering, splicing and moving a stream to another tenant or zone are all found.
// docs/formats/sealed_stream.md has the layout.
inline constexpr std::size_t kSealChunkBytes = 64 * 1024;
inline constexpr std::size_t kSealTagBytes = 16;
inline constexpr std::size_t kSaltBytes = 32;
inline constexpr std::size_t kSealOverheadBytes = 4 + kSaltBytes + 32 + kSealTagBytes;  // of at most one chunk
inline constexpr std::size_t kWrappedKeyBytes = Key::kBytes + kSealOverheadBytes;

// Every stream draws a random salt and derives its own key from `key`, so one key may seal many streams.
// The header is at most a few hundred bytes: it is authenticated with every chunk.
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

// Returns plain bytes only after their chunk was verified; throws corrupt at the first chunk that is not what was
// sealed.
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

// Whole things at once.
std::size_t sealed_size(std::size_t plain_bytes);
Bytes seal(const Key& key, BytesView header, BytesView plain);
void seal_onto(Bytes& out, const Key& key, BytesView header, BytesView plain);  // appends what seal returns
Bytes open(const Key& key, BytesView header, BytesView sealed);                 // throws corrupt

// A key sealed under another; `context` says what it is for and must be the same when it is unwrapped. The salt is
// random unless given (32 bytes; the same inputs then give the same bytes).
Bytes wrap_key(const Key& wrapping, const Key& wrapped, BytesView context);
Bytes wrap_key(const Key& wrapping, const Key& wrapped, BytesView context, BytesView salt32);
Key unwrap_key(const Key& wrapping, BytesView wrapped, BytesView context);  // throws corrupt

}  // namespace falaj::crypto
