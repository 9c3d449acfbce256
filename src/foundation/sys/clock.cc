// SPDX-License-Identifier: Apache-2.0
#include "foundation/sys/clock.h"

namespace falaj::sys {
namespace {
template <class Source>
Micros read() {
  return std::chrono::duration_cast<Micros>(Source::now().time_since_epoch());
}
}  // namespace

Micros RealClock::now() const { return read<std::chrono::steady_clock>(); }
Micros RealClock::wall() const { return read<std::chrono::system_clock>(); }

}  // namespace falaj::sys
