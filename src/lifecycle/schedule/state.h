// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "lifecycle/schedule/model.h"

namespace falaj::schedule {

struct Running {
  Job job;
  Placement placement;
  Micros started{0};
  Micros checkpointed{0};    // what it did before then is safe; 0 = nothing is
  bool trial = false;        // in room promised to another
  bool stopping = false;     // told to stop; holds its place until it is gone
  Micros stops_by = kNever;  // when it is gone at the latest, once it is stopping
};

// How waiting jobs are ordered and how fast what a queue used is forgotten. Fixed for the life of a State.
struct StateRules {
  Order order = Order::hastiest;
  // A job is patient for as long as the longest time limit in use (or this), less when it needs a large part of the
  // cluster, which takes long to clear, and never past the last start that meets its deadline.
  std::optional<Micros> patience;
  Micros usage_half_life = std::chrono::hours(24);
};

struct Book;  // the same, laid out for planning: private to this directory

// Everything a decision depends on: nodes, queues, pending and running jobs, what queues used lately. One owner changes
// it. Each change is checked: what does not fit throws conflict and changes nothing, so that no resource is ever given
// twice, whatever a plan said.
class State {
 public:
  explicit State(StateRules rules = {});
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;
  ~State();

  void set_queues(std::vector<Queue> queues);  // throws invalid: no name, unknown parent, cycle, in use and gone
  // Adds the node, or changes the one of that name. One that has running jobs keeps them. Throws invalid.
  int set_node(Node node);
  void set_up(int node, bool up);

  void know(const Job& job);           // so that earliest_start may be asked about it
  void add(Job job);                   // to the pending; throws invalid (unknown queue, tasks < 1), exists
  void change(Job job);                // of a pending job; throws not_found
  void remove(JobId job, Micros now);  // of a pending job, or of a running one that has ended; unknown: nothing

  // Pending -> running. Throws not_found, conflict (not free, node down, not of its kind, over a queue's limit).
  void start(const Start& start, Micros now);
  void resize(JobId job, Placement placement, Micros now);  // of a running job; throws not_found, conflict
  void keep(JobId job);                                     // a trial no longer is one; throws not_found
  void stopping(JobId job, Micros gone_by);                 // throws not_found
  void checkpointed(JobId job, Micros at);                  // throws not_found
  // Whom a plan gave a firm promise, so that the next one keeps it.
  void note_promises(const Plan& plan);
  // Running -> pending again, as `job` now reads. Throws not_found.
  void requeue(Job job, Micros now);

  std::span<const Node> nodes() const;
  int node(std::string_view name) const;  // -1 = unknown
  const Job* pending(JobId job) const;
  const Running* running(JobId job) const;
  std::size_t pending_count() const;
  std::size_t running_count() const;
  std::vector<JobId> pending_ids() const;  // in order of queue, then as they are ordered in it
  std::vector<JobId> running_ids() const;  // in order of id
  Amounts free_of(int node) const;
  Amounts capacity() const;  // of the nodes that are up
  Amounts held_by(std::string_view queue) const;
  double share_of(std::string_view queue, Micros now) const;  // of the cluster: held now, and lately

  const Book& book() const { return *book_; }

 private:
  std::unique_ptr<Book> book_;
};

}  // namespace falaj::schedule
