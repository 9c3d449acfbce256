// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a State knows, laid out so that a pass over it costs what it decides and not what it looks at.

#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lifecycle/schedule/fit.h"
#include "lifecycle/schedule/pending_list.h"
#include "lifecycle/schedule/state.h"

namespace falaj::schedule {

// What a task of one kind of job may use of a node of one kind.
struct Match {
  bool shape = false;  // labels and devices are right
  bool zone = false;   // and so is the zone
  Demand demand;
};

// Jobs that ask for the same of a node share one kind, so that what one of them found need not be looked for again.
struct AskKind {
  Amounts task;
  Where where;
  std::vector<Match> matches;  // by kind of node
  std::size_t pending = 0;
};

struct NodeKind {
  std::string zone;
  std::map<std::string, std::string> labels;
  std::vector<std::string> device_types;
};

struct Pending {
  Job job;
  int ask = 0;
  int queue = 0;
  Micros patient_until{0};
  mutable std::uint64_t decided_in = 0;  // the pass that has said what becomes of it
};

struct RunningEntry {
  Running running;
  int ask = 0;
  int queue = 0;
  Micros ends_by = kNever;  // by its limit and its grace
  Micros patient_until{0};  // on trial it still waits for a start of its own
};

struct QueueEntry {
  Queue queue;
  int parent = -1;
  std::vector<int> children;
  Amounts held;       // by its jobs and those of the queues below it
  double share = 0;   // of `held`, dominant
  double lately = 0;  // the mean of `share`, older moments weighing less
  Micros lately_at{0};
  std::size_t waiting = 0;  // in it and below it
  PendingList pending;
};

// A part of a running job, on the node that it is on.
struct Occupant {
  const RunningEntry* entry;
  std::size_t part;  // of its placement
};

// What is free at a later moment, of the nodes where that is more than now.
struct Freed {
  std::vector<Free> free;
  std::vector<std::uint64_t> known;  // a bit for each node

  void clear(std::size_t nodes) {
    free.resize(nodes);
    known.assign(nodes / 64 + 1, 0);
  }
  bool has(std::size_t node) const { return (known[node / 64] >> node % 64 & 1) != 0; }
  void add(std::size_t node, const Free& now) {
    free[node] = now;
    known[node / 64] |= std::uint64_t{1} << node % 64;
  }
  // The first at or after `from`; as many as there are when none is.
  std::size_t next(std::size_t from) const {
    std::size_t word = from / 64;
    if (word >= known.size()) return free.size();
    for (std::uint64_t left = known[word] >> from % 64 << from % 64;; left = known[word]) {
      if (left != 0) return word * 64 + static_cast<std::size_t>(std::countr_zero(left));
      if (++word == known.size()) return free.size();
    }
  }
};

struct Book {
  StateRules rules;
  std::vector<Node> nodes;
  std::vector<int> node_kind;
  std::vector<Free> truly_free;  // of nodes that are down, too
  // Nothing on those that are down. A plan being made takes from it and puts everything back: copying it for each would
  // cost more than most plans. So only one plan of a State is made at a time.
  mutable FreeTree free;
  mutable std::uint64_t passes = 0;
  mutable Freed freed;  // for looking ahead in a plan, kept so that it need not be made for each
  std::vector<std::vector<Occupant>> on_node;
  std::map<std::string, int, std::less<>> node_index;
  std::vector<NodeKind> node_kinds;
  std::vector<AskKind> ask_kinds;
  std::unordered_multimap<std::size_t, int> ask_index;  // by hash of what is asked for
  std::vector<QueueEntry> queues;                       // [0] is the root
  std::map<std::string, int, std::less<>> queue_index;
  std::unordered_map<JobId, Pending> pending;
  std::unordered_map<JobId, RunningEntry> running;
  std::map<std::pair<Micros, JobId>, const RunningEntry*> ends;  // of those with a limit that are not trials
  std::set<std::pair<Micros, JobId>> patience;                   // of the pending and of trials
  std::map<JobId, const RunningEntry*> trials;
  std::set<JobId> stopping;
  std::set<JobId> elastic;        // running with fewer tasks than they could use
  std::set<JobId> preemptible;    // running
  std::set<OrderKey> preempting;  // pending jobs that may displace others
  Amounts capacity;               // of nodes that are up
  JobId firm;                     // has a firm promise, which no other job may be given before it
  bool certain = false;           // that promise rests on limits alone, and must go on doing so
  Micros longest_limit{0};

  const Demand& demand(int ask, int node) const { return ask_kinds[ask].matches[node_kind[node]].demand; }
  bool eligible(int ask, int node) const {
    const Match& match = ask_kinds[ask].matches[node_kind[node]];
    return match.shape && match.zone;
  }
};

// The largest part that `amounts` times `tasks` is of `capacity`.
double dominant_share(const Amounts& amounts, double tasks, const Amounts& capacity);
// A moment so much later; never when either is.
Micros moment_after(Micros moment, Micros span);
// How long a job holds its place at the longest; without a limit, how long it probably does.
Micros lasts(const Job& job);
// Whether `ends_by` is only when it probably ends.
inline bool is_guess(const RunningEntry& entry) {
  return entry.running.job.limit == kNever && !entry.running.stopping && entry.ends_by != kNever;
}
Amounts times(const Amounts& amounts, int tasks);
Amounts plus(const Amounts& a, const Amounts& b, int sign = 1);
// Whether one that holds `held` may have `more` of everything that `more` asks for.
bool may_add(const Amounts& held, const Amounts& more, const Amounts& bound);
// Whether `more` asks for something that is bounded.
bool is_about(const Amounts& bound, const Amounts& more);
// What a queue holds and lately held, as parts of the cluster, at `now`.
double lately_at(const QueueEntry& queue, Micros now, Micros half_life);
Micros patience_of(const Book& book, const Job& job);

}  // namespace falaj::schedule
