// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace falaj::tests {

using Captures = std::map<std::string, std::string>;

// Whether `line` is what `pattern` describes: <*> is any text, <$name> any text without spaces, kept in `captures`
// (or, when it was kept before, that same text); everything else stands for itself.
bool matches_line(std::string_view pattern, std::string_view line, Captures& captures);

// Whether the lines are what the patterns describe; a pattern "..." is any number of lines. The difference, or nothing.
std::optional<std::string> difference(const std::vector<std::string>& patterns, const std::vector<std::string>& lines,
                                      Captures& captures);

}  // namespace falaj::tests
