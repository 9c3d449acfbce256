// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a process takes from itself before it becomes a task. Nothing here can be undone, and children inherit it. These
// run between fork and exec: they make system calls, allocate little and report by value; 0 or an errno.

#include <cstdint>
#include <span>
#include <string>

#include "foundation/base/bytes.h"

namespace falaj::execute::local {

// System calls that a job has no business with: a list of what is denied, because jobs are whatever people run. Denied
// calls fail with EPERM, or ENOSYS where libraries then take another way. Compiled once.
class CallFilter {
 public:
  enum class Sockets { any, local_only };  // local_only where there is no network namespace to keep the network away
  explicit CallFilter(Sockets sockets);    // throws unavailable
  int apply() const;                       // Requires: no new privileges

 private:
  Bytes program_;  // sock_filter records
};

// Landlock, as far as this kernel has it.
int landlock_version();  // 0: none

// May read and run what is beneath `readable`, change what is beneath `writable`, use devices beneath `devices`, and
// nothing else; may not signal, or connect to abstract sockets of, processes outside. Paths that do not exist are left
// out. Requires: no new privileges, landlock_version() > 0.
int confine_files(std::span<const char* const> readable, std::span<const char* const> writable,
                  std::span<const char* const> devices);

int give_up_privileges();  // no new ones, and every capability

}  // namespace falaj::execute::local
