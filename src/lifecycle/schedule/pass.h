// SPDX-License-Identifier: Apache-2.0
#pragma once

// One making of a plan. Private to this directory.

#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lifecycle/schedule/plan.h"
#include "lifecycle/schedule/room.h"

namespace falaj::schedule {

class Pass {
 public:
  Pass(const Book& book, const Policy& policy, Micros now);
  Plan run();

 private:
  // Where a queue's jobs have been considered up to.
  struct Turn {
    PendingList::Iterator next, end;
    std::vector<std::pair<OrderKey, const RunningEntry*>> trials;  // of this queue, in order
    std::size_t next_trial = 0;
    std::size_t left = 0;  // jobs of this queue and those below it that have not been considered

    bool trial_first() const {
      return next_trial < trials.size() && (next == end || trials[next_trial].first < next->key);
    }
    bool done() const { return next == end && next_trial == trials.size(); }
  };

  // Whether something other than room keeps it from starting; noted as the reason why it waits.
  bool barred(const Pending& pending);
  bool is_held(const Pending& pending);  // by something else than its queue
  struct Bound {
    Reason reason;
    const std::string* queue;
  };
  std::optional<Bound> bound_reached(int queue, const Amounts& more) const;  // by the queue or one above
  std::optional<Bound> bound_reached(const Pending& pending, int tasks) const {
    return bound_reached(pending.queue, times(pending.job.task, tasks));
  }
  bool decided(const Pending& pending) const { return pending.decided_in == pass_; }
  bool is_bounded(int queue) const;  // it or one above it may hold so much and no more
  void failed(const Pending& pending, Micros duration);
  bool known_not_to_fit(int ask, int tasks, Micros duration) const;
  bool start(const Pending& pending);  // if there is room
  void started(const Pending& pending, Placement placement, bool trial);
  void wait(const Pending& pending, Reason reason, std::string detail = {});
  void wait_for_room(const Pending& pending);
  void promise_earliest(const Job& job, int ask, Micros from);

  bool start_all();
  void start_urgent();
  void take_back(int guaranteed);
  bool has_headroom(const Queue& queue, const Amounts& held) const;  // within what it is guaranteed
  bool may_take_back(const Pending& pending) const;                  // by the guarantee of some queue that it is in
  bool displace(const Pending& pending);
  std::vector<const RunningEntry*> candidates_for(const Pending& pending);
  void hold(int queue, const Amounts& amounts, int sign);  // by the queue and those above it
  bool may_be_displaced(const RunningEntry& victim, const Pending& in_favour_of);
  // The lowest queue that holds both.
  int common_queue(int a, int b) const;
  // Whether it stays within what its queue, or one above it but below `common`, is guaranteed.
  bool has_a_right(const Pending& pending, int common) const;
  // Whether it holds more than is guaranteed to its queue and those above it, below `common`.
  bool is_borrowed(const RunningEntry& victim, int common) const;

  void promise_impatient();
  void promise_to(JobId id, Micros patient_until);
  void make_firm(JobId id);
  void take_turns();
  bool consider(const Waiting& waiting);                 // false: look no further
  bool pass_over(const Waiting& waiting, bool bounded);  // if it certainly has no room
  void consider_trial(const RunningEntry& trial);
  bool keep(const RunningEntry& trial);  // if it fits where it is without breaking a promise
  int least_served(int below) const;
  void add_left(int queue, std::size_t jobs);
  bool nothing_can_start();
  void settle_trials();
  void start_trials();
  void grow();
  void explain_rest();

  // How long a job must be given room for. One without a limit may not bet against a promise that rests on no bet.
  Micros holds(const Job& job) const { return certain_ && job.limit == kNever ? kNever : lasts(job); }
  Micros until(const Job& job) const { return moment_after(now_, holds(job)); }
  Micros until(const RunningEntry& entry) const {
    return certain_ && entry.running.job.limit == kNever ? kNever : entry.ends_by;
  }

  const Book& book_;
  const Policy& policy_;
  const Micros now_;
  Room room_;
  Plan plan_;
  std::vector<Amounts> held_;  // by queue, with what this plan starts
  std::vector<double> share_;  // by queue: held now and lately, for its weight
  std::vector<Turn> turns_;
  std::uint64_t pass_;                                       // marks those started, or that wait for a noted reason
  std::vector<const Waiting*> waiting_;                      // for room, in the order considered
  std::unordered_set<JobId> kept_;                           // trials that stay
  std::vector<std::vector<std::pair<int, Micros>>> failed_;  // by ask: so many tasks for so long did not fit
  JobId firm_;                                               // whose promise only moves earlier
  bool certain_ = false;                                     // it rests on limits alone
  std::size_t open_ask_ = 0;                                 // no kind of job before it can start any more
  bool promised_first_ = false;
  int looked_at_ = 0;
};

}  // namespace falaj::schedule
