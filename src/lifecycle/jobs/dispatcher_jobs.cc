// SPDX-License-Identifier: Apache-2.0
// One job: what happens to it, and what keeps it waiting.
#include "lifecycle/jobs/dispatcher.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace falaj::jobs {
namespace {

std::string array_group(const std::string& array) { return "array " + array; }

}  // namespace

using schedule::kNever;

Dispatcher::Live* Dispatcher::find(JobId id) {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : &found->second;
}

void Dispatcher::plan_deed(const Live& live, Effect effect) {
  deeds_.push_back({live.record.id, effect, live.record.life.executor, live.record.attempt()});
}

schedule::Job Dispatcher::job_of(const Live& live) const {
  const auto& executor = rules_.executor_of(live.record);
  const auto zoned = zoned_.find(executor);
  const bool asks = zoned != zoned_.end() && zoned->second;
  auto job = to_job(live.record, rules_, asks ? parts_.zone(live.record.where) : "", parts_.guess(live.record));
  job.held = live.held;
  if (bursts_ && !live.in_need) job.where.labels_refused[std::string(kBurstLabel)] = "yes";
  return job;
}

Dispatcher::Live& Dispatcher::add(Record record) {
  const auto id = record.id;
  auto& live = live_[id];
  live.record = std::move(record);
  const auto& spec = *live.record.spec;
  if (!live.record.array.empty()) {
    members_[live.record.array] += 1;
    if (spec.array && spec.array->parallel > 0) {
      live.groups.push_back(array_group(live.record.array));
      groups_.set_limit(live.groups.back(), spec.array->parallel);
    }
  }
  for (const auto& [name, limit] : parts_.quotas(live.record.where)) {
    live.groups.push_back(name);
    groups_.set_limit(name, limit);
  }
  return live;
}

Change& Dispatcher::change_of(Live& live) {
  if (!live.change) {
    live.change = changes_.size();
    changes_.emplace_back().record = &live.record;
    changed_.push_back(live.record.id);
  }
  return changes_[*live.change];
}

void Dispatcher::apply(Live& live, const Event& event) {
  auto& record = live.record;
  const auto was = record.life.phase;
  const auto why = record.life.why;
  const bool was_stopping = !record.life.stop.empty();
  auto made = next(*record.spec, record.life, event, now_.count());
  if (!made.changed && !made.spent && made.effects.empty()) return;
  record.life = std::move(made.life);
  for (const auto effect : made.effects) plan_deed(live, effect);
  if (!made.changed && !made.spent) return;
  auto& change = change_of(live);
  if (record.life.phase != was || record.life.why != why)
    change.transitions.push_back({0, now_.count(), record.life.epoch, record.life.phase, record.life.why});
  if (made.spent) {
    made.spent->cost = cost_of(record, *made.spent);
    if (const auto rate = joules_per_cpu_second_.find(made.spent->executor); rate != joules_per_cpu_second_.end())
      made.spent->energy_joules = rate->second * static_cast<double>(made.spent->cpu_us) / 1e6;
    probe_.energy_joules.Increment(made.spent->energy_joules);
    const auto seconds = static_cast<double>(made.spent->ended_us - made.spent->started_us) / 1e6;
    std::int64_t tasks = 0;
    for (const auto& place : made.spent->places) tasks += place.tasks;
    probe_.cpu_seconds.Increment(seconds * record.spec->cpus * static_cast<double>(tasks));
    probe_.gpu_seconds.Increment(seconds * record.spec->gpus * static_cast<double>(tasks));
    const auto& spent = *made.spent;
    const auto lost =
        static_cast<double>(lost_us(spent.reason, spent.started_us, spent.ended_us, spent.saved_us)) / 1e6;
    probe_.lost_cpu_seconds.Increment(lost * record.spec->cpus * static_cast<double>(tasks));
    if (made.spent->reason == "node_lost") probe_.lost.Increment();
    if (parts_.learn) parts_.learn(record, *made.spent);
    change.spent.push_back(std::move(*made.spent));
  }
  follow(live, was, was_stopping);
}

void Dispatcher::follow(Live& live, Phase was, bool was_stopping) {
  const auto& life = live.record.life;
  const auto id = live.record.id;
  plan_due_ = true;
  if (was == Phase::starting && life.phase != Phase::starting && life.started_us > 0) {
    probe_.started.Increment();
    probe_.start_seconds.Observe(static_cast<double>(now_.count() - life.placed_us) / 1e6);
    if (life.epoch == 1)
      probe_.wait_seconds.Observe(static_cast<double>(life.placed_us - live.record.submitted_us) / 1e6);
  }
  if (is_placed(was) && !is_placed(life.phase)) {
    live.cpu.reset();
    live.idle_from = kNever;
    placed_.erase(id);
    live.acknowledged = false;
    live.start_again = live.stop_again = kNever;
    live.tries = live.missing = live.absent = 0;
    live.ambiguous = false;
    if (life.phase == Phase::pending) {
      if (state_.running(id))
        state_.requeue(job_of(live), now_);
      else
        state_.add(job_of(live));
      consider(live);
    } else {
      state_.remove(id, now_);
    }
  } else if (!was_stopping && !life.stop.empty()) {
    if (state_.running(id)) state_.stopping(id, now_ + Micros(live.record.spec->grace_us));
  }
  if (has_ended(was) && life.phase == Phase::pending) enter(live);
  if (!is_placed(was) && !has_ended(was) && (has_ended(life.phase) || life.phase == Phase::finishing))
    state_.remove(id, now_);
  if (has_ended(life.phase)) ended(live);
  arm(live);
}

