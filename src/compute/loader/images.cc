// SPDX-License-Identifier: Apache-2.0
#include "compute/loader/images.h"

#include <algorithm>
#include <cstring>

#include "compute/loader/mix.h"

namespace falaj::loader {

Change Change::drawn(std::uint64_t seed, std::uint64_t epoch, std::uint64_t place) {
  constexpr std::uint64_t kApart = 0x696d616765;  // from what decides the order of rows
  Mix mix(seed ^ kApart, epoch, place);
  const auto shift = [&] { return static_cast<int>(mix.below(2 * kShiftMax + 1)) - kShiftMax; };
  Change out;
  out.down = shift();
  out.right = shift();
  out.mirrored = mix.below(2) == 1;
  return out;
}

void Change::apply(const Image& image, const std::uint8_t* from, std::uint8_t* to) const {
  const auto height = static_cast<int>(image.height), width = static_cast<int>(image.width);
  const auto line = image.width * image.channels;
  // Columns of the answer that have one to come from.
  const int first = std::clamp(right, 0, width), last = std::clamp(width + right, first, width);
  const auto bytes = static_cast<std::size_t>(last - first) * image.channels;
  std::memset(to, 0, image.bytes());
  for (int y = std::max(down, 0); y < std::min(height, height + down); ++y) {
    const auto* source = from + static_cast<std::size_t>(y - down) * line;
    auto* target = to + static_cast<std::size_t>(y) * line;
    if (!mirrored) {
      std::memcpy(target + static_cast<std::size_t>(first) * image.channels,
                  source + static_cast<std::size_t>(first - right) * image.channels, bytes);
      continue;
    }
    for (int x = first; x < last; ++x)
      std::memcpy(target + static_cast<std::size_t>(x) * image.channels,
                  source + static_cast<std::size_t>(width - 1 - (x - right)) * image.channels, image.channels);
  }
}

}  // namespace falaj::loader
