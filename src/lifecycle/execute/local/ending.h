// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "lifecycle/execute/executor.h"

namespace falaj::execute::local {

inline constexpr int kCheckpointed = 75;  // exit status that asks to be started again

// How one task ended.
struct TaskEnd {
  int rank = 0;
  int exit_code = 0;  // when signal is 0
  int signal = 0;
  bool out_of_memory = false;  // the kernel killed something of it for its memory limit
  bool told = false;           // we had sent it a signal before
};

// Why we ended an attempt, when we did: the first of these that came up.
enum class Cause { none, a_task_failed, stop, time_limit, disk, keeper_ends };

// Why an attempt whose tasks ended so, in this order, ended. Pure.
//  - The first task that failed by itself decides; what others did after we told them to stop does not count against
//    them: they may end as they like.
//  - 75 says that the state was saved: it holds for the attempt when no task failed otherwise by itself.
//  - The first `spares` that were killed by a signal are not missed.
Ending ending_of(std::span<const TaskEnd> ends, Cause cause, int spares = 0);

// Whether a task that ended so was killed, and not by us: of a gang with spares, another takes its place.
inline bool was_lost(const TaskEnd& end) { return end.signal != 0 && !end.told; }

Ending not_started(std::string message, int rank = 0);

}  // namespace falaj::execute::local
