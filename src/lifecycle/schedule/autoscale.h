// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lifecycle/schedule/state.h"

namespace falaj::schedule {

// Nodes of one shape that can be had and given back.
struct Pool {
  std::string name;
  Node shape;  // its name and `up` mean nothing here
  int nodes_min = 0;
  int nodes_max = 0;
  double cost_per_hour = 0;  // of one node
  Micros warm_up{0};         // between asking for a node and its being up
  double spend_max = 0;      // in a period; 0 = only what holds for all pools
  // Its own rules; those of all pools when it has none.
  std::optional<Micros> wait_target, idle_after, steady_for;
};

// A pool at one moment.
struct PoolNow {
  Pool pool;
  std::vector<int> nodes;  // those of the state that belong to it
  int coming = 0;          // asked for and not yet up
  Micros changed{0};       // when nodes were last asked for or given back
  double spent = 0;        // in the current period, with what is up and coming until its end
};

struct ScaleRules {
  Micros wait_target = std::chrono::minutes(10);  // nodes are asked for when a job would wait for longer
  Micros idle_after = std::chrono::minutes(15);   // a node that did nothing for so long is given back
  Micros steady_for = std::chrono::minutes(5);    // after a change nothing is given back for so long
  double spend_max = 0;                           // of all pools in a period; 0 = no cap
  Micros period = std::chrono::hours(24);
  std::size_t looks_at = 256;  // waiting jobs, in their order: each costs a look at everything that runs
};

// How long each node has done nothing, by index; kNever for one that does something.
using IdleSince = std::vector<Micros>;

struct Scaling {
  std::string pool;
  int more = 0;            // nodes to ask for
  std::vector<int> fewer;  // nodes to give back
  std::string why;
};

// A job that waits for room, and when it would start if nothing grew; kNever when nothing that is up holds it.
struct Delay {
  const Job* job = nullptr;
  Micros would_start = kNever;

  bool misses_deadline() const {
    return job->deadline != kNever && (would_start == kNever || would_start > job->deadline - job->run.p90);
  }
  bool is_longer_than(Micros target) const {
    return would_start == kNever || would_start - job->submitted > target || misses_deadline();
  }
};
std::vector<Delay> delays(const State& state, const ScaleRules& rules, Micros now);

// Which pools grow or shrink now. Pure.
// Up: jobs that would wait longer than the target, or miss their deadline, in the order in which they would start; for
// each the cheapest pool whose nodes hold its tasks and that is up in time, so that a dear pool is used only when no
// cheaper one helps. What is already coming counts. Down: nodes idle for long, but never below the least of a pool, not
// shortly after a change, and not while a job waits that they hold.
std::vector<Scaling> scale(const State& state, const std::vector<PoolNow>& pools, const IdleSince& idle,
                           const ScaleRules& rules, Micros now);

}  // namespace falaj::schedule
