// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>

#include "foundation/sys/descriptor.h"

namespace falaj::execute::local {

// A namespace of one kind ("mnt", "net", "user"), made by a child of this process that lives only for that, because
// who enters a namespace of its own may not come back. `make` runs in the child and says what failed, with errno, or
// null; `complete` then in this process, with the child's number. Throws unavailable. Requires: one thread.
sys::Descriptor made_namespace(const char* kind, const std::function<const char*()>& make,
                               const std::function<const char*(pid_t)>& complete = {});

}  // namespace falaj::execute::local
