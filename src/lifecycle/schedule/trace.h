// SPDX-License-Identifier: Apache-2.0
#pragma once

// Jobs that ran somewhere once, to be run again in simulation.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lifecycle/schedule/model.h"

namespace falaj::schedule {

struct TraceJob {
  Micros submitted{0};
  Micros ran{0};
  Micros limit = kNever;  // what was asked for, never less than what it took
  Micros deadline = kNever;
  int tasks = 1;
  Amounts task;
  std::string user;
  std::string name;
  std::string queue;
  std::int64_t priority = 0;
};

struct Trace {
  std::vector<Node> nodes;
  std::vector<Queue> queues;
  std::vector<TraceJob> jobs;  // in order of submission
  std::size_t skipped = 0;     // lines without a run time or processors
};

// The Standard Workload Format: one node with the processors its header states (MaxProcs), or the most any job had.
// Throws invalid, naming the line.
Trace read_swf(std::string_view text);

// Lines of a GPU cluster's log with a heading: `timestamp` (seconds, or YYYY-MM-DD hh:mm:ss), `duration` (seconds),
// `num_gpus`, and if there are any `user`, `name`, `queue`, `limit`, `deadline` (seconds after submission); a `cluster`
// stands in for a user that is missing. `nodes` nodes of eight GPUs; 0 = so many that four fifths would be in use.
Trace read_gpu_csv(std::string_view text, int nodes);

// Either of them by the name of its file: what ends in .csv is the latter, and both may end in .gz besides. Throws
// invalid; exhausted: more than a gibibyte of text.
Trace read_trace(std::string_view file, std::string_view bytes, int nodes);

// A made-up trace of a shared cluster, the same for the same seed: users with habits, days and nights, a few wide jobs.
Trace make_trace(std::uint64_t seed, std::size_t jobs, int nodes, int processors);

}  // namespace falaj::schedule
