// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "foundation/base/json.h"

namespace falaj::cli {

// The steps of a pipeline or of a run, as the API gives them: id, kind, phase, needs. Pure.
std::string graph_svg(const json::array& steps, const std::string& title);
// Lines for a terminal: each step behind those it needs, with what became of it. `colour`: with escape sequences.
std::string graph_text(const json::array& steps, bool colour);

}  // namespace falaj::cli
