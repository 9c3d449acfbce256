// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>
#include <memory>
#include <string>
#include <vector>

namespace falaj::cli {

// A PNG or JPEG file; what it shows is the name of the directory that it is in.
struct Picture {
  std::string path, label;
  std::string part;  // train, valid or test when a directory of that name is above; else ""
};

// Those below a directory, LABEL/x.png or PART/LABEL/x.jpg, in order of their paths; none when there is no such file.
// Throws invalid when some are in parts and some are not.
std::vector<Picture> pictures_in(const std::string& directory);

struct PictureSize {
  std::size_t height = 0, width = 0;  // 0: that of the first picture
};
PictureSize parse_picture_size(const std::string& text);  // "32x48": height, then width. Throws invalid

// As lines of CSV: image (bytes: row by row from the top, a byte for grey or three for red, green and blue, as the
// first picture has it), label, and part when they are in parts. With a size all are brought to it; else all must have
// the first one's. Reading throws what is wrong with a file: corrupt, invalid.
std::unique_ptr<std::istream> pictures_as_csv(std::vector<Picture> pictures, PictureSize size = {});

}  // namespace falaj::cli
