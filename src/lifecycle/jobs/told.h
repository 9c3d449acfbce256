// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lifecycle/track/types.h"

namespace falaj::jobs {

// What a job tells of itself without a network: lines of JSON that it appends to $FALAJ_METRICS.
//   {"metrics": {"loss": 0.31}, "step": 100, "time_ms": 1700000000000}    step and time may be left out
//   {"params": {"depth": "7"}}     {"tags": {"note": "second try"}}
// What is none of these is left out: a job does not fail for what it says.
std::vector<track::Batch> parse_told(std::string_view lines, std::int64_t now_ms);

}  // namespace falaj::jobs
