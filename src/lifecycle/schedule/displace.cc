// SPDX-License-Identifier: Apache-2.0
// Which running jobs are told to stop for another, and which never are.
#include <algorithm>
#include <tuple>

#include "lifecycle/schedule/pass.h"

namespace falaj::schedule {
namespace {

Micros lost_work(const Running& running, Micros now) {
  return (now - std::max(running.started, running.checkpointed)) * tasks_of(running.placement);
}

}  // namespace

void Pass::start_urgent() {
  for (const OrderKey& key : book_.preempting) {
    const Pending& pending = book_.pending.at(key.id);
    if (barred(pending) || start(pending)) continue;
    displace(pending);
  }
  // What a queue is guaranteed it takes back from those that borrowed it.
  for (std::size_t i = 1; i < book_.queues.size(); ++i) {
    const QueueEntry& queue = book_.queues[i];
    if (!queue.queue.guaranteed || queue.pending.empty()) continue;
    const Pending& first = *queue.pending.begin()->pending;
    if (barred(first) || !has_a_right(first) || start(first)) continue;
    displace(first);
  }
}

bool Pass::has_a_right(const Pending& pending) const {
  const Amounts more = times(pending.job.task, pending.job.tasks_min);
  bool guaranteed = false;
  for (int at = pending.queue; at > 0; at = book_.queues[at].parent) {
    const Queue& queue = book_.queues[at].queue;
    if (!queue.guaranteed) continue;
    if (!within(plus(held_[at], more), *queue.guaranteed)) return false;
    guaranteed = true;
  }
  return guaranteed;
}

bool Pass::is_borrowed(int queue) const {
  for (int at = queue; at > 0; at = book_.queues[at].parent) {
    const Queue& entry = book_.queues[at].queue;
    if (entry.guaranteed && within(held_[at], *entry.guaranteed)) return false;
  }
  return true;
}

bool Pass::may_be_displaced(const RunningEntry& victim, const Pending& in_favour_of) const {
  const Job& job = victim.running.job;
  const Micros cooldown = job.preempt_cooldown.value_or(policy_.preempt_cooldown);
  if (job.preemptions > 0 && std::max(job.preempted, victim.running.started) + cooldown > now_) return false;
  const bool by_right = has_a_right(in_favour_of) && is_borrowed(victim.queue) && victim.queue != in_favour_of.queue;
  if (by_right) return true;
  return in_favour_of.job.preempts && job.priority < in_favour_of.job.priority &&
         job.preemptions < job.preemptions_max.value_or(policy_.preemptions_max);
}

// The fewest victims that lose the least: taken in order of what they lose until the job fits, then every one that
// turned out not to be needed is spared, those that lose most first.
bool Pass::displace(const Pending& pending) {
  const Job& job = pending.job;
  // Enough may be stopping already, for this job in an earlier plan.
  const Room::Mark before = room_.mark();
  for (const JobId id : book_.stopping) {
    const RunningEntry& entry = book_.running.at(id);
    room_.give_back(entry.ask, entry.running.placement);
  }
  const auto fits_now = [&] {
    return room_.place_despite_promises(pending.ask, job.tasks_min, job.tasks_min, job.layout);
  };
  std::vector<const RunningEntry*> victims;
  auto placement = fits_now();
  if (!placement) {
    std::vector<const RunningEntry*> candidates;
    for (const JobId id : book_.preemptible) {
      const RunningEntry& entry = book_.running.at(id);
      const bool useful = std::ranges::any_of(entry.running.placement,
                                              [&](const Part& part) { return book_.eligible(pending.ask, part.node); });
      const bool taken = std::ranges::any_of(plan_.preempts, [&](const Preempt& p) { return p.job == id; });
      if (useful && !taken && may_be_displaced(entry, pending)) candidates.push_back(&entry);
    }
    std::ranges::sort(candidates, {}, [&](const RunningEntry* e) {
      return std::tuple(e->running.job.priority, lost_work(e->running, now_), e->running.job.id);
    });
    const std::size_t most = static_cast<std::size_t>(policy_.preempts_per_pass) -
                             std::min(plan_.preempts.size(), static_cast<std::size_t>(policy_.preempts_per_pass));
    for (const RunningEntry* candidate : candidates) {
      if (placement || victims.size() >= most) break;
      room_.give_back(candidate->ask, candidate->running.placement);
      victims.push_back(candidate);
      placement = fits_now();
    }
    if (!placement) {
      room_.go_back(before);
      return false;
    }
    for (std::size_t i = victims.size(); i-- > 0;) {
      room_.take(victims[i]->ask, victims[i]->running.placement, kNever);
      if (auto without = fits_now()) {
        placement = std::move(without);
        victims.erase(victims.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        room_.give_back(victims[i]->ask, victims[i]->running.placement);
      }
    }
  }
  room_.go_back(before);
  Micros gone = now_;
  for (const RunningEntry* victim : victims) {
    const Micros leaves = moment_after(now_, victim->running.job.grace);
    gone = std::max(gone, leaves);
    room_.leaves(victim->running.job.id, leaves);
    plan_.preempts.push_back({victim->running.job.id, job.id, lost_work(victim->running, now_)});
  }
  for (const JobId id : book_.stopping) {
    const Micros by = book_.running.at(id).running.stops_by;
    if (by != kNever) gone = std::max(gone, by);
  }
  room_.promise({job.id, pending.ask, gone, moment_after(gone, lasts(job)), std::move(*placement)});
  for (auto& failed : failed_) failed.clear();
  wait(pending, Reason::displacing);
  return true;
}

}  // namespace falaj::schedule
