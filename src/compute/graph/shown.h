// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to graph: names of others in messages of ours.

#include <algorithm>
#include <string>
#include <string_view>

#include "foundation/base/text.h"

namespace falaj::graph {

// The beginning of a name that came from anybody, fit to be shown.
inline std::string shown(std::string_view name) {
  if (!is_utf8(name)) return "(not text)";
  std::size_t size = std::min<std::size_t>(name.size(), 80);
  while (size < name.size() && (static_cast<unsigned char>(name[size]) & 0xc0) == 0x80) --size;  // no half character
  std::string out(name.substr(0, size));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return out;
}

}  // namespace falaj::graph
