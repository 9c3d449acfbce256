// SPDX-License-Identifier: Apache-2.0
// Which running jobs are told to stop for another, and which never are.
#include <algorithm>
#include <set>
#include <tuple>

#include "lifecycle/schedule/pass.h"

namespace falaj::schedule {
namespace {

// What one guarantee may cost in a pass: jobs looked at, which is cheap, and kinds of jobs for which victims are
// sought.
constexpr int kLooksPerGuarantee = 10'000, kSearchesPerGuarantee = 64;
constexpr int kDoublingsMax = 10;

Micros lost_work(const Running& running, Micros now) {
  return (now - std::max(running.started, running.checkpointed)) * tasks_of(running.placement);
}

Amounts held_by(const RunningEntry& entry) { return times(entry.running.job.task, tasks_of(entry.running.placement)); }

}  // namespace

void Pass::start_urgent() {
  for (const OrderKey& key : book_.preempting) {
    const Pending& pending = book_.pending.at(key.id);
    if (barred(pending) || start(pending)) continue;
    displace(pending);
  }
  for (std::size_t i = 1; i < book_.queues.size(); ++i) {
    const QueueEntry& queue = book_.queues[i];
    if (queue.queue.guaranteed && queue.waiting > 0 && has_headroom(queue.queue, held_[i]))
      take_back(static_cast<int>(i));
  }
}

// What a queue is guaranteed it takes back from those that borrowed it, for its own jobs and those of all queues below
// it, by turns. One that cannot have it now keeps none of those behind it waiting.
void Pass::take_back(int guaranteed) {
  std::vector<int> below{guaranteed};
  for (std::size_t i = 0; i < below.size(); ++i) {
    const auto& children = book_.queues[below[i]].children;
    below.insert(below.end(), children.begin(), children.end());
  }
  for (const int at : below) add_left(at, book_.queues[at].pending.size());
  std::set<std::tuple<int, int, int>> failed;  // in this queue, that kind of job, so many tasks
  int looks = kLooksPerGuarantee, searches = kSearchesPerGuarantee;
  for (int queue = least_served(guaranteed); queue >= 0 && looks > 0 && searches > 0;
       queue = least_served(guaranteed)) {
    const Pending& pending = *turns_[queue].next++->pending;
    add_left(queue, static_cast<std::size_t>(-1));
    --looks;
    const std::tuple kind(queue, pending.ask, pending.job.tasks_min);
    if (!may_take_back(pending) || failed.contains(kind) || is_held(pending)) continue;
    if (!bound_reached(pending, pending.job.tasks_min) && start(pending)) continue;
    --searches;
    if (!displace(pending)) failed.insert(kind);
  }
  for (const int at : below) turns_[at].next = book_.queues[at].pending.begin();
  for (Turn& turn : turns_) turn.left = 0;
}

void Pass::hold(int queue, const Amounts& amounts, int sign) {
  for (int at = queue; at >= 0; at = book_.queues[at].parent) held_[at] = plus(held_[at], amounts, sign);
}

bool Pass::has_headroom(const Queue& queue, const Amounts& held) const {
  const auto left = [](std::int64_t has, std::int64_t most) { return most < kUnbounded && has < most; };
  const Amounts& most = *queue.guaranteed;
  return left(held.cpu_millis, most.cpu_millis) || left(held.memory_bytes, most.memory_bytes) ||
         left(held.disk_bytes, most.disk_bytes) || left(held.gpu_millis, most.gpu_millis);
}

int Pass::common_queue(int a, int b) const {
  for (int at = a; at > 0; at = book_.queues[at].parent) {
    for (int other = b; other > 0; other = book_.queues[other].parent) {
      if (at == other) return at;
    }
  }
  return 0;
}

// What a queue is guaranteed is worth nothing where the queue that it is a part of has had its own already.
bool Pass::has_a_right(const Pending& pending, int common) const {
  const Amounts more = times(pending.job.task, pending.job.tasks_min);
  bool granted = false;
  for (int at = pending.queue; at > 0 && at != common; at = book_.queues[at].parent) {
    const auto& guaranteed = book_.queues[at].queue.guaranteed;
    if (!guaranteed) continue;
    granted = may_add(held_[at], more, *guaranteed) && (granted || is_about(*guaranteed, more));
  }
  return granted;
}

bool Pass::may_take_back(const Pending& pending) const {
  const Amounts more = times(pending.job.task, pending.job.tasks_min);
  for (int at = pending.queue; at > 0; at = book_.queues[at].parent) {
    const auto& guaranteed = book_.queues[at].queue.guaranteed;
    if (guaranteed && may_add(held_[at], more, *guaranteed) && is_about(*guaranteed, more)) return true;
  }
  return false;
}

bool Pass::is_borrowed(const RunningEntry& victim, int common) const {
  const Amounts holds = held_by(victim);
  for (int at = victim.queue; at > 0 && at != common; at = book_.queues[at].parent) {
    const auto& guaranteed = book_.queues[at].queue.guaranteed;
    if (guaranteed && is_about(*guaranteed, holds) && may_add(plus(held_[at], holds, -1), holds, *guaranteed))
      return false;
  }
  return true;
}

bool Pass::may_be_displaced(const RunningEntry& victim, const Pending& in_favour_of) {
  const Job& job = victim.running.job;
  const int budget = job.preemptions_max.value_or(policy_.preemptions_max);
  const bool by_priority = in_favour_of.job.preempts && job.priority < in_favour_of.job.priority;
  if (!by_priority || job.preemptions >= budget) {
    if (victim.queue == in_favour_of.queue) return false;
    const int common = common_queue(victim.queue, in_favour_of.queue);
    if (!has_a_right(in_favour_of, common) || !is_borrowed(victim, common)) return false;
  }
  if (job.preemptions == 0) return true;
  const Micros cooldown = job.preempt_cooldown.value_or(policy_.preempt_cooldown);
  const int beyond = std::clamp(job.preemptions - budget + 1, 0, kDoublingsMax);
  const Micros until = std::max(job.preempted, victim.running.started) + cooldown * (1 << beyond);
  if (until > now_) plan_.look_again = std::min(plan_.look_again, until);
  return until <= now_;
}

std::vector<const RunningEntry*> Pass::candidates_for(const Pending& pending) {
  std::vector<const RunningEntry*> out;
  const bool bounded = bound_reached(pending, pending.job.tasks_min).has_value();  // then any node's may help
  for (const JobId id : book_.preemptible) {
    const RunningEntry& entry = book_.running.at(id);
    const bool useful = bounded || std::ranges::any_of(entry.running.placement, [&](const Part& part) {
                          return book_.eligible(pending.ask, part.node);
                        });
    const bool taken = std::ranges::any_of(plan_.preempts, [&](const Preempt& p) { return p.job == id; });
    if (useful && !taken && may_be_displaced(entry, pending)) out.push_back(&entry);
  }
  std::ranges::sort(out, {}, [&](const RunningEntry* e) {
    return std::tuple(e->running.job.priority, lost_work(e->running, now_), e->running.job.id);
  });
  return out;
}

// The fewest victims that lose the least: taken in order of what they lose until the job fits, then every one that
// turned out not to be needed is spared, those that lose most first. Of a queue that holds more than it is guaranteed
// only so much is taken that it holds that again.
bool Pass::displace(const Pending& pending) {
  const Job& job = pending.job;
  // Enough may be stopping already, for this job in an earlier plan.
  const Room::Mark before = room_.mark();
  const std::vector<Amounts> held = held_;
  const auto leaves = [&](const RunningEntry& entry) {
    room_.give_back(entry.ask, entry.running.placement);
    hold(entry.queue, held_by(entry), -1);
  };
  for (const JobId id : book_.stopping) leaves(book_.running.at(id));
  for (const Preempt& earlier : plan_.preempts) {  // its room is spoken for
    const RunningEntry& entry = book_.running.at(earlier.job);
    hold(entry.queue, held_by(entry), -1);
  }
  const auto fits_now = [&]() -> std::optional<Placement> {
    if (bound_reached(pending, job.tasks_min)) return std::nullopt;
    return room_.place_despite_promises(pending.ask, job.tasks_min, job.tasks_min, job.layout);
  };
  std::vector<const RunningEntry*> victims;
  auto placement = fits_now();
  if (!placement) {
    const std::size_t most = static_cast<std::size_t>(policy_.preempts_per_pass) -
                             std::min(plan_.preempts.size(), static_cast<std::size_t>(policy_.preempts_per_pass));
    for (const RunningEntry* candidate : candidates_for(pending)) {
      if (placement || victims.size() >= most) break;
      if (!may_be_displaced(*candidate, pending)) continue;  // what was borrowed is given back already
      leaves(*candidate);
      victims.push_back(candidate);
      placement = fits_now();
    }
    for (std::size_t i = victims.size(); placement && i-- > 0;) {
      room_.take(victims[i]->ask, victims[i]->running.placement, kNever);
      hold(victims[i]->queue, held_by(*victims[i]), 1);
      if (auto without = fits_now()) {
        placement = std::move(without);
        victims.erase(victims.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        leaves(*victims[i]);
      }
    }
  }
  room_.go_back(before);
  held_ = held;
  if (!placement) return false;
  hold(pending.queue, times(job.task, job.tasks_min), 1);
  Micros gone = now_;
  for (const RunningEntry* victim : victims) {
    const Micros by = moment_after(now_, victim->running.job.grace);
    gone = std::max(gone, by);
    room_.leaves(victim->running.job.id, by);
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
