// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace falaj::sys {

// Where files live before they have a name. Nobody else may use it: a path that begins with it is refused.
inline constexpr std::string_view kUnnamedDirectory = ".new";

// Throws invalid unless `path` is made of elements that are not empty, "." or "..", hold no NUL and are at most 255
// bytes long, at most 4,000 bytes in all.
void check_path(std::string_view path);

// "a/b/c" gives {"a/b", "c"}, "c" gives {"", "c"}.
std::pair<std::string, std::string> split_name(const std::string& path);

}  // namespace falaj::sys
