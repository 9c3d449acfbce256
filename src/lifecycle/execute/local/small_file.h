// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernel's files of settings: written with one call, read whole.

#include <string>
#include <string_view>

namespace falaj::execute::local {

int write_small(const std::string& path, std::string_view text);  // 0 or an errno
std::string read_small(const std::string& path);                  // "" when it cannot be read

}  // namespace falaj::execute::local
