// SPDX-License-Identifier: Apache-2.0
#pragma once

// What people declared about how jobs are treated, as the scheduler reads it.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "governance/resource/resources.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/jobs/kinds.h"
#include "lifecycle/jobs/record.h"
#include "lifecycle/schedule/model.h"

namespace falaj::jobs {

inline constexpr std::string_view kExecutorLabel = "falaj/executor", kBurstLabel = "falaj/burst";

struct Rules {
  std::vector<schedule::Queue> queues;                          // "gpu" of the platform, "acme/gpu" of a tenant
  std::map<std::string, std::vector<std::string>> queue_users;  // tenants, by queue; none = all
  std::map<std::string, PriorityClassSpec> classes;
  std::string default_class;
  std::vector<std::pair<std::string, NodePoolSpec>> pools;
  std::vector<std::string> executors;                  // the first is what jobs get that name none
  std::map<std::string, std::string> queue_executors;  // by queue, of those that name one

  // The queue a job of the tenant means; nothing when there is none that it may use.
  std::optional<std::string> queue_of(const std::string& tenant, const std::string& queue) const;
  const std::string& executor_of(const std::string& tenant, const JobSpec& spec) const;
  // Where an attempt of it was before, it stays: what it saved is there.
  const std::string& executor_of(const Record& record) const;
};

Rules read_rules(resource::Resources& resources, std::vector<std::string> executors);

// What of a job cannot be under these rules. Paths begin with "spec".
void check(const JobSpec& spec, const std::string& tenant, const Rules& rules, Faults& faults);

// A job as the scheduler sees it. `zone`: where it must be when it does not say; "" = anywhere.
schedule::Job to_job(const Record& record, const Rules& rules, const std::string& zone, schedule::Guess run);
schedule::Node to_node(const execute::Node& node, const std::string& executor, const Rules& rules);

}  // namespace falaj::jobs
