// SPDX-License-Identifier: Apache-2.0
#pragma once

// Node pools that grow and shrink: when schedule/autoscale.h says so, a hook or Slurm is asked for nodes or told to
// take them back. What came of it is seen in the nodes that executors report.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/shape.h"
#include "lifecycle/jobs/rules.h"
#include "lifecycle/schedule/autoscale.h"

namespace falaj::jobs {

// Everything of a pool that changes, as it is stored. Times are wall clock, microseconds.
struct PoolLife {
  std::int64_t up = 0, coming = 0;
  std::int64_t asked_us = 0, changed_us = 0;
  std::int64_t period_us = 0, counted_us = 0;  // when the period of the spend began, and until when it is counted
  double spent = 0;
  std::int64_t failures = 0, not_before_us = 0;  // in a row; nothing is asked for before then
  std::vector<std::string> leaving;              // nodes that are being given back: they get nothing new
  std::string why;
  std::int64_t events = 0;
};

struct PoolEvent {
  std::int64_t number = 0, at_us = 0;
  std::string what;  // asked, came, failed, missing, returning, returned
  std::int64_t nodes = 0;
  std::string why;
};

// A pool as it is now, and what led there since it was last written.
struct PoolChange {
  std::string pool;
  PoolLife life;
  std::vector<PoolEvent> events;
};

// What is to be done about a pool, once that it is asked for is durable.
struct PoolOrder {
  std::string pool;
  bool up = true;
  std::int64_t nodes = 0;
  std::vector<std::string> names;  // which; of nodes to be had only where they are known
  std::string scaling, program;
  schedule::Micros time_limit{0};
};

// What came of it: not that nodes are there, but that they were asked for.
struct Scaled {
  PoolOrder order;
  std::string problem;  // "" = none
};

struct PoolView {
  std::string name, scaling, zone, why;
  std::int64_t nodes_min = 0, nodes_max = 0;
  std::int64_t up = 0, busy = 0, coming = 0, leaving = 0;
  bool burst = false;
  double cost_per_hour = 0, spent = 0, spend_max = 0;
  std::int64_t period_us = 0, changed_us = 0, not_before_us = 0;
};

// Belongs to the dispatcher's thread.
class Pools {
 public:
  explicit Pools(Metrics& metrics) : metrics_(metrics) {}
  void load(std::map<std::string, PoolLife> lives);
  // Counts what is there and decides. Requires: called every so often while has_work().
  std::vector<PoolOrder> look(const schedule::State& state, const Rules& rules, schedule::Micros now);
  void answered(const Scaled& news, schedule::Micros now);
  // Jobs that would wait too long, or miss their deadline, on all nodes but those of burst pools.
  std::vector<schedule::JobId> in_need(const schedule::State& state, const Rules& rules, schedule::Micros now) const;

  bool is_leaving(const std::string& node) const;
  void left(const std::string& node);  // its executor has it no more
  void keep_only(const Rules& rules);  // what pools that are declared no more wanted is forgotten
  void uses(const std::string& node) { idle_.erase(node); }
  std::vector<PoolChange> take_changes();
  std::vector<PoolView> views(const schedule::State& state, const Rules& rules) const;
  static bool has_work(const Rules& rules);

 private:
  schedule::PoolNow count(const schedule::State& state, const Rules& rules, const std::string& name,
                          const NodePoolSpec& spec, schedule::IdleSince& idle, schedule::Micros now);
  void spend(PoolLife& life, const NodePoolSpec& spec, schedule::Micros now);
  void fail(const std::string& pool, std::string_view what, std::int64_t nodes, const std::string& why,
            schedule::Micros now);
  PoolChange& note(const std::string& pool);
  void event(const std::string& pool, std::string_view what, std::int64_t nodes, std::string why, schedule::Micros now);

  Metrics& metrics_;
  std::map<std::string, PoolLife> lives_;
  std::map<std::string, PoolChange> changes_;
  std::map<std::string, schedule::Micros> idle_;  // nodes that do nothing, and since when
  std::set<std::string> under_way_;               // pools whose hook runs
};

inline constexpr std::int64_t kPoolEventsKept = 1000;

}  // namespace falaj::jobs

namespace falaj {

template <>
struct Shape<jobs::PoolLife> {
  using T = jobs::PoolLife;
  static constexpr std::string_view name = "PoolLife";
  static Fields fields() {
    return {field("up", &T::up, "Nodes that take jobs."),
            field("coming", &T::coming, "Nodes that were asked for."),
            field("asked_us", &T::asked_us, "When."),
            field("changed_us", &T::changed_us, "When it last grew or shrank."),
            field("period_us", &T::period_us, "When the period of its spend began."),
            field("counted_us", &T::counted_us, "Until when its spend is counted."),
            field("spent", &T::spent, "In this period."),
            field("failures", &T::failures, "Of its hook, in a row."),
            field("not_before_us", &T::not_before_us, "Nothing is asked for before."),
            field("leaving", &T::leaving, "Nodes that are being given back."),
            field("why", &T::why, "The newest change."),
            field("events", &T::events, "How many there were.")};
  }
};

}  // namespace falaj
