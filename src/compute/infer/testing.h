// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compute/infer/session.h"

namespace falaj::infer {

// The runtime that ./setup obtained, loaded once for all tests of a program.
const Runtime& runtime();

}  // namespace falaj::infer
