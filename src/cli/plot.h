// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace falaj::cli {

// Drawing, as pure functions of values.

// One block character a value, from the lowest to the highest of them; a blank for NaN. "▁▂▅█"
std::string sparkline(std::span<const double> values);

struct Line {
  std::string name;
  std::vector<double> x, y;  // of the same length; a NaN in y interrupts the line
};
struct Chart {
  std::string title, x_title;
  std::vector<Line> lines;
  bool log_y = false;  // what is not above zero is left out
};

// Round numbers from about `low` to about `high`, at most `most` of them and at least two. Requires: low <= high, both
// finite, most >= 2.
std::vector<double> ticks(double low, double high, std::size_t most);

// A line chart with axes and a legend, as an SVG file of its own: no script, no font, nothing to fetch. Names are text
// whatever they hold.
std::string to_svg(const Chart& chart);

// Text as it may stand between the tags of XML: markup escaped, what XML cannot hold replaced by U+FFFD.
std::string xml_text(std::string_view text);

}  // namespace falaj::cli
