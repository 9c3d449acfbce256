// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/data: how a room reads the bytes that it was given as 'in'.
#pragma once

#include <string>

#include "lifecycle/data/types.h"
#include "storage/table/workspace.h"

namespace falaj::data {

// By its first bytes: names of files say little, and there may be none.
bool is_gzip(const table::Source& source);

// The table function that reads 'in'. Of columns that are declared the type is said, not guessed.
std::string reader(Format format, bool gzip, const table::Schema& declared);

// Throws invalid when a line of JSON is nested more than kJsonDepthMax deep. To be called before anything is guessed.
void refuse_deep(table::Workspace& room, bool gzip, const table::Workspace::Watch& watch = {});

}  // namespace falaj::data
