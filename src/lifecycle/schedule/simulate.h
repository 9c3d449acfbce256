// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lifecycle/schedule/plan.h"
#include "lifecycle/schedule/trace.h"

namespace falaj::schedule {

struct Faults {
  Micros node_up_mean{0};    // between losses of one node; 0 = never
  Micros node_down_mean{0};  // until it is back
  std::uint64_t seed = 1;
};

struct Simulated {
  StateRules rules;
  Policy policy;
  Micros tick{0};            // decisions are made at most so often; 0 = whenever something happens
  bool restartable = false;  // jobs may be tried and started again from nothing
  bool predicts = true;      // run times from history; otherwise the limit is all that is known
  bool forecasts = false;    // say of each waiting job when it will start, and remember whether it did
  Faults faults;
};

// FIFO without backfill, and EASY backfill: what others are compared with.
Simulated fifo();
Simulated easy();
Simulated ours();

// What came of it. Times in seconds; a slowdown is (wait + run) / run, runs below 10 s counting as 10 s.
struct Outcome {
  std::size_t jobs = 0;
  std::size_t unfinished = 0;  // could never run
  double wait_mean = 0, wait_p95 = 0, wait_max = 0;
  std::vector<double> wait_percentiles;  // from 0 to 100
  double completion_mean = 0;
  double slowdown_mean = 0;
  double utilisation = 0;
  double makespan = 0;
  double fairness = 1;  // Jain's index of the users' mean slowdowns
  std::size_t deadlines = 0, deadlines_missed = 0;
  std::size_t preemptions = 0, trials = 0, node_losses = 0;
  double lost_share = 0;        // work done in vain, of the work asked for
  double promise_late_max = 0;  // of firm promises made since the last loss of a node
  double guess_late_max = 0;    // of those that rested on jobs without a limit
  std::size_t forecasts = 0;
  double by_p50 = 0, by_p90 = 0;  // parts of them that started by then
  std::size_t plans = 0, decisions = 0;
};

// Runs a trace through the same plan() that the live server uses. `progress` is told the part done, if given.
Outcome simulate(const Trace& trace, const Simulated& how, const std::function<void(double)>& progress = {});

// The same trace under least attained service with two levels (Tiresias, NSDI 2019): jobs that have used less than
// `threshold` of a device come first, running ones are stopped for them at no cost and with nothing lost. Devices or
// processors are one pool. A bound for what preemption can bring rather than a system one could run.
Outcome simulate_least_attained(const Trace& trace, Micros threshold);

}  // namespace falaj::schedule
