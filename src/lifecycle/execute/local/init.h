// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lifecycle/execute/local/sandbox.h"

namespace falaj::execute::local {

// The child's side of start(). Requires: every signal is blocked.
[[noreturn]] void be_init(const AttemptStart& attempt, int control);

}  // namespace falaj::execute::local
