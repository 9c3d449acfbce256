// SPDX-License-Identifier: Apache-2.0
#pragma once

// Starts the processes of an attempt. The keeper makes one child per attempt, the attempt's *init*: first in its pid
// namespace, it takes the attempt's view, network and user for all of them, gives up every privilege, starts the tasks,
// and stays to reap whatever they leave behind. It dies with the keeper, and with it everything in its namespace.

#include <sys/types.h>

#include <string>
#include <vector>

#include "foundation/sys/descriptor.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/execute/local/restrict.h"
#include "lifecycle/execute/local/view.h"

namespace falaj::execute::local {

struct TaskStart {
  int rank = 0;
  std::vector<std::string> environment;  // "K=V"
  std::vector<int> cpus;                 // to be pinned to by its own affinity; empty where a group pins it
  std::vector<int> doors;                // of its group
  int output = -1;
};

struct AttemptStart {
  std::vector<std::string> command;
  std::string path;  // where a command without a slash is looked for
  std::string work_directory;
  std::vector<TaskStart> tasks;
  Limits limits;
  std::int64_t open_files = 1024;
  bool grouped = false;  // limits of memory and processes are kept by groups; otherwise by each process for itself

  // With namespaces.
  const View* view = nullptr;  // null: the host's files, as far as Landlock lets them be seen
  std::vector<Tree> trees;
  Tree image;        // none: the host's programs
  int network = -1;  // -1: the host's
  const Identity* identity = nullptr;

  const CallFilter* filter = nullptr;
  std::vector<std::string> readable, writable;  // for Landlock, as seen in the view
};

// What init tells the keeper, one packet each.
struct InitSays {
  enum class What : int { running, failed, task_ended, all_ended };
  What what = What::running;
  int rank = 0;
  int status = 0;  // of task_ended: as wait gives it; of all_ended: 1 when its network can be used again
  int error = 0;
  std::int64_t cpu_us = 0, memory_peak_bytes = 0;  // of the task and those of its children that it waited for
  char text[96] = {};                              // of failed: what it was doing
};

// How the keeper tells init: SIGTERM is passed on to every task, SIGUSR1 kills everything at once.
struct Started {
  pid_t pid = -1;
  sys::Descriptor process;  // readable when it has ended
  sys::Descriptor control;  // InitSays
};

// Throws unavailable. What goes wrong in the child is told through `control`.
Started start(const AttemptStart& attempt);

}  // namespace falaj::execute::local
