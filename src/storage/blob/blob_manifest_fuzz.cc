// SPDX-License-Identifier: Apache-2.0
// Records and lists: what parses is encoded to the same bytes again; all else is refused as corrupt.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "foundation/base/error.h"
#include "storage/blob/manifest.h"

using namespace falaj;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const BytesView input(reinterpret_cast<const std::byte*>(data), size);
  const Bytes same(input.begin(), input.end());
  try {
    if (blob::encode(blob::parse_manifest(input)) != same) std::abort();
  } catch (const Error& error) {
    if (error.code() != Code::corrupt) std::abort();
  }
  try {
    if (blob::encode_list(blob::parse_list(input)) != same) std::abort();
  } catch (const Error& error) {
    if (error.code() != Code::corrupt) std::abort();
  }
  // However content is cut into pieces, its digest is the same.
  blob::ContentHasher whole, pieces;
  whole.update(input);
  const std::size_t middle = size / 3;
  pieces.update(input.first(middle));
  pieces.update(input.subspan(middle));
  if (whole.finish() != pieces.finish()) std::abort();
  return 0;
}
