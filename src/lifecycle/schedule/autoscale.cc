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

// A pool while it is being decided about: the nodes that come, with what is still free on them.
struct Growing {
  const PoolNow* now;
  std::vector<Free> coming;
  int asked = 0;
  std::string why;

  int size() const { return static_cast<int>(now->nodes.size()) + static_cast<int>(coming.size()); }
};

// Takes room for the job's tasks on what comes, and asks for as many nodes more as it needs; false, and nothing
// changed, when the pool may not grow so far.
bool take_room(Growing& growing, const Job& job, int nodes_affordable) {
  const Node& shape = growing.now->pool.shape;
  const Demand demand = demand_of(job, shape);
  const Free fresh = empty_node(shape);
  if (!shape_holds(job.where, shape) || fits(fresh, demand, 1) == 0) return false;
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

std::vector<Scaling> scale(const State& state, const std::vector<PoolNow>& pools, const IdleSince& idle,
                           const ScaleRules& rules, Micros now) {
  std::vector<Growing> growing;
  double spent = 0;
  for (const PoolNow& pool : pools) {
    growing.push_back(
        {&pool, std::vector<Free>(static_cast<std::size_t>(pool.coming), empty_node(pool.pool.shape)), 0, {}});
    spent += pool.spent;
  }
  std::ranges::stable_sort(growing, {}, [](const Growing& g) { return g.now->pool.cost_per_hour; });
  const double hours = static_cast<double>(rules.period.count()) / 3.6e9;
  const auto affordable = [&](const Pool& pool) {
    if (rules.spend_max <= 0 || pool.cost_per_hour <= 0) return pool.nodes_max;
    const double one = pool.cost_per_hour * hours;
    return std::max(0, static_cast<int>((rules.spend_max - spent) / one));
  };

  Policy policy;
  const Plan made = plan(state, policy, now);
  bool waits = false;
  for (const Wait& wait : made.waits) {
    if (wait.reason == Reason::held || wait.reason == Reason::not_before || wait.reason == Reason::limit ||
        wait.reason == Reason::guarantee || wait.reason == Reason::displacing) {
      continue;
    }
    const Job& job = *state.pending(wait.job);
    waits = true;
    const Micros would_start = wait.reserved != kNever ? wait.reserved : earliest_start(state, job, now);
    const bool too_long = would_start == kNever || would_start - job.submitted > rules.wait_target;
    const bool misses = job.deadline != kNever && (would_start == kNever || would_start > job.deadline - job.run.p90);
    if (!too_long && !misses) continue;
    for (Growing& pool : growing) {
      const Micros up = now + pool.now->pool.warm_up;
      if (would_start != kNever && up >= would_start) continue;  // it would start before the node is there
      const int before = pool.asked;
      if (!take_room(pool, job, affordable(pool.now->pool))) continue;
      spent += (pool.asked - before) * pool.now->pool.cost_per_hour * hours;
      if (pool.why.empty() && pool.asked > 0) {
        pool.why =
            fmt::format("job {} would {}", job.id.str(), misses ? "miss its deadline" : "wait longer than the target");
      }
      break;
    }
  }

  std::vector<Scaling> out;
  for (const Growing& pool : growing) {
    const Pool& spec = pool.now->pool;
    Scaling scaling{spec.name, std::max(pool.asked, spec.nodes_min - pool.size() + pool.asked), {}, pool.why};
    if (scaling.more > pool.asked) scaling.why = "below its least";
    if (scaling.more == 0 && pool.now->coming == 0 && !waits && now - pool.now->changed >= rules.steady_for) {
      int left = static_cast<int>(pool.now->nodes.size());
      for (const int node : pool.now->nodes) {
        if (left <= spec.nodes_min) break;
        if (idle[static_cast<std::size_t>(node)] == kNever ||
            now - idle[static_cast<std::size_t>(node)] < rules.idle_after)
          continue;
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
