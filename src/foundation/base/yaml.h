// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/json.h"

namespace falaj {

// Both count from 1.
struct Position {
  std::size_t line = 1;
  std::size_t column = 1;
  friend bool operator==(const Position&, const Position&) = default;
};

struct YamlDocument {
  json::value value;
  // Where each value stands (a member: where its key does), by the path that faults use: "spec.rules[2].allow".
  std::map<std::string, Position, std::less<>> positions;

  // Of `path`, or of what it would be in when there is no such value.
  Position position(std::string_view path) const;
};

struct YamlLimits {
  std::size_t bytes = 1 << 20;
  std::size_t nodes = 100'000;
  std::size_t depth = kJsonDepthMax;
};

// The documents of a text, by the core rules of YAML 1.2: quoted scalars are text; plain ones null, true, false, a
// number or else text. What JSON cannot hold or what makes a small text large is refused: tags, anchors and aliases,
// keys twice in a map or other than text, .inf and .nan, control characters. Throws invalid with the line and column.
std::vector<YamlDocument> parse_yaml(std::string_view text, const YamlLimits& limits = {});

// Block style; parse_yaml gives the same value back.
std::string to_yaml(const json::value& value);

}  // namespace falaj
