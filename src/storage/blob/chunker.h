// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "foundation/base/bytes.h"

namespace falaj::blob {

inline constexpr std::size_t kChunkBytesMin = 256 * 1024;
inline constexpr std::size_t kChunkBytesAverage = 1024 * 1024;
inline constexpr std::size_t kChunkBytesMax = 4 * 1024 * 1024;

// Cuts a stream where its content says so, so that bytes inserted or removed anywhere change only the chunks around
// them: FastCDC (Xia et al., USENIX ATC 2016) with a gear hash over the last 64 bytes and two masks that pull sizes
// towards the average. The same bytes are always cut the same way; how they arrive does not matter.
class Chunker {
 public:
  // Looks at the next bytes of the stream. Returns how many of them end the current chunk, or nothing when it goes on
  // past all of them. The rest of `piece` belongs to the next chunk and is to be given again.
  std::optional<std::size_t> next(BytesView piece);
  void reset() { *this = {}; }

 private:
  std::size_t size_ = 0;  // of the current chunk so far
  std::uint64_t hash_ = 0;
};

}  // namespace falaj::blob
