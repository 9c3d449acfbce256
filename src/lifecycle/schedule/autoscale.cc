// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/autoscale.h"

#include <fmt/format.h>

#include <algorithm>

#include "lifecycle/schedule/book.h"
#include "lifecycle/schedule/plan.h"

namespace falaj::schedule {
namespace {

Free empty_node(const Node& shape) {
  Free free{shape.capacity.cpu_millis, shape.capacity.memory_bytes, shape.capacity.disk_bytes, {}};
  std::fill_n(free.device.begin(), std::min<std::size_t>(shape.devices.size(), kDevicesMax),
              static_cast<std::int16_t>(kWholeDevice));
  return free;
}

bool shape_holds(const Where& where, const Node& shape) {
  const auto has = [&](const auto& label) {
    const auto found = shape.labels.find(label.first);
    return found != shape.labels.end() && found->second == label.second;
  };
  return (where.zones.empty() || std::ranges::find(where.zones, shape.zone) != where.zones.end()) &&
         std::ranges::all_of(where.labels, has) && std::ranges::none_of(where.labels_refused, has);
}

Demand demand_of(const Job& job, const Node& shape) {
  Demand demand{job.task.cpu_millis, job.task.memory_bytes, job.task.disk_bytes, static_cast<int>(job.task.gpu_millis),
                0};
  for (std::size_t i = 0; i < shape.devices.size() && i < kDevicesMax; ++i) {
    if (job.where.gpu_type.empty() || job.where.gpu_type == shape.devices[i].type) {
      demand.devices = static_cast<std::uint16_t>(demand.devices | 1U << i);
    }
  }
  return demand;
}

bool holds_a_task(const Node& shape, const Job& job) {
  return shape_holds(job.where, shape) && fits(empty_node(shape), demand_of(job, shape), 1) > 0;
}

// A pool while it is being decided about: the nodes that come, with what is still free on them.
struct Growing {
  const PoolNow* now = nullptr;
  std::vector<Free> coming;
  int asked = 0;
  bool needed = false;  // a job waits that its nodes hold
  std::string why;

  int size() const { return static_cast<int>(now->nodes.size()) + static_cast<int>(coming.size()); }
};

// Takes room for the job's tasks on what comes, and asks for as many nodes more as it needs; false, and nothing
// changed, when the pool may not grow so far.
bool take_room(Growing& growing, const Job& job, int nodes_affordable) {
  const Node& shape = growing.now->pool.shape;
  const Demand demand = demand_of(job, shape);
  const Free fresh = empty_node(shape);
  if (!holds_a_task(shape, job)) return false;
  std::vector<Free> coming = growing.coming;
  int left = job.tasks_min;
  for (Free& free : coming) {
    const int fit = fits(free, demand, left);
    if (fit > 0) schedule::take(free, demand, fit);
    left -= fit;
  }
  const int before = static_cast<int>(coming.size());
  while (left > 0 && static_cast<int>(growing.now->nodes.size() + coming.size()) < growing.now->pool.nodes_max) {
    coming.push_back(fresh);
    const int fit = fits(fresh, demand, left);
    schedule::take(coming.back(), demand, fit);
    left -= fit;
  }
  const int more = static_cast<int>(coming.size()) - before;
  if (left > 0 || more > nodes_affordable) return false;
  growing.asked += more;
  growing.coming = std::move(coming);
  return true;
}

}  // namespace

std::vector<Delay> delays(const State& state, const ScaleRules& rules, Micros now) {
  std::vector<Delay> out;
  const Plan made = plan(state, {}, now);
  for (const Wait& wait : made.waits) {
    if (wait.reason == Reason::held || wait.reason == Reason::not_before || wait.reason == Reason::limit ||
        wait.reason == Reason::guarantee || wait.reason == Reason::displacing) {
      continue;
    }
    if (out.size() >= rules.looks_at) break;
    const Job& job = *state.pending(wait.job);
    out.push_back({&job, wait.reserved != kNever ? wait.reserved : earliest_start(state, job, now)});
  }
  return out;
}

std::vector<Scaling> scale(const State& state, const std::vector<PoolNow>& pools, const IdleSince& idle,
                           const ScaleRules& rules, Micros now) {
  std::vector<Growing> growing;
  double spent = 0;
  for (const PoolNow& pool : pools) {
    Growing& added = growing.emplace_back();
    added.now = &pool;
    added.coming.assign(static_cast<std::size_t>(pool.coming), empty_node(pool.pool.shape));
    spent += pool.spent;
  }
  std::ranges::stable_sort(growing, {}, [](const Growing& g) { return g.now->pool.cost_per_hour; });
  const double hours = static_cast<double>(rules.period.count()) / 3.6e9;
  const auto affordable = [&](const Growing& of) {
    const Pool& pool = of.now->pool;
    const double one = pool.cost_per_hour * hours;
    if (one <= 0) return pool.nodes_max;
    double left = one * pool.nodes_max;
    if (rules.spend_max > 0) left = std::min(left, rules.spend_max - spent);
    if (pool.spend_max > 0) left = std::min(left, pool.spend_max - of.now->spent - of.asked * one);
    return std::max(0, static_cast<int>(left / one + 1e-9));
  };

  for (const Delay& delay : delays(state, rules, now)) {
    const Job& job = *delay.job;
    for (Growing& pool : growing) pool.needed = pool.needed || holds_a_task(pool.now->pool.shape, job);
    for (Growing& pool : growing) {
      const Pool& spec = pool.now->pool;
      if (!delay.is_longer_than(spec.wait_target.value_or(rules.wait_target))) continue;
      if (delay.would_start != kNever && now + spec.warm_up >= delay.would_start) continue;  // it would not wait for it
      const int before = pool.asked;
      if (!take_room(pool, job, affordable(pool))) continue;
      spent += (pool.asked - before) * spec.cost_per_hour * hours;
      if (pool.why.empty() && pool.asked > 0) {
        pool.why = fmt::format("job {} would {}", job.id.str(),
                               delay.misses_deadline() ? "miss its deadline" : "wait longer than the target");
      }
      break;
    }
  }

  std::vector<Scaling> out;
  for (const Growing& pool : growing) {
    const Pool& spec = pool.now->pool;
    Scaling scaling{spec.name, std::max(pool.asked, spec.nodes_min - pool.size() + pool.asked), {}, pool.why};
    if (scaling.more > pool.asked) scaling.why = "below its least";
    if (scaling.more == 0 && pool.now->coming == 0 && !pool.needed &&
        now - pool.now->changed >= spec.steady_for.value_or(rules.steady_for)) {
      int left = static_cast<int>(pool.now->nodes.size());
      for (const int node : pool.now->nodes) {
        if (left <= spec.nodes_min) break;
        const Micros since = idle[static_cast<std::size_t>(node)];
        if (since == kNever || now - since < spec.idle_after.value_or(rules.idle_after)) continue;
        scaling.fewer.push_back(node);
        --left;
      }
      if (!scaling.fewer.empty()) scaling.why = "idle";
    }
    if (scaling.more > 0 || !scaling.fewer.empty()) out.push_back(std::move(scaling));
  }
  return out;
}

}  // namespace falaj::schedule
