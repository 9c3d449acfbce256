// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lifecycle/models/lineage.h"
#include "lifecycle/models/types.h"
#include "storage/sql/database.h"

namespace falaj::models {

// A run, or an experiment with all its runs, that has this tag is not removed for good; its value is the reason.
inline constexpr std::string_view kHoldTag = "falaj.hold";

// Why a run or a logged model must not be removed for good: somebody holds it, or a version that an alias or a stage
// points at came from it, or from what it made. Nothing when it may.
std::optional<std::string> why_kept(sql::Reader& reader, const Where& where, const Thing& thing);

}  // namespace falaj::models
