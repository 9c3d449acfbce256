// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "foundation/base/bytes.h"

namespace falaj {

namespace json = boost::json;

inline constexpr std::size_t kJsonDepthMax = 32;

// One JSON document, nothing after it, nested at most kJsonDepthMax deep. Throws invalid with the byte it failed at.
json::value parse_json(std::string_view text);

// The one spelling of a value: members sorted by name, no spaces. For digests and signatures.
std::string canonical(const json::value& value);

// Indented, for people.
std::string pretty(const json::value& value);

}  // namespace falaj
