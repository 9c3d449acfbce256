// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/crash_note.h"

#include <algorithm>
#include <cstring>

namespace falaj::serve {
namespace {

thread_local const CrashNote::Name* doing_here = nullptr;

}  // namespace

AtWork::AtWork(CrashNote::Name* at, std::string_view digest) : at_(at) {
  if (!at_) return;
  std::memcpy(*at_, digest.data(), std::min(digest.size(), CrashNote::kDigest));
  doing_here = at_;
}

AtWork::~AtWork() {
  if (!at_) return;
  (*at_)[0] = 0;
  doing_here = nullptr;
}

void AtWork::leave_name(CrashNote& note) noexcept {
  if (doing_here) std::memcpy(note.crashed, *doing_here, CrashNote::kDigest);
}

}  // namespace falaj::serve
