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
};

// What nodes are called, where they are and what they cost.
struct NodePoolSpec {
  std::vector<std::string> nodes;  // globs
  std::string zone;
  std::map<std::string, std::string> labels;
  double cost_per_hour = 0;  // of one node
};

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
  static constexpr auto fields =
      std::make_tuple(field("cpus", &T::cpus, "Processors.").range(0, 1'000'000'000),
                      field("memory", &T::memory_bytes, "Memory.").bytes().range(0, std::int64_t{1} << 60),
                      field("disk", &T::disk_bytes, "Disk.").bytes().range(0, std::int64_t{1} << 60),
                      field("gpus", &T::gpus, "GPUs.").range(0, 1'000'000'000));
};
template <>
struct Shape<jobs::QueueSpec> {
  using T = jobs::QueueSpec;
  static constexpr std::string_view name = "QueueSpec";
  static constexpr auto fields = std::make_tuple(
      field("parent", &T::parent, "The queue it is a part of; a tenant's queue must have one.").length(0, 63),
      field("weight", &T::weight, "Its share beside its neighbours.").range(0, 1'000'000),
      field("guaranteed", &T::guaranteed, "What it gets back when it asks, whoever holds it."),
      field("limit", &T::limit, "Never more than this, with all that is below it."),
      field("borrows", &T::borrows, "May hold more than guaranteed while others leave it unused."),
      field("tenants", &T::tenants, "Who may use it; everybody when absent.")
          .length(0, 1000)
          .text({is_name, kNameRule}),
      field("executor", &T::executor, "Where its jobs run that do not say; its parent's, or the server's first.")
          .text({is_name, kNameRule}));
};
template <>
struct Shape<jobs::PriorityClassSpec> {
  using T = jobs::PriorityClassSpec;
  static constexpr std::string_view name = "PriorityClassSpec";
  static constexpr auto fields =
      std::make_tuple(field("value", &T::value, "Higher goes first.").required().range(-1'000'000, 1'000'000),
                      field("preempts", &T::preempts, "Its jobs may stop preemptible ones of lower value."),
                      field("default", &T::is_default, "Of jobs that name none."),
                      field("tenants", &T::tenants, "Who may use it; everybody when absent.")
                          .length(0, 1000)
                          .text({is_name, kNameRule}));
};
template <>
struct Shape<jobs::NodePoolSpec> {
  using T = jobs::NodePoolSpec;
  static constexpr std::string_view name = "NodePoolSpec";
  static constexpr auto fields = std::make_tuple(
      field("nodes", &T::nodes, "Names of its nodes; '*' stands for anything.").required().length(1, 1000),
      field("zone", &T::zone, "Where they are.").text({is_name, kNameRule}),
      field("labels", &T::labels, "Added to those the nodes have.").length(0, 64),
      field("costPerHour", &T::cost_per_hour, "Of one node.").range(0, 1'000'000));
};
template <>
struct Shape<jobs::ScheduleSpec> {
  using T = jobs::ScheduleSpec;
  static constexpr std::string_view name = "ScheduleSpec";
  static constexpr auto fields = std::make_tuple(
      field("cron", &T::cron, "When, in UTC.").required().text({jobs::is_cron, jobs::kCronRule}),
      field("overlap", &T::overlap, "While the one before has not ended: skip, or allow both.").one_of(jobs::kOverlaps),
      field("suspended", &T::suspended, "Whether it rests."), field("job", &T::job, "What is submitted.").required());
};

}  // namespace falaj
