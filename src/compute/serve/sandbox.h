// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace falaj::serve {

// What a process that runs models takes from itself. Nothing of it can be undone.

// Files: may read what is beneath `readable` and nothing else, and write nowhere. On this thread and those it starts.
// False where the kernel has no Landlock.
bool confine_files(std::span<const std::string> readable);

// System calls: no new programs or processes, no new sockets or connections, nothing about other processes, mounts,
// keys or the machine. On all threads. What is open stays open: listeners accept on. Throws unavailable.
void confine_calls();

}  // namespace falaj::serve
