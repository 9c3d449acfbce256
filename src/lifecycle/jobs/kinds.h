// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "foundation/base/mutex.h"
#include "governance/resource/kind.h"
#include "lifecycle/jobs/cron.h"
#include "lifecycle/jobs/spec.h"

namespace falaj::jobs {

// So much of each; what is absent is not spoken of.
struct AmountsSpec {
  std::optional<double> cpus, gpus;
  std::optional<std::int64_t> memory_bytes, disk_bytes;
};

struct QueueSpec {
  std::string parent;
  double weight = 1;
  std::optional<AmountsSpec> guaranteed, limit;
  bool borrows = true;
  std::vector<std::string> tenants;  // who may use it; none = all
  std::string executor;              // of its jobs that name none; "" = its parent's
};

struct PriorityClassSpec {
  std::int64_t value = 0;
  bool preempts = false;
  bool is_default = false;
  std::vector<std::string> tenants;
  std::int64_t preempt_cooldown_us = 600'000'000;  // one that was stopped for another is left alone for so long
  std::int64_t preemptions_max = 3;                // and stopped so often at most
};

// What a node that is not there yet will have.
struct NodeShapeSpec {
  double cpus = 1;
  std::int64_t memory_bytes = std::int64_t{1} << 30, disk_bytes = 0, gpus = 0;
  std::string gpu_type;
};

// Programs in the directory `hooks` of the server's data.
struct PoolHooksSpec {
  std::string up, down;
  std::int64_t time_limit_us = 300 * kSecondUs;
};

// What nodes are called, where they are and what they cost; and, when they come and go, how they are had.
struct NodePoolSpec {
  std::vector<std::string> nodes;  // globs
  std::string zone;
  std::map<std::string, std::string> labels;
  double cost_per_hour = 0;  // of one node
  std::string scaling = "fixed";
  std::int64_t nodes_min = 0, nodes_max = 0;
  std::int64_t warm_up_us = 120 * kSecondUs;
  std::optional<std::int64_t> wait_target_us, idle_after_us, steady_for_us;
  double spend_max = 0;  // in a day
  bool burst = false;
  std::string executor;
  std::optional<NodeShapeSpec> shape;
  std::optional<PoolHooksSpec> hooks;
};
inline constexpr std::string_view kScalings[] = {"fixed", "hooks", "slurm"};

struct ScheduleSpec {
  std::string cron;
  std::string overlap = "skip";
  bool suspended = false;
  JobSpec job;
};
inline constexpr std::string_view kOverlaps[] = {"skip", "allow"};

// Rung when one of these resources has changed. Thread-safe.
class Bell {
 public:
  void set(std::function<void()> ring) EXCLUDES(mu_);
  void ring() EXCLUDES(mu_);

 private:
  Mutex mu_;
  std::function<void()> ring_ GUARDED_BY(mu_);
};

// Queue, PriorityClass, NodePool and Schedule, in the order in which they are applied.
std::vector<resource::Kind> job_kinds(std::shared_ptr<Bell> bell);

}  // namespace falaj::jobs

