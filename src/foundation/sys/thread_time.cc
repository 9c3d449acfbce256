// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/thread_time.h"

#include <ctime>

namespace falaj::sys {

Micros thread_time() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::duration_cast<Micros>(std::chrono::nanoseconds(t.tv_nsec));
}

}  // namespace falaj::sys
