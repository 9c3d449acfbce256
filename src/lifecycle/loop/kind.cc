// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/loop/kind.h"

#include <algorithm>

#include <fmt/format.h>

namespace falaj::loop {
namespace {

void check_policy(const resource::World&, const resource::Metadata&, const PolicySpec& spec, Faults& faults) {
  for (std::size_t i = 0; i < spec.blocked_by.size(); ++i)
    if (std::find(spec.on.begin(), spec.on.end(), spec.blocked_by[i]) != spec.on.end())
      faults.push_back({fmt::format("spec.blockedBy[{}]", i),
                        fmt::format("'{}' cannot both ask for a run and forbid it", spec.blocked_by[i])});
  for (const auto& [how, name] : {std::pair(&spec.when_blocked, "whenBlocked"), {&spec.when_failed, "whenFailed"}})
    if (*how == "rollback" && spec.endpoint.empty())
      faults.push_back({"spec.endpoint", fmt::format("required with {}: rollback", name)});
}

std::vector<resource::Reference> needs_of(const resource::World&, const resource::Metadata& metadata,
                                          const PolicySpec& spec) {
  std::vector<resource::Reference> out;
  const auto add = [&](const char* kind, const std::string& name, std::string at) {
    out.push_back({{kind, metadata.tenant, metadata.project, name}, std::move(at)});
  };
  for (std::size_t i = 0; i < spec.on.size(); ++i) add("AlertRule", spec.on[i], fmt::format("spec.on[{}]", i));
  for (std::size_t i = 0; i < spec.blocked_by.size(); ++i)
    add("AlertRule", spec.blocked_by[i], fmt::format("spec.blockedBy[{}]", i));
  add("Pipeline", spec.pipeline, "spec.pipeline");
  if (!spec.endpoint.empty()) add("Endpoint", spec.endpoint, "spec.endpoint");
  return out;
}

}  // namespace

resource::Kind policy_kind() {
  return resource::make_kind(resource::KindOf<PolicySpec>{kPolicy,
                                                          "retrainpolicies",
                                                          "What is done by itself when a model gets worse.",
                                                          {.project = true},
                                                          check_policy,
                                                          needs_of,
                                                          {}});
}

}  // namespace falaj::loop
