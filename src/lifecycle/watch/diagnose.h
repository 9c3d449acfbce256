// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "foundation/stats/quantiles.h"

namespace falaj::watch {

// Why numbers are not what they were, where it can be told from them.
struct Diagnosis {
  std::string text;
  bool is_fault = false;  // of whoever sends them; else the same shape, moved
};

// Nothing when no single scaling or shift makes the window lie within `tolerance` (a gap of ranks) of the reference
// again. Units that people mix up are tried first; then whatever fits best.
std::optional<Diagnosis> diagnose(const stats::Quantiles& reference, const stats::Quantiles& window, double tolerance);

}  // namespace falaj::watch
