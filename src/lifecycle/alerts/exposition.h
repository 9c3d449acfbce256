// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace falaj::alerts {

// One metric of Prometheus' text format.
struct Exposed {
  bool counter = false;  // else a gauge
  struct Sample {
    std::map<std::string, std::string> labels;
    double value = 0;
  };
  std::vector<Sample> samples;
};

// Pure. The metric of that name in what a server exposes. Throws not_found, and invalid when it is neither a gauge nor
// a counter, or the text is not well-formed there.
Exposed find_exposed(std::string_view text, std::string_view metric);

}  // namespace falaj::alerts
