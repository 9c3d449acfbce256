// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace falaj::models {

// Where the files of a new version are taken from: always artifacts that the platform itself keeps.
struct Source {
  enum class Kind { run, logged_model, version };
  Kind kind = Kind::run;
  std::string id;                          // of the run or logged model; the name of a registered model
  std::optional<std::int64_t> experiment;  // that the client says it belongs to
  std::int64_t version = 0;
  std::string path;  // below the artifacts; "" = all of them
  friend bool operator==(const Source&, const Source&) = default;
};

// Throws invalid for anything else: other schemes and hosts, local paths, "..", also encoded ones.
Source parse_source(std::string_view text);

}  // namespace falaj::models
