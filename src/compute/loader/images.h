// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace falaj::loader {

// A column of images: each value is the bytes of the pixels, row by row from the top, the channels of a pixel side by
// side, as everything that reads image files gives them.
struct Image {
  std::string column;
  std::size_t height = 0, width = 0, channels = 1;
  friend bool operator==(const Image&, const Image&) = default;

  std::size_t bytes() const { return height * width * channels; }
};

// How an image is changed a little while a model learns from it, so that it learns what does not depend on that.
struct Change {
  static constexpr int kShiftMax = 2;  // pixels

  int down = 0, right = 0;
  bool mirrored = false;  // left and right

  // Drawn from three numbers alone: whoever goes on from a checkpoint, and whichever rank has the row, draws the same.
  static Change drawn(std::uint64_t seed, std::uint64_t epoch, std::uint64_t place);
  // What comes in at an edge is 0. Requires: both are image.bytes() long, and apart.
  void apply(const Image& image, const std::uint8_t* from, std::uint8_t* to) const;
};

}  // namespace falaj::loader
