// SPDX-License-Identifier: Apache-2.0
#pragma once

// Room on the nodes, now and later, while a plan is being made: what is free, less what the plan has given away, less
// what it has promised. Private to this directory.

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lifecycle/schedule/book.h"

namespace falaj::schedule {

// Nodes promised to a job for a time to come.
struct Promise {
  JobId job;
  int ask = 0;
  Micros start{0};
  Micros end = kNever;
  Placement placement;
};

struct Found {
  Micros start{0};
  Placement placement;
};

// Which promises, or what of what was given, lies on each node. Chains in one array: a plan makes some for every job
// that it starts, and is made thousands of times.
class ByNode {
 public:
  struct On {
    std::size_t index;  // of a promise, or of what was given
    std::size_t part;   // of its placement
  };
  explicit ByNode(std::size_t nodes) : nodes_(nodes) {}
  void push(int node, On on) {
    if (newest_.empty()) newest_.resize(nodes_);
    auto& newest = newest_[static_cast<std::size_t>(node)];
    links_.push_back({on, newest});
    newest = static_cast<std::uint32_t>(links_.size());
  }
  // Takes back the last push, which was to this node.
  void pop(int node) {
    newest_[static_cast<std::size_t>(node)] = links_.back().before;
    links_.pop_back();
  }
  void clear() {
    newest_.clear();
    links_.clear();
  }
  bool has(int node) const { return newest_of(node) != 0; }
  template <class Each>
  void each(int node, Each each) const {
    for (auto at = newest_of(node); at != 0; at = links_[at - 1].before) each(links_[at - 1].on);
  }

 private:
  struct Link {
    On on;
    std::uint32_t before;  // of the same node; one more than its index, 0 = none
  };
  std::uint32_t newest_of(int node) const { return newest_.empty() ? 0 : newest_[static_cast<std::size_t>(node)]; }

  std::size_t nodes_;
  std::vector<std::uint32_t> newest_;  // by node, as Link::before
  std::vector<Link> links_;
};

class Room {
 public:
  // Trials count as gone: they hold nothing that others may not have.
  Room(const Book& book, Micros now);
  ~Room();  // puts everything back
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // Places between `tasks_min` and `tasks_max` tasks from now until `until` without breaking a promise, or not at all.
  std::optional<Placement> place(int ask, int tasks_min, int tasks_max, Layout layout, Micros until);
  // The same, as if nothing was promised.
  std::optional<Placement> place_despite_promises(int ask, int tasks_min, int tasks_max, Layout layout);
  // The first moment at or after `from` at which `tasks` fit for `duration`.
  std::optional<Found> earliest(int ask, int tasks, Micros from, Micros duration) const;
  // Whether exactly this is free from now until `until`.
  bool fits_exactly(int ask, const Placement& placement, Micros until) const;

  // No node has room for one task: known once a place was looked for in vain.
  bool full(int ask) const { return first_with_room_[static_cast<std::size_t>(ask)] >= free_.size(); }

  // Requires: it was placed, and nothing taken since. `guess`: `until` is only when it probably ends.
  void take(int ask, const Placement& placement, Micros until, bool guess = false);
  void give_back(int ask, const Placement& placement);
  // To try something and go back to how it was.
  struct Mark {
    std::size_t changes, given;
  };
  Mark mark() const { return {changes_.size(), given_.size()}; }
  void go_back(Mark mark);
  // Whether running jobs without a limit are taken to end when they probably do, as at first, or never.
  void guess(bool guesses) { guesses_ = guesses; }
  void leaves(JobId job, Micros by) { leaves_[job] = by; }  // it was told to stop in this plan
  void promise(Promise promise);
  void withdraw(JobId job);  // its promise, if it has one
  const Promise* promise_of(JobId job) const;
  const std::vector<Promise>& promises() const { return promises_; }
  // The promise that keeps `ask` from starting now; nullptr when there is none on any node that has room.
  const Promise* in_the_way(int ask) const;

 private:
  struct Given {
    Micros end;
    bool guess;
    int ask;
    Placement placement;
  };
  Micros ends_by(const RunningEntry& entry) const { return guesses_ || !is_guess(entry) ? entry.ends_by : kNever; }
  Micros ends_by(const Given& given) const { return guesses_ || !given.guess ? given.end : kNever; }
  Free lasting(int node, Micros start, Micros end) const;
  void set(int node, const Free& free);
  void restore(std::size_t changes);     // what was free when there were so many
  void note_promise(std::size_t index);  // on its nodes
  Free free_at(int node, Micros moment) const;
  // The first node at or after `from` where a task may fit now.
  std::size_t next(std::size_t from, int ask) const;
  std::optional<Placement> place_at(int ask, int tasks, Micros start, Micros duration, const Freed* freed) const;
  std::optional<Placement> gather(int ask, int tasks_min, int tasks_max, Layout layout, std::optional<Micros> until);

  const Book& book_;
  const Micros now_;
  bool guesses_ = true;
  FreeTree& free_;
  std::vector<std::pair<int, Free>> changes_;  // what was free before each
  std::vector<Given> given_;                   // in this plan
  std::vector<Promise> promises_;
  ByNode promised_on_, given_on_;
  std::unordered_map<JobId, Micros> leaves_;
  std::vector<std::size_t> first_with_room_;  // by ask: no node before it has room
};

}  // namespace falaj::schedule