namespace falaj {

template <>
struct Shape<jobs::AmountsSpec> {
  using T = jobs::AmountsSpec;
  static constexpr std::string_view name = "JobAmounts";
  static Fields fields() {
    return {field("cpus", &T::cpus, "Processors.").range(0, 1'000'000'000),
            field("memory", &T::memory_bytes, "Memory.").bytes().range(0, std::int64_t{1} << 60),
            field("disk", &T::disk_bytes, "Disk.").bytes().range(0, std::int64_t{1} << 60),
            field("gpus", &T::gpus, "GPUs.").range(0, 1'000'000'000)};
  }
};
template <>
struct Shape<jobs::QueueSpec> {
  using T = jobs::QueueSpec;
  static constexpr std::string_view name = "QueueSpec";
  static Fields fields() {
    return {field("parent", &T::parent, "The queue it is a part of; a tenant's queue must have one.").length(0, 63),
            field("weight", &T::weight, "Its share beside its neighbours.").range(0, 1'000'000),
            field("guaranteed", &T::guaranteed,
                  "What it and all below it get back when they ask, whoever holds it. GPUs that are absent are none."),
            field("limit", &T::limit,
                  "Never more than this, with all that is below it. 0 is none; what is absent is not bounded."),
            field("borrows", &T::borrows, "May hold more than guaranteed while others leave it unused."),
            field("tenants", &T::tenants, "Who may use it; everybody when absent.")
                .length(0, 1000)
                .text({is_name, kNameRule}),
            field("executor", &T::executor, "Where its jobs run that do not say; its parent's, or the server's first.")
                .text({is_name, kNameRule})};
  }
};
template <>
struct Shape<jobs::PriorityClassSpec> {
  using T = jobs::PriorityClassSpec;
  static constexpr std::string_view name = "PriorityClassSpec";
  static Fields fields() {
    return {field("value", &T::value, "Higher goes first.").required().range(-1'000'000, 1'000'000),
            field("preempts", &T::preempts, "Its jobs may stop preemptible ones of lower value."),
            field("default", &T::is_default, "Of jobs that name none."),
            field("preemptCooldown", &T::preempt_cooldown_us,
                  "A job of it that was stopped for another is left alone for so long.")
                .duration()
                .range(0, jobs::kYearUs),
            field("preemptionsMax", &T::preemptions_max,
                  "A job of it is stopped for urgent ones at most so often. Beyond it, for what a queue is "
                  "guaranteed, each time doubles preemptCooldown.")
                .range(0, 1'000'000),
            field("tenants", &T::tenants, "Who may use it; everybody when absent.")
                .length(0, 1000)
                .text({is_name, kNameRule})};
  }
};
template <>
struct Shape<jobs::NodeShapeSpec> {
  using T = jobs::NodeShapeSpec;
  static constexpr std::string_view name = "NodeShapeSpec";
  static Fields fields() {
    return {field("cpus", &T::cpus, "Processors.").required().range(0, 100'000),
            field("memory", &T::memory_bytes, "Memory.").required().bytes().range(0, std::int64_t{1} << 50),
            field("disk", &T::disk_bytes, "Disk.").bytes().range(0, std::int64_t{1} << 60),
            field("gpus", &T::gpus, "GPUs.").range(0, 16), field("gpuType", &T::gpu_type, "Their type.").length(0, 64)};
  }
};
template <>
struct Shape<jobs::PoolHooksSpec> {
  using T = jobs::PoolHooksSpec;
  static constexpr std::string_view name = "PoolHooksSpec";
  static Fields fields() {
    return {field("up", &T::up, "Called as `up POOL COUNT` for more nodes; a file in the server's directory `hooks`.")
                .required()
                .text({is_name, kNameRule}),
            field("down", &T::down, "Called as `down POOL NODE...` to give nodes back.")
                .required()
                .text({is_name, kNameRule}),
            field("timeLimit", &T::time_limit_us, "It is killed when it takes longer.")
                .duration()
                .range(jobs::kSecondUs, 3600 * jobs::kSecondUs)};
  }
};
template <>
struct Shape<jobs::NodePoolSpec> {
  using T = jobs::NodePoolSpec;
  static constexpr std::string_view name = "NodePoolSpec";
  static Fields fields() {
    return {
        field("nodes", &T::nodes, "Names of its nodes; '*' stands for anything.").required().length(1, 1000),
        field("zone", &T::zone, "Where they are.").text({is_name, kNameRule}),
        field("labels", &T::labels, "Added to those the nodes have.").length(0, 64),
        field("costPerHour", &T::cost_per_hour, "Of one node.").range(0, 1'000'000),
        field("scaling", &T::scaling,
              "fixed: its nodes are there; hooks: programs make and remove them; slurm: Slurm's power saving does.")
            .one_of(jobs::kScalings),
        field("min", &T::nodes_min, "Never fewer nodes.").range(0, 100'000),
        field("max", &T::nodes_max, "Never more nodes.").range(0, 100'000),
        field("warmUp", &T::warm_up_us, "Between asking for a node and its taking jobs.")
            .duration()
            .range(0, 86'400 * jobs::kSecondUs),
        field("waitTarget", &T::wait_target_us, "Nodes are asked for when a job would wait longer; 10m when absent.")
            .duration()
            .range(0, jobs::kYearUs),
        field("idleAfter", &T::idle_after_us, "A node that did nothing for so long is given back; 15m when absent.")
            .duration()
            .range(0, jobs::kYearUs),
        field("steadyFor", &T::steady_for_us, "After a change nothing is given back for so long; 5m when absent.")
            .duration()
            .range(0, jobs::kYearUs),
        field("spendMax", &T::spend_max, "No more nodes are asked for when a day would cost more; 0 = no cap.")
            .range(0, 1'000'000'000),
        field("burst", &T::burst, "Only jobs that would wait too long or miss their deadline elsewhere may use it."),
        field("executor", &T::executor, "Whose nodes they are; the server's first when absent.").length(0, 63),
        field("shape", &T::shape, "What one node has; learned from those there are when absent."),
        field("hooks", &T::hooks, "Of scaling: hooks.")};
  }
};
template <>
struct Shape<jobs::ScheduleSpec> {
  using T = jobs::ScheduleSpec;
  static constexpr std::string_view name = "ScheduleSpec";
  static Fields fields() {
    return {field("cron", &T::cron, "When, in UTC.").required().text({jobs::is_cron, jobs::kCronRule}),
            field("overlap", &T::overlap, "While the one before has not ended: skip, or allow both.")
                .one_of(jobs::kOverlaps),
            field("suspended", &T::suspended, "Whether it rests."),
            field("job", &T::job, "What is submitted.").required()};
  }
};

}  // namespace falaj