void Dispatcher::ended(Live& live) {
  const auto& record = live.record;
  switch (record.life.phase) {
    case Phase::succeeded:
      probe_.succeeded.Increment();
      break;
    case Phase::failed:
      probe_.failed.Increment();
      break;
    default:
      probe_.cancelled.Increment();
  }
  gone_.push_back(record.id);
}

// Why a job can never begin: something it needs ended otherwise than well. Drops what it waits for no more.
std::optional<std::string> Dispatcher::doom_of(Live& live) {
  const auto& ok = live.record.spec->after.ok;
  for (auto it = live.waits_for.begin(); it != live.waits_for.end();) {
    const auto outcome = book_.outcome(*it);
    if (outcome && outcome->live > 0) {
      ++it;
      continue;
    }
    const bool must_succeed = std::find(ok.begin(), ok.end(), *it) != ok.end();
    if (must_succeed && (!outcome || outcome->succeeded < outcome->members))
      return fmt::format("job {}, which had to succeed before, did not", *it);
    dependents_[*it].erase(live.record.id);
    it = live.waits_for.erase(it);
  }
  return std::nullopt;
}

void Dispatcher::consider(Live& live) {
  const auto& life = live.record.life;
  if (life.phase != Phase::pending && life.phase != Phase::admitted) return;
  if (!live.waits_for.empty())
    if (const auto doom = doom_of(live)) return apply(live, Doomed{*doom});
  std::string held;
  if (!live.waits_for.empty()) {
    held = "job " + *live.waits_for.begin();
  } else if (!live.groups.empty() && !live.grouped) {
    if (const auto* full = groups_.enter(live.record.id, live.groups))
      held = *full + ", which has as many at once as it may";
    else
      live.grouped = true;
  }
  if (held != live.held) {
    live.held = held;
    state_.change(job_of(live));
    plan_due_ = true;
  }
  if (held.empty() && life.not_before_us <= now_.count()) apply(live, Released{});
}

// How long it will wait, said when it comes and held against what happens. Of many that come together, or wait, only
// some are looked at: each costs a look at all the others.
void Dispatcher::foretell(Live& live) {
  constexpr std::size_t kForetoldMax = 2000;
  if (live.record.array_index > 0 || state_.pending_count() > kForetoldMax || !live.held.empty()) return;
  const auto* job = state_.pending(live.record.id);
  if (!job) return;
  const auto told = forecast_.tell(live.record.id, schedule::crowd(state_, *job, now_), now_);
  if (!forecast_.knows_enough()) return;
  Lock lock(mu_);
  starts_[live.record.id] = {now_ + told.p50, now_ + told.p90, 0};
}

void Dispatcher::foretold(Live& live) {
  forecast_.started(live.record.id, now_);
  Lock lock(mu_);
  starts_.erase(live.record.id);
}

void Dispatcher::arm(Live& live) {
  auto at = std::min(live.start_again, live.stop_again);
  const auto& life = live.record.life;
  if (!live.record.spec->deadline.empty() && !has_ended(life.phase) && life.phase != Phase::finishing &&
      life.stop != kStopDeadline && life.stop != kStopCancel)
    at = std::min(at, Micros(parse_time(live.record.spec->deadline).value_or(0)));
  if (at == live.timer) return;
  timers_.erase({live.timer, live.record.id});
  live.timer = at;
  if (at != kNever) timers_.insert({at, live.record.id});
}

void Dispatcher::look_at_timers() {
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const auto id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    auto* live = find(id);
    if (!live) continue;
    live->timer = kNever;
    if (live->start_again <= now_) {
      live->start_again = kNever;
      // Even one that was told to stop since: only an attempt that the executor knows can be reported to have ended.
      if (is_placed(live->record.life.phase)) plan_deed(*live, Effect::start);
    }
    if (live->stop_again <= now_) {
      live->stop_again = kNever;
      plan_deed(*live, Effect::stop);
    }
    const auto& deadline = live->record.spec->deadline;
    if (!deadline.empty() && Micros(parse_time(deadline).value_or(0)) <= now_) apply(*live, DeadlinePassed{});
    arm(*live);
  }
}

void Dispatcher::let_go(Live live) {
  const auto id = live.record.id;
  timers_.erase({live.timer, id});
  forecast_.gone(id);
  {
    Lock lock(mu_);
    starts_.erase(id);
  }
  std::vector<std::string> freed{id.str()};
  if (const auto& array = live.record.array; !array.empty() && --members_[array] == 0) {
    members_.erase(array);
    freed.push_back(array);
  }
  for (const auto& name : freed) {
    const auto waiting = dependents_.find(name);
    if (waiting == dependents_.end()) continue;
    const auto ids = waiting->second;  // considering them changes it
    for (const auto dependent : ids)
      if (auto* other = find(dependent)) consider(*other);
    dependents_.erase(name);
  }
  for (const auto& name : live.waits_for)
    if (const auto others = dependents_.find(name); others != dependents_.end()) others->second.erase(id);
  groups_.forget(id, live.groups);
  if (live.grouped) groups_.leave(live.groups);
  for (const auto& group : live.groups)
    while (const auto other = groups_.next(group))
      if (auto* let_in = find(*other)) consider(*let_in);
}

}  // namespace falaj::jobs
