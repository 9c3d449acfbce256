// SPDX-License-Identifier: Apache-2.0
#pragma once

// Logged models of an export beside those that are here. Private to this directory.

#include "lifecycle/track/export_run.h"
#include "storage/sql/database.h"

namespace falaj::track {

// Whether merging would change anything. Throws conflict for a param of another value.
bool lacks_model(sql::Reader& reader, const Where& where, const ExportedLoggedModel& model);
// Makes the model in this row of an experiment, or adds what the one that is there does not have.
void merge_model(sql::Writer& writer, const Where& where, std::int64_t experiment, const ExportedLoggedModel& model);

}  // namespace falaj::track
