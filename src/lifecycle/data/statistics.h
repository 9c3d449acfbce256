// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lifecycle/data/types.h"
#include "storage/table/workspace.h"

namespace falaj::data {

// One pass over a table or view that the room has.
std::vector<ColumnStats> statistics(table::Workspace& room, const std::string& relation, const table::Schema& schema,
                                    const table::Workspace::Watch& watch = {});

}  // namespace falaj::data
