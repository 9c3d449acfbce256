// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/kind.h"

#include <fmt/format.h>

#include "lifecycle/flow/plan.h"

namespace falaj::flow {
namespace {

std::vector<resource::Reference> needs_of(const resource::World&, const resource::Metadata& metadata,
                                          const PipelineSpec& spec) {
  std::vector<resource::Reference> out;
  const auto rule = [&](const std::string& name, std::string at) {
    out.push_back({{"AlertRule", metadata.tenant, metadata.project, name}, std::move(at)});
  };
  for (std::size_t i = 0; i < spec.blocked_by.size(); ++i)
    rule(spec.blocked_by[i], fmt::format("spec.blockedBy[{}]", i));
  for (std::size_t i = 0; i < spec.triggers.size(); ++i)
    if (spec.triggers[i].alert) rule(spec.triggers[i].alert->rule, fmt::format("spec.triggers[{}].alert.rule", i));
  return out;
}

}  // namespace

resource::Kind pipeline_kind(CheckTraining training) {
  return resource::make_kind(resource::KindOf<PipelineSpec>{
      "Pipeline",
      "pipelines",
      "Steps that make a model and bring it where it is used, each as soon as those before it are done.",
      {.project = true},
      [training = std::move(training)](const resource::World&, const resource::Metadata&, const PipelineSpec& spec,
                                       Faults& faults) { check(spec, training, faults); },
      needs_of,
      {}});
}

}  // namespace falaj::flow
