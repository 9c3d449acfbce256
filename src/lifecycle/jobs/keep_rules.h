// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "governance/iam/directory.h"
#include "governance/resource/resources.h"
#include "lifecycle/jobs/record.h"

namespace falaj::jobs {

// What RetentionPolicies (then: delete) say of jobs: "job/NAME" in a project's, "p/PROJECT/job/NAME" in a tenant's.
struct KeepRule {
  std::vector<std::string> names;  // patterns
  std::int64_t keep_us = 0;        // after it ended
};
// By project; only those that have any.
std::vector<std::pair<Where, std::vector<KeepRule>>> keep_rules(resource::Resources& resources,
                                                                const iam::Snapshot& snapshot);
// Whether a job that has ended may go. Of several rules that speak of it the longest keeps it.
bool is_due(const std::vector<KeepRule>& rules, const Record& record, std::int64_t now_us);

}  // namespace falaj::jobs
