// SPDX-License-Identifier: Apache-2.0
// What grows and shrinks, what nodes cost, and when something could start.
#include "lifecycle/jobs/dispatcher.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::jobs {

using schedule::kNever;

void Dispatcher::take(Scaled&& news) {
  pools_.answered(news, now_);
  for (const auto& entry : nodes_) refresh_nodes(entry.first);
}

// A job that waits on a GPU takes no processor time either: only those without one are looked at.
void Dispatcher::take(UsedSeen&& news) {
  joules_per_cpu_second_[news.executor] = news.joules_per_cpu_second;
  for (const auto& [attempt, cpu] : news.cpu) {
    const auto name = parse_attempt(attempt);
    auto* live = name ? find(name->job) : nullptr;
    if (!live || live->record.attempt() != attempt || live->record.life.phase != Phase::running) continue;
    const auto& spec = *live->record.spec;
    if (spec.gpus > 0) continue;
    const auto before = std::exchange(live->cpu, std::pair(cpu, now_));
    if (!before || now_ <= before->second || cpu < before->first) continue;
    double held = 0;
    for (const auto& place : live->record.life.places) held += static_cast<double>(place.tasks) * spec.cpus;
    const double part =
        schedule::in_seconds(cpu - before->first) / (schedule::in_seconds(now_ - before->second) * held);
    if (part >= options_.idle_below) {
      live->idle_from = kNever;
      apply(*live, Used{0, "uses its processors again"});
      continue;
    }
    live->idle_from = std::min(live->idle_from, before->second);
    if (live->record.life.idle_since_us == 0 && now_ - live->idle_from >= options_.idle_after)
      apply(*live, Used{live->idle_from.count(), fmt::format("uses {:.1f} % of the {} processors it holds, since {}",
                                                             100 * part, held, format_time(live->idle_from.count()))});
  }
}

// Written with the next change of the job, as a restart looks again. Nothing needs planning for it: it counts once the
// job is in the way of another.
void Dispatcher::take(Saved&& news) {
  auto* live = find(news.job);
  if (!live || live->record.life.epoch != news.epoch || !is_placed(live->record.life.phase)) return;
  auto& saved = live->record.life.checkpointed_us;
  saved = std::max(saved, std::min(news.at_us, now_.count()));  // the job sets the times of its files
  if (state_.running(news.job)) state_.checkpointed(news.job, Micros(saved));
}

void Dispatcher::look_at_pools() {
  if (now_ < pools_due_ || !Pools::has_work(rules_)) return;
  pools_due_ = now_ + options_.pools_every;
  for (const auto id : pools_.in_need(state_, rules_, now_))
    if (auto* live = find(id); live && !live->in_need) {
      live->in_need = true;
      state_.change(job_of(*live));
      plan_due_ = true;
    }
  auto orders = pools_.look(state_, rules_, now_);
  for (const auto& order : orders) {
    if (order.up) continue;
    for (const auto& name : order.names)
      if (const auto node = state_.node(name); node >= 0) state_.set_up(node, false);
  }
  orders_.insert(orders_.end(), std::make_move_iterator(orders.begin()), std::make_move_iterator(orders.end()));
}

// The tasks of a gang are told how many they are when they start, so a job that is to have more of them saves what it
// has done and starts again. That costs something: only for jobs that say they can, that have run for a while, and for
// a good part more.
void Dispatcher::grow(const schedule::Resize& resize) {
  auto* live = find(resize.job);
  if (!live || !live->record.spec->preemptible) return;
  const auto& life = live->record.life;
  if (life.phase != Phase::running || !life.stop.empty()) return;
  std::int64_t has = 0;
  for (const auto& place : life.places) has += place.tasks;
  const auto more = schedule::tasks_of(resize.placement) - has;
  const auto missing = live->record.spec->tasks - has;
  if (more <= 0 || (more < missing && 4 * more < has)) return;
  const auto from = Micros(std::max(life.started_us, life.placed_us)) + options_.grow_wait;
  if (now_ < from) {
    look_again_ = std::min(look_again_, from);
    return;
  }
  probe_.resized.Increment();
  apply(*live, Resized{has + more});
}

// Each node costs its job that part of it which nobody else can use: the largest of its shares.
double Dispatcher::cost_of(const Record& record, const Spent& spent) const {
  const double hours = static_cast<double>(spent.ended_us - spent.started_us) / 3.6e9;
  double out = 0;
  for (const auto& place : spent.places) {
    const auto at = state_.node(place.node);
    if (at < 0) continue;
    const auto& node = state_.nodes()[static_cast<std::size_t>(at)];
    const auto pool = std::find_if(rules_.pools.begin(), rules_.pools.end(),
                                   [&](const auto& entry) { return entry.first == node.pool; });
    if (pool == rules_.pools.end() || pool->second.cost_per_hour <= 0) continue;
    const auto share = [&](double asked, std::int64_t has) {
      return has > 0 ? asked * static_cast<double>(place.tasks) / static_cast<double>(has) : 0.0;
    };
    const auto& spec = *record.spec;
    const double part = std::max({share(spec.cpus * 1000, node.capacity.cpu_millis),
                                  share(static_cast<double>(spec.memory_bytes), node.capacity.memory_bytes),
                                  share(spec.gpus * 1000, static_cast<std::int64_t>(node.devices.size()) * 1000)});
    out += std::min(part, 1.0) * pool->second.cost_per_hour * hours;
  }
  return out;
}

std::optional<schedule::Guess> Dispatcher::earliest(const Record& record, Micros patience) {
  Asked asked{record, std::make_shared<std::promise<schedule::Guess>>()};
  auto answer = asked.answer->get_future();
  tell(std::move(asked));
  if (answer.wait_for(patience) != std::future_status::ready) return std::nullopt;
  try {
    const auto found = answer.get();
    return found.p50 == schedule::kNever ? std::nullopt : std::optional(found);
  } catch (const std::future_error&) {  // the step that would have answered failed
    return std::nullopt;
  }
}

void Dispatcher::take(Asked&& news) {
  Live live;
  live.record = std::move(news.record);
  live.in_need = true;  // what a burst could bring counts
  const auto job = job_of(live);
  state_.know(job);
  news.answer->set_value({schedule::earliest_start(state_, job, now_), job.run.p50, 0});
}

}  // namespace falaj::jobs
