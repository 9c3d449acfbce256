// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "compute/train/gang.h"

namespace falaj::train {

// Starts this program anew in its own process, to meet those that are left. Of a gang that has broken nothing can be
// unwound: threads wait for what never comes, in libraries that have no way out. Whoever watches the process sees
// nothing of it. SIGTERM is blocked until the program lets it in again. Returns, having said why, when it cannot be
// done, or was done too often.
void start_again(const Broken& broken);

// In a program that was started so: the gang before, for GangPlace::before. "" in any other.
std::string gang_before();

}  // namespace falaj::train
