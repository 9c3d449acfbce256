// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace falaj::cli {

// An SVG drawing as a PNG file of twice its size in pixels. Throws unavailable where librsvg is not installed.
std::string svg_to_png(std::string_view svg);

}  // namespace falaj::cli
