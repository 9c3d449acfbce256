// SPDX-License-Identifier: Apache-2.0
#pragma once

// The keeper: a small process that is the parent of every task of this node, so that `falaj` may be restarted or killed
// while jobs run. It has one thread and one directory:
//   keeper.sock   where executors of the same user connect (wire.h)
//   keeper.lock   held by the one keeper that lives
//   keeper.log    what it had to complain about
//   journal       what it knows of its attempts (journal.h)
//   logs/         what tasks wrote (task_log.h)
//   images/       unpacked, by digest (images.h)
// When it dies its tasks die, and the next one reports them lost, once.

#include <string>

#include "foundation/sys/clock.h"

namespace falaj::execute::local {

inline constexpr const char* kSocketName = "keeper.sock";
inline constexpr const char* kLogsName = "logs";

struct KeeperOptions {
  std::string directory;                          // made when missing
  sys::Micros linger = std::chrono::seconds(10);  // ends when it has had no task and no executor for so long
  bool stays = false;                             // never ends by itself: something else looks after it
};

// Becomes the keeper in a process of its own, in a session of its own. Returns, in the caller, once it answers, or when
// one lives there already: 0. Otherwise 1, with the reason on standard error. Requires: this process has one thread.
int run_keeper(const KeeperOptions& options);

}  // namespace falaj::execute::local
