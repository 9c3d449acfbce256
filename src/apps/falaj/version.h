// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace falaj::app {
inline constexpr std::string_view kVersion = "0.1.0";
}
