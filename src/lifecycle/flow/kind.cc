// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/kind.h"

#include "lifecycle/flow/plan.h"

namespace falaj::flow {

resource::Kind pipeline_kind(CheckTraining training) {
  return resource::make_kind(resource::KindOf<PipelineSpec>{
      "Pipeline",
      "pipelines",
      "Steps that make a model and bring it where it is used, each as soon as those before it are done.",
      {.project = true},
      [training = std::move(training)](const resource::World&, const resource::Metadata&, const PipelineSpec& spec,
                                       Faults& faults) { check(spec, training, faults); },
      {},
      {}});
}

}  // namespace falaj::flow
