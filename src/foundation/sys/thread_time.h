// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foundation/sys/clock.h"

namespace falaj::sys {

// How long this thread has worked: what it waited does not count. Only differences mean anything.
Micros thread_time();

}  // namespace falaj::sys
