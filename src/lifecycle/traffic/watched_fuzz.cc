// SPDX-License-Identifier: Apache-2.0
// Segments that lie: decoding throws corrupt, or gives sketches that can be put together and are written as they were
// read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "foundation/base/error.h"
#include "lifecycle/traffic/watched.h"

using namespace falaj;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    auto read = traffic::decode_sketches(BytesView(reinterpret_cast<const std::byte*>(data), size));
    const auto again = traffic::decode_sketches(traffic::encode_sketches(read));
    if (traffic::encode_sketches(again) != traffic::encode_sketches(read)) std::abort();
    traffic::merge_into(read, again);
    for (const auto& entry : read)
      if (entry.second.missing > entry.second.rows) std::abort();
  } catch (const Error& error) {
    if (error.code() != Code::corrupt) std::abort();
  }
  return 0;
}
