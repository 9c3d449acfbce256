// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "foundation/base/json.h"

namespace falaj::cli {

// Pure. What is known of a model, as one page: no script, nothing to fetch. `report` is what `falaj report model`
// prints as JSON; parts that are not there are left out. Whatever names and texts hold, they are text.
std::string report_page(const json::object& report);

// Pure. Everything that happened, oldest first, out of answers of the API: each an object with time, what, thing and
// why. `parts`: alerts, findings, loop, runs and endpoints (by name), as the API lists them.
json::array timeline_of(const json::object& parts);

}  // namespace falaj::cli
