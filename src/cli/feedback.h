// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>

#include "cli/session.h"
#include "foundation/base/json.h"

namespace falaj::cli {

inline constexpr std::size_t kLabelsAtOnce = 5'000;  // in one call

// endpoint label, predictions, experiment
void add_endpoint_feedback(CLI::App& endpoint, Session& session);

// Labels as a file has them: CSV with a head that names prediction_id, value (or label) and perhaps at, or JSON objects
// of those, one a line. Throws invalid with the line.
json::array read_labels(std::istream& in);

}  // namespace falaj::cli
