// SPDX-License-Identifier: Apache-2.0
// A block from a backend that lies: opening it either throws corrupt or gives what was sealed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "foundation/base/error.h"
#include "storage/blob/block.h"

using namespace falaj;

namespace {
const ZoneName kZone{"z"};
const TenantName kTenant{"t"};
crypto::Key key_of(std::uint32_t) { return crypto::Key::from(Bytes(32, std::byte{1})); }
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const BytesView input(reinterpret_cast<const std::byte*>(data), size);
  const blob::BlockId id{kZone, kTenant, blob::Kind::chunk, {}};
  try {
    (void)blob::open_block(id, key_of, input);
  } catch (const Error& error) {
    if (error.code() != Code::corrupt) std::abort();
  }
  // What we seal ourselves comes back, and no change to it is accepted.
  if (size == 0 || size > 100'000) return 0;
  Bytes block = blob::seal_block(id, 1, key_of(1), input);
  if (blob::open_block(id, key_of, block) != Bytes(input.begin(), input.end())) std::abort();
  const std::size_t at = data[0] * 257U % block.size();
  block[at] ^= static_cast<std::byte>(data[size - 1] | 1);
  const bool version = at >= 8 && at < 12;  // this key source gives one key for all versions
  try {
    (void)blob::open_block(id, key_of, block);
    if (!version) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
