// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/pools.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/text.h"

namespace falaj::jobs {
namespace {

using schedule::kNever;
using schedule::Micros;

constexpr Micros kRetryFirst = std::chrono::seconds(30), kRetryMax = std::chrono::hours(1);
constexpr Micros kWarmUpSlack = std::chrono::minutes(1), kLeavesWithin = std::chrono::minutes(10);
constexpr Micros kSpendWritten = std::chrono::minutes(10);  // more often would fill the audit log
constexpr std::size_t kWhyBytesMax = 1000;

const schedule::ScaleRules kScaleRules;

bool is_scaled(const NodePoolSpec& spec) { return spec.scaling != "fixed"; }

schedule::Node shape_of(const NodeShapeSpec& spec) {
  schedule::Node out;
  out.capacity = {std::llround(spec.cpus * 1000), spec.memory_bytes, spec.disk_bytes, spec.gpus * 1000};
  for (std::int64_t i = 0; i < spec.gpus; ++i) out.devices.push_back({std::to_string(i), spec.gpu_type});
  return out;
}

// What a node of the pool is like: as it says, or like one of them that is known.
schedule::Node shape_of(const schedule::State& state, const Rules& rules, const std::string& pool,
                        const NodePoolSpec& spec) {
  schedule::Node out;
  if (spec.shape) {
    out = shape_of(*spec.shape);
    out.labels = spec.labels;
    out.labels[std::string(kExecutorLabel)] = spec.executor.empty() ? rules.executors.at(0) : spec.executor;
    if (spec.burst) out.labels[std::string(kBurstLabel)] = "yes";
  } else {
    const auto same = std::ranges::find(state.nodes(), pool, &schedule::Node::pool);
    if (same != state.nodes().end()) out = *same;
  }
  if (!spec.zone.empty()) out.zone = spec.zone;
  return out;
}

bool does_nothing(const schedule::State& state, std::size_t node) {
  const auto free = state.free_of(static_cast<int>(node));
  const auto& has = state.nodes()[node].capacity;
  return free.cpu_millis == has.cpu_millis && free.memory_bytes == has.memory_bytes &&
         free.gpu_millis == has.gpu_millis;
}

std::optional<Micros> span(const std::optional<std::int64_t>& us) {
  return us ? std::optional(Micros(*us)) : std::nullopt;
}

}  // namespace

bool Pools::has_work(const Rules& rules) {
  return std::ranges::any_of(rules.pools, [](const auto& pool) { return is_scaled(pool.second) || pool.second.burst; });
}

void Pools::load(std::map<std::string, PoolLife> lives) {
  lives_ = std::move(lives);
  changes_.clear();
  under_way_.clear();
}

PoolChange& Pools::note(const std::string& pool) {
  auto& change = changes_[pool];
  change.pool = pool;
  return change;
}

void Pools::event(const std::string& pool, std::string_view what, std::int64_t nodes, std::string why, Micros now) {
  auto& life = lives_[pool];
  if (why.size() > kWhyBytesMax) why.resize(kWhyBytesMax);
  if (!is_utf8(why)) why = "(not text)";
  life.why = fmt::format("{} {}: {}", what, nodes, why);
  note(pool).events.push_back({life.events++, now.count(), std::string(what), nodes, std::move(why)});
}

void Pools::fail(const std::string& pool, std::string_view what, std::int64_t nodes, const std::string& why,
                 Micros now) {
  auto& life = lives_[pool];
  auto wait = kRetryFirst;
  for (std::int64_t i = 0; i < life.failures && wait < kRetryMax; ++i) wait *= 2;
  life.failures += 1;
  life.not_before_us = (now + std::min(wait, kRetryMax)).count();
  event(pool, what, nodes, why, now);
}

void Pools::spend(PoolLife& life, const NodePoolSpec& spec, Micros now) {
  const auto period = kScaleRules.period.count();
  if (life.counted_us > 0 && life.counted_us < now.count()) {
    const double hours = static_cast<double>(now.count() - life.counted_us) / 3.6e9;
    life.spent += static_cast<double>(life.up + life.coming) * spec.cost_per_hour * hours;
  }
  life.counted_us = now.count();
  if (const auto began = now.count() / period * period; began != life.period_us) {
    life.period_us = began;
    life.spent = 0;
  }
}

schedule::PoolNow Pools::count(const schedule::State& state, const Rules& rules, const std::string& name,
                               const NodePoolSpec& spec, schedule::IdleSince& idle, Micros now) {
  auto& life = lives_[name];
  const auto counted = life.counted_us;
  spend(life, spec, now);
  schedule::PoolNow out;
  std::set<std::string> up;
  for (std::size_t i = 0; i < state.nodes().size(); ++i) {
    const auto& node = state.nodes()[i];
    if (node.pool != name || !node.up) continue;
    up.insert(node.name);
    out.nodes.push_back(static_cast<int>(i));
    if (does_nothing(state, i))
      idle[i] = idle_.try_emplace(node.name, now).first->second;
    else
      idle_.erase(node.name);
  }
  const auto many = static_cast<std::int64_t>(up.size());
  if (many > life.up && life.coming > 0) {
    const auto came = std::min(many - life.up, life.coming);
    life.coming -= came;
    life.failures = 0;
    event(name, "came", came, fmt::format("{} nodes are up", many), now);
  }
  if (many != life.up) note(name);
  life.up = many;
  const auto patience = 2 * Micros(spec.warm_up_us) + Micros(spec.hooks ? spec.hooks->time_limit_us : 0) + kWarmUpSlack;
  if (life.coming > 0 && now > Micros(life.asked_us) + patience) {
    fail(name, "missing", std::exchange(life.coming, 0), "were asked for and did not come", now);
  }
  if (!life.leaving.empty() && !under_way_.contains(name) && now > Micros(life.changed_us) + kLeavesWithin) {
    const auto still = std::exchange(life.leaving, {});
    fail(name, "failed", static_cast<std::int64_t>(still.size()),
         fmt::format("given back and still there: {}", fmt::join(still, ", ")), now);
  }
  if (counted == 0 || (spec.cost_per_hour > 0 && many + life.coming > 0 &&
                       counted / kSpendWritten.count() != now.count() / kSpendWritten.count()))
    note(name);
  out.pool.name = name;
  out.pool.shape = shape_of(state, rules, name, spec);
  out.pool.nodes_min = static_cast<int>(spec.nodes_min);
  out.pool.nodes_max = static_cast<int>(spec.nodes_max);
  out.pool.cost_per_hour = spec.cost_per_hour;
  out.pool.warm_up = Micros(spec.warm_up_us);
  out.pool.spend_max = spec.spend_max;
  out.pool.wait_target = span(spec.wait_target_us);
  out.pool.idle_after = span(spec.idle_after_us);
  out.pool.steady_for = span(spec.steady_for_us);
  out.coming = static_cast<int>(life.coming);
  out.changed = Micros(life.changed_us);
  const double left = static_cast<double>(life.period_us + kScaleRules.period.count() - now.count()) / 3.6e9;
  out.spent = life.spent + static_cast<double>(many + life.coming) * spec.cost_per_hour * left;
  return out;
}

std::vector<PoolOrder> Pools::look(const schedule::State& state, const Rules& rules, Micros now) {
  std::vector<schedule::PoolNow> all;
  std::map<std::string, const NodePoolSpec*> specs;
  schedule::IdleSince idle(state.nodes().size(), kNever);
  for (const auto& [name, spec] : rules.pools) {
    if (!is_scaled(spec)) continue;
    auto& pool = all.emplace_back(count(state, rules, name, spec, idle, now));
    const auto& life = lives_[name];
    // One whose hook runs, or has just failed, stays as it is; a dearer one may help instead.
    if (under_way_.contains(name) || life.not_before_us > now.count()) {
      pool.pool.nodes_max = pool.pool.nodes_min = static_cast<int>(pool.nodes.size()) + pool.coming;
      pool.changed = now;
    }
    specs[name] = &spec;
  }
  std::vector<PoolOrder> out;
  if (all.empty()) return out;
  for (const auto& scaling : schedule::scale(state, all, idle, kScaleRules, now)) {
    const auto& spec = *specs.at(scaling.pool);
    auto& life = lives_[scaling.pool];
    PoolOrder order{scaling.pool,
                    scaling.more > 0,
                    scaling.more,
                    {},
                    spec.scaling,
                    "",
                    Micros(spec.hooks ? spec.hooks->time_limit_us : 60'000'000)};
    if (order.up) {
      if (spec.scaling == "slurm") {  // those that are known and off
        for (const auto& node : state.nodes())
          if (node.pool == scaling.pool && !node.up && static_cast<std::int64_t>(order.names.size()) < order.nodes)
            order.names.push_back(node.name);
        order.nodes = static_cast<std::int64_t>(order.names.size());
        if (order.nodes == 0) continue;
      } else {
        order.program = spec.hooks->up;
      }
      life.coming += order.nodes;
      life.asked_us = now.count();
    } else {
      for (const auto node : scaling.fewer) order.names.push_back(state.nodes()[static_cast<std::size_t>(node)].name);
      order.nodes = static_cast<std::int64_t>(order.names.size());
      if (spec.scaling == "hooks") order.program = spec.hooks->down;
      life.leaving.insert(life.leaving.end(), order.names.begin(), order.names.end());
    }
    life.changed_us = now.count();
    event(scaling.pool, order.up ? "asked" : "returning", order.nodes, scaling.why, now);
    under_way_.insert(scaling.pool);
    out.push_back(std::move(order));
  }
  return out;
}

void Pools::answered(const Scaled& news, Micros now) {
  const auto& order = news.order;
  under_way_.erase(order.pool);
  auto& life = lives_[order.pool];
  if (news.problem.empty()) {
    if (order.up) return;  // that they came is seen
    life.failures = 0;
    event(order.pool, "returned", order.nodes, fmt::format("{}", fmt::join(order.names, ", ")), now);
    return;
  }
  if (order.up) {
    life.coming = std::max<std::int64_t>(life.coming - order.nodes, 0);
  } else {
    std::erase_if(life.leaving, [&](const std::string& node) {
      return std::find(order.names.begin(), order.names.end(), node) != order.names.end();
    });
  }
  fail(order.pool, "failed", order.nodes, news.problem, now);
}

std::vector<schedule::JobId> Pools::in_need(const schedule::State& state, const Rules& rules, Micros now) const {
  std::vector<schedule::JobId> out;
  auto target = kNever;
  for (const auto& [name, spec] : rules.pools)
    if (spec.burst) target = std::min(target, span(spec.wait_target_us).value_or(kScaleRules.wait_target));
  if (target == kNever) return out;
  for (const auto& delay : schedule::delays(state, kScaleRules, now))
    if (delay.is_longer_than(target)) out.push_back(delay.job->id);
  return out;
}

bool Pools::is_leaving(const std::string& node) const {
  return std::ranges::any_of(lives_, [&](const auto& entry) {
    const auto& leaving = entry.second.leaving;
    return std::find(leaving.begin(), leaving.end(), node) != leaving.end();
  });
}

void Pools::left(const std::string& node) {
  idle_.erase(node);
  for (auto& [name, life] : lives_)
    if (std::erase(life.leaving, node) > 0) note(name);
}

void Pools::keep_only(const Rules& rules) {
  for (auto& [name, life] : lives_) {
    const auto declared = std::find_if(rules.pools.begin(), rules.pools.end(),
                                       [&known = name](const auto& pool) { return pool.first == known; });
    if (declared != rules.pools.end() && is_scaled(declared->second)) continue;
    if (life.coming == 0 && life.leaving.empty()) continue;
    life.coming = 0;
    life.leaving.clear();  // whoever took over its nodes may use them
    note(name);
  }
}

std::vector<PoolChange> Pools::take_changes() {
  std::vector<PoolChange> out;
  for (auto& [name, change] : std::exchange(changes_, {})) {
    change.life = lives_[name];
    out.push_back(std::move(change));
  }
  return out;
}

std::vector<PoolView> Pools::views(const schedule::State& state, const Rules& rules) const {
  std::vector<PoolView> out;
  for (const auto& [name, spec] : rules.pools) {
    PoolView view;
    view.name = name;
    view.scaling = spec.scaling;
    view.zone = spec.zone;
    view.nodes_min = spec.nodes_min;
    view.nodes_max = spec.nodes_max;
    view.burst = spec.burst;
    view.cost_per_hour = spec.cost_per_hour;
    view.spend_max = spec.spend_max;
    for (std::size_t i = 0; i < state.nodes().size(); ++i) {
      const auto& node = state.nodes()[i];
      if (node.pool != name || !node.up) continue;
      view.up += 1;
      view.busy += !does_nothing(state, i);
    }
    if (const auto found = lives_.find(name); found != lives_.end() && is_scaled(spec)) {
      const auto& life = found->second;
      view.coming = life.coming;
      view.leaving = static_cast<std::int64_t>(life.leaving.size());
      view.spent = life.spent;
      view.why = life.why;
      view.period_us = life.period_us;
      view.changed_us = life.changed_us;
      view.not_before_us = life.not_before_us;
    }
    const Labels labels{{"pool", name}};
    metrics_.gauge("falaj_jobs_pool_nodes", "Nodes of a pool that take jobs.", labels)
        .Set(static_cast<double>(view.up));
    metrics_.gauge("falaj_jobs_pool_nodes_coming", "Nodes of a pool that were asked for and are not up yet.", labels)
        .Set(static_cast<double>(view.coming));
    metrics_.gauge("falaj_jobs_pool_spent", "What a pool has cost today.", labels).Set(view.spent);
    out.push_back(std::move(view));
  }
  return out;
}

}  // namespace falaj::jobs
