// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "foundation/base/error.h"
#include "lifecycle/schedule/pass.h"

namespace falaj::schedule {

Pass::Pass(const Book& book, const Policy& policy, Micros now)
    : book_(book), policy_(policy), now_(now), room_(book, now), pass_(++book.passes), failed_(book.ask_kinds.size()) {
  for (const QueueEntry& queue : book.queues) {
    held_.push_back(queue.held);
    share_.push_back(queue.share + lately_at(queue, now, book.rules.usage_half_life));
    turns_.push_back({queue.pending.begin(), queue.pending.end(), {}, 0, 0});
  }
}

Plan Pass::run() {
  if (start_all()) return std::move(plan_);
  start_urgent();
  if (policy_.promises > 0) promise_impatient();
  take_turns();
  settle_trials();
  if (policy_.trials_max > 0) start_trials();
  if (waiting_.empty()) grow();
  if (policy_.explains) explain_rest();
  for (const Promise& promise : room_.promises()) {
    if (promise.start > now_) plan_.look_again = std::min(plan_.look_again, promise.start);
    const auto pending = book_.pending.find(promise.job);
    if (pending == book_.pending.end() || !decided(pending->second))
      plan_.promised.push_back({promise.job, promise.start, promise.job == firm_, promise.job == firm_ && !certain_});
  }
  return std::move(plan_);
}

void Pass::wait(const Pending& pending, Reason reason, std::string detail) {
  pending.decided_in = pass_;
  if (policy_.explains) plan_.waits.push_back({pending.job.id, reason, std::move(detail), {}, kNever});
}

std::optional<Pass::Bound> Pass::bound_reached(int queue_at, const Amounts& more) const {
  for (int at = queue_at; at > 0; at = book_.queues[at].parent) {
    const Queue& queue = book_.queues[at].queue;
    if (queue.limit && !may_add(held_[at], more, *queue.limit)) return Bound{Reason::limit, &queue.name};
    if (!queue.borrows && queue.guaranteed && !may_add(held_[at], more, *queue.guaranteed)) {
      return Bound{Reason::guarantee, &queue.name};
    }
  }
  return std::nullopt;
}

bool Pass::is_held(const Pending& pending) {
  const Job& job = pending.job;
  if (decided(pending)) return true;
  if (!job.held.empty()) return wait(pending, Reason::held, job.held), true;
  if (job.not_before > now_) {
    plan_.look_again = std::min(plan_.look_again, job.not_before);
    return wait(pending, Reason::not_before), true;
  }
  return false;
}

bool Pass::barred(const Pending& pending) {
  if (is_held(pending)) return true;
  const auto bound = bound_reached(pending, pending.job.tasks_min);
  if (bound) wait(pending, bound->reason, *bound->queue);
  return bound.has_value();
}

bool Pass::is_bounded(int queue_at) const {
  for (int at = queue_at; at > 0; at = book_.queues[at].parent) {
    const Queue& queue = book_.queues[at].queue;
    if (queue.limit || (!queue.borrows && queue.guaranteed)) return true;
  }
  return false;
}

void Pass::failed(const Pending& pending, Micros duration) {
  auto& known = failed_[pending.ask];
  const int tasks = pending.job.tasks_min;
  std::erase_if(known, [&](const auto& f) { return f.first >= tasks && f.second >= duration; });  // this says more
  known.emplace_back(tasks, duration);
}

bool Pass::known_not_to_fit(int ask, int tasks, Micros duration) const {
  return std::ranges::any_of(failed_[ask], [&](const auto& f) { return tasks >= f.first && duration >= f.second; });
}

void Pass::started(const Pending& pending, Placement placement, bool trial) {
  const Amounts taken = times(pending.job.task, tasks_of(placement));
  for (int at = pending.queue; at >= 0; at = book_.queues[at].parent) {
    held_[at] = plus(held_[at], taken);
    share_[at] += dominant_share(taken, 1, book_.capacity);
  }
  pending.decided_in = pass_;
  room_.take(pending.ask, placement, trial ? kNever : until(pending.job), pending.job.limit == kNever);
  plan_.starts.push_back({pending.job.id, std::move(placement), trial});
}

bool Pass::start(const Pending& pending) {
  const Job& job = pending.job;
  if (room_.full(pending.ask) || known_not_to_fit(pending.ask, job.tasks_min, holds(job))) return false;
  int most = job.tasks_max;
  while (most > job.tasks_min && bound_reached(pending, most)) --most;
  auto placement = room_.place(pending.ask, job.tasks_min, most, job.layout, until(job));
  if (!placement) {
    failed(pending, room_.promises().empty() ? Micros{0} : holds(job));
    return false;
  }
  started(pending, std::move(*placement), false);
  return true;
}

void Pass::promise_earliest(const Job& job, int ask, Micros from) {
  if (auto found = room_.earliest(ask, job.tasks_min, from, lasts(job))) {
    room_.promise({job.id, ask, found->start, moment_after(found->start, lasts(job)), std::move(found->placement)});
    for (auto& failed : failed_) failed.clear();
  }
}

// On a quiet cluster everything that waits starts, and nothing more needs deciding. False, and nothing was decided,
// when something would have to wait or a trial is running.
bool Pass::start_all() {
  constexpr std::size_t kFew = 1000;
  if (book_.pending.size() > kFew || !book_.trials.empty() || !book_.elastic.empty()) return false;
  if (book_.pending.empty()) return true;
  const Room::Mark before = room_.mark();
  const std::vector<Amounts> held = held_;
  const std::vector<double> share = share_;
  const bool all = std::ranges::all_of(book_.queues, [&](const QueueEntry& queue) {
    return std::ranges::all_of(queue.pending, [&](const Waiting& waiting) {
      const Pending& pending = *waiting.pending;
      return pending.job.held.empty() && pending.job.not_before <= now_ &&
             !bound_reached(pending, pending.job.tasks_min) && start(pending);
    });
  });
  if (all) return true;
  room_.go_back(before);
  held_ = held;
  share_ = share;
  plan_ = {};
  pass_ = ++book_.passes;
  for (auto& failed : failed_) failed.clear();
  return false;
}

// Promises go to those whose patience ends soonest. One whose patience has ended comes before all that are not urgent;
// for one that is still patient the room is kept free from then on, so that nothing long moves in before.
void Pass::promise_impatient() {
  if (const auto firm = book_.pending.find(book_.firm); firm != book_.pending.end()) {
    promise_to(book_.firm, firm->second.patient_until);
  } else if (const auto trial = book_.running.find(book_.firm);
             trial != book_.running.end() && trial->second.running.trial) {
    promise_to(book_.firm, trial->second.patient_until);
  }
  int looked = 0;
  for (const auto& [until, id] : book_.patience) {
    if (static_cast<int>(room_.promises().size()) >= policy_.promises || ++looked > 4 * policy_.promises + 16) return;
    promise_to(id, until);
  }
}

void Pass::promise_to(JobId id, Micros patient_until) {
  if (room_.promise_of(id) != nullptr) return;
  const bool over = patient_until <= now_;
  const Micros from = std::max(patient_until, now_);
  if (const auto trial = book_.running.find(id); trial != book_.running.end()) {
    if (kept_.contains(id) || (over && keep(trial->second))) return;
    promise_earliest(trial->second.running.job, trial->second.ask, from);
  } else {
    const Pending& pending = book_.pending.at(id);
    if (barred(pending) || (over && start(pending))) return;
    promise_earliest(pending.job, pending.ask, from);
  }
  if (over && firm_.empty() && room_.promise_of(id) != nullptr) make_firm(id);
}

// Whose promise is firm is promised what limits alone allow, where that is no later than what jobs without a limit
// probably allow, or was promised before; then nothing that this plan does may count on such jobs either.
void Pass::make_firm(JobId id) {
  firm_ = id;
  const Promise guessed = *room_.promise_of(id);
  const auto running = book_.running.find(id);
  const Job& job = running != book_.running.end() ? running->second.running.job : book_.pending.at(id).job;
  room_.withdraw(id);
  room_.guess(false);
  promise_earliest(job, guessed.ask, now_);
  const Promise* sure = room_.promise_of(id);
  certain_ = sure != nullptr && (sure->start <= guessed.start || (book_.certain && book_.firm == id));
  if (certain_) return;
  room_.withdraw(id);
  room_.guess(true);
  room_.promise(guessed);
}

// The queue to serve next: from one down, always the one with the least share for its weight that has jobs left.
int Pass::least_served(int below) const {
  int at = below;
  for (;;) {
    const QueueEntry& queue = book_.queues[at];
    int best = -1;
    for (const int child : queue.children) {
      if (turns_[child].left == 0) continue;
      const double share = share_[child] / std::max(book_.queues[child].queue.weight, 1e-9);
      if (best < 0 || share < share_[best] / std::max(book_.queues[best].queue.weight, 1e-9)) best = child;
    }
    if (!turns_[at].done()) return at;  // its own jobs before those of the queues below it
    if (best < 0) return -1;
    at = best;
  }
}

void Pass::add_left(int queue, std::size_t jobs) {
  for (int at = queue; at >= 0; at = book_.queues[at].parent) turns_[at].left += jobs;
}

void Pass::take_turns() {
  for (std::size_t i = 0; i < turns_.size(); ++i) add_left(static_cast<int>(i), book_.queues[i].pending.size());
  for (const auto& [id, entry] : book_.trials) {
    const Job& job = entry->running.job;
    const double score = book_.rules.order == Order::hastiest ? -job.run.haste : 0;
    turns_[entry->queue].trials.emplace_back(OrderKey{-job.priority, score, job.submitted, job.id}, entry);
    add_left(entry->queue, 1);
  }
  for (Turn& turn : turns_) std::ranges::sort(turn.trials, {}, [](const auto& t) { return t.first; });

  for (int queue = least_served(0); queue >= 0; queue = least_served(0)) {
    if (promised_first_ && !policy_.explains && nothing_can_start()) return;
    Turn& turn = turns_[queue];
    const bool bounded = is_bounded(queue);
    // Jobs that are passed over change nothing, so it stays this queue's turn.
    for (bool passed_over = true; passed_over && !turn.done();) {
      passed_over = false;
      add_left(queue, static_cast<std::size_t>(-1));
      if (turn.trial_first()) {
        consider_trial(*turn.trials[turn.next_trial++].second);
      } else {
        const Waiting& waiting = *turn.next++;
        passed_over = pass_over(waiting, bounded);
        if (!passed_over && !consider(waiting)) return;
      }
    }
  }
}

// Looking on would find nothing: no job that waits is of a kind for which any node has room.
bool Pass::nothing_can_start() {
  while (open_ask_ < book_.ask_kinds.size() &&
         (book_.ask_kinds[open_ask_].pending == 0 || room_.full(static_cast<int>(open_ask_)))) {
    ++open_ask_;
  }
  return open_ask_ == book_.ask_kinds.size();
}

// Says the same as consider() would of most jobs on a full cluster, from what the list itself holds.
bool Pass::pass_over(const Waiting& waiting, bool bounded) {
  if (!promised_first_ || !policy_.backfill || waiting.may_be_held || looked_at_ >= policy_.looks_at) return false;
  if (!room_.full(waiting.ask) && !known_not_to_fit(waiting.ask, waiting.tasks_min, waiting.lasts)) return false;
  if (room_.promise_of(waiting.key.id) != nullptr) return false;
  if (bounded && policy_.explains) return false;  // which must say so
  ++looked_at_;
  waiting_.push_back(&waiting);
  return true;
}

bool Pass::consider(const Waiting& waiting) {
  if (++looked_at_ > policy_.looks_at) return false;
  const Pending& pending = *waiting.pending;
  if (barred(pending)) return true;
  const JobId id = pending.job.id;
  const Promise* own = room_.promise_of(id);
  if (own != nullptr) {
    Promise kept = *own;  // what is promised to it does not stand in its own way
    room_.withdraw(id);
    const bool went = start(pending);
    if (went) {
      for (auto& failed : failed_) failed.clear();
      return true;
    }
    if (!promised_first_ && policy_.backfill && book_.rules.order == Order::hastiest)
      promise_earliest(pending.job, pending.ask, now_);
    if (const Promise* sooner = room_.promise_of(id); sooner != nullptr && sooner->start > kept.start)
      room_.withdraw(id);
    if (room_.promise_of(id) == nullptr) room_.promise(std::move(kept));
  } else if (start(pending)) {
    return true;
  } else if (!promised_first_ && policy_.promises > 0 && policy_.backfill && book_.rules.order == Order::hastiest) {
    promise_earliest(pending.job, pending.ask, now_);
  }
  promised_first_ = true;
  waiting_.push_back(&waiting);
  return policy_.backfill;
}

bool Pass::keep(const RunningEntry& trial) {
  const JobId id = trial.running.job.id;
  if (!room_.fits_exactly(trial.ask, trial.running.placement, until(trial))) return false;
  room_.take(trial.ask, trial.running.placement, until(trial), is_guess(trial));
  plan_.keeps.push_back(id);
  kept_.insert(id);
  return true;
}

void Pass::consider_trial(const RunningEntry& trial) {
  const JobId id = trial.running.job.id;
  if (kept_.contains(id)) return;
  std::optional<Promise> own;
  if (const Promise* promise = room_.promise_of(id)) own = *promise;
  room_.withdraw(id);
  if (!keep(trial) && own) room_.promise(std::move(*own));
}

// Those that run in promised room stay while nobody needs it, the oldest first.
void Pass::settle_trials() {
  std::vector<const RunningEntry*> trials;
  for (const auto& [id, entry] : book_.trials) {
    if (!kept_.contains(id)) trials.push_back(entry);
  }
  std::ranges::sort(trials, {}, [](const RunningEntry* t) { return std::pair(t->running.started, t->running.job.id); });
  for (const RunningEntry* trial : trials) {
    const Running& running = trial->running;
    if (room_.fits_exactly(trial->ask, running.placement, now_)) {
      room_.take(trial->ask, running.placement, kNever);
    } else {
      const JobId winner = plan_.starts.empty() ? JobId{} : plan_.starts.back().job;
      plan_.preempts.push_back({running.job.id, winner, (now_ - running.started) * tasks_of(running.placement)});
    }
  }
}

void Pass::start_trials() {
  if (room_.promises().empty()) return;
  for (auto& failed : failed_) failed.clear();
  for (const Waiting* waiting : waiting_) {
    if (!waiting->may_be_tried || known_not_to_fit(waiting->ask, waiting->tasks_min, Micros{0})) continue;
    const Pending& pending = *waiting->pending;
    const Job& job = pending.job;
    if (job.trials >= policy_.trials_max || decided(pending)) continue;
    if (job.id == firm_) continue;  // while it ran on trial its promise would not be kept
    if (bound_reached(pending, job.tasks_min)) continue;
    auto placement = room_.place_despite_promises(pending.ask, job.tasks_min, job.tasks_min, job.layout);
    if (placement) {
      started(pending, std::move(*placement), true);
    } else {
      failed(pending, Micros{0});
    }
  }
}

void Pass::grow() {
  for (const JobId id : book_.elastic) {
    const RunningEntry& entry = book_.running.at(id);
    const Running& running = entry.running;
    if (running.stopping || running.trial) continue;
    const int missing = running.job.tasks_max - tasks_of(running.placement);
    auto more = room_.place(entry.ask, 1, missing, running.job.layout, until(entry));
    if (!more) continue;
    Placement placement = running.placement;
    for (Part& part : *more) {
      const auto same = std::ranges::find(placement, part.node, &Part::node);
      if (same == placement.end()) {
        placement.push_back(part);
      } else {
        same->tasks += part.tasks;
        same->devices.insert(same->devices.end(), part.devices.begin(), part.devices.end());
      }
    }
    const Amounts added = times(running.job.task, tasks_of(*more));
    if (bound_reached(entry.queue, added)) continue;
    room_.take(entry.ask, *more, until(entry), is_guess(entry));
    for (int at = entry.queue; at >= 0; at = book_.queues[at].parent) held_[at] = plus(held_[at], added);
    plan_.resizes.push_back({id, std::move(placement)});
  }
}

void Pass::wait_for_room(const Pending& pending) {
  const Job& job = pending.job;
  Wait wait{job.id, Reason::resources, {}, {}, kNever};
  if (const Promise* promise = room_.promise_of(job.id)) wait.reserved = promise->start;
  bool shape = false, zone = false;
  for (std::size_t node = 0; node < book_.nodes.size(); ++node) {
    const Match& match = book_.ask_kinds[pending.ask].matches[book_.node_kind[node]];
    Free all{book_.nodes[node].capacity.cpu_millis,
             book_.nodes[node].capacity.memory_bytes,
             book_.nodes[node].capacity.disk_bytes,
             {}};
    std::fill_n(all.device.begin(), book_.nodes[node].devices.size(), static_cast<std::int16_t>(kWholeDevice));
    if (!book_.nodes[node].up || !match.shape || fits(all, match.demand, 1) == 0) continue;
    shape = true;
    zone = zone || match.zone;
  }
  if (!shape) {
    wait.reason = Reason::no_node;
    wait.detail =
        fmt::format("a task asks for {} cpus, {} MiB, {} GPUs{}", static_cast<double>(job.task.cpu_millis) / 1000,
                    job.task.memory_bytes >> 20, static_cast<double>(job.task.gpu_millis) / 1000,
                    job.where.gpu_type.empty() ? "" : " of type " + job.where.gpu_type);
  } else if (!zone) {
    wait.reason = Reason::zone;
    wait.detail = fmt::format("{}", fmt::join(job.where.zones, ", "));
  } else if (const Promise* other = room_.in_the_way(pending.ask); other != nullptr && other->job != job.id) {
    wait.reason = Reason::reservation;
    wait.behind = other->job;
  }
  plan_.waits.push_back(std::move(wait));
}

void Pass::explain_rest() {
  // Jobs of one kind wait for one reason: finding it looks at every node, so it is found once for each kind.
  std::map<int, Wait> known;
  for (const Waiting* waiting : waiting_) {
    if (decided(*waiting->pending)) continue;
    const Promise* own = room_.promise_of(waiting->key.id);
    const auto found = known.find(waiting->ask);
    if (found != known.end() && own == nullptr) {
      plan_.waits.push_back(found->second);
      plan_.waits.back().job = waiting->key.id;
      continue;
    }
    wait_for_room(*waiting->pending);
    if (own == nullptr) known.emplace(waiting->ask, plan_.waits.back());
  }
}

Plan plan(const State& state, const Policy& policy, Micros now) { return Pass(state.book(), policy, now).run(); }

Micros earliest_start(const State& state, const Job& job, Micros now) {
  const Book& book = state.book();
  const auto same = std::ranges::find_if(
      book.ask_kinds, [&](const AskKind& ask) { return ask.task == job.task && ask.where == job.where; });
  CHECK(same != book.ask_kinds.end(), "a job's kind is known once State::know was told of it");
  const Room room(book, now);
  const auto found = room.earliest(static_cast<int>(same - book.ask_kinds.begin()), job.tasks_min, now, lasts(job));
  return found ? found->start : kNever;
}

}  // namespace falaj::schedule
