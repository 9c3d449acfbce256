// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "governance/resource/kind.h"
#include "lifecycle/flow/bodies.h"

namespace falaj::flow {

// Pipeline: everything that can be wrong with it is said when it is declared.
resource::Kind pipeline_kind(CheckTraining training);

}  // namespace falaj::flow
