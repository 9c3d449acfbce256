// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "governance/resource/kind.h"
#include "lifecycle/data/types.h"

namespace falaj::data {

// Checks a spec for what its description cannot say, and keeps a row for the dataset. A change of columns is taken when
// it only adds columns that may be missing; everything else needs a greater major.
resource::Kind dataset_kind();

// What of a change of columns breaks those who read: empty when it only adds. For people.
std::vector<std::string> breaking(const table::Schema& before, const table::Schema& after);

}  // namespace falaj::data
