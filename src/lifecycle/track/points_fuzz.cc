// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <bit>
#include <cstdint>

#include "foundation/base/error.h"
#include "lifecycle/track/points.h"

namespace {

using namespace falaj;
using namespace falaj::track;

// Refused with corrupt, or points that survive being packed again.
void read(BytesView block) {
  std::vector<Point> points;
  try {
    points = unpack(block);
  } catch (const Error& error) {
    CHECK(error.code() == Code::corrupt, "refused with another code");
    return;
  }
  CHECK(points.size() <= kPointsPerBlockMax, "more points than a block holds");
  const auto again = unpack(pack(points));
  CHECK(again.size() == points.size(), "points were lost");
  for (std::size_t i = 0; i < points.size(); ++i)
    CHECK(again[i].unix_ms == points[i].unix_ms && again[i].step == points[i].step &&
              std::bit_cast<std::uint64_t>(again[i].value) == std::bit_cast<std::uint64_t>(points[i].value),
          "a point changed");
}

}  // namespace

// The input as it is, and with the checksum that lets it past the first gate.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read(std::as_bytes(std::span(data, size)));
  ByteWriter sealed;
  sealed.raw(std::as_bytes(std::span(data, size)));
  sealed.u32(static_cast<std::uint32_t>(crc32_z(crc32_z(0, nullptr, 0), data, size)));
  read(sealed.bytes());
  return 0;
}
