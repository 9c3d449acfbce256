// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/kind.h"

namespace falaj::watch {
namespace {

void check_monitor(const resource::World&, const resource::Metadata&, const MonitorSpec& spec, Faults& faults) {
  if (spec.level <= 0 || spec.level >= 1) faults.push_back({"spec.level", "must be above 0 and below 1, such as 0.01"});
}

std::vector<resource::Reference> endpoint_of(const resource::World&, const resource::Metadata& metadata,
                                             const MonitorSpec& spec) {
  return {{{"Endpoint", metadata.tenant, metadata.project, spec.endpoint}, "spec.endpoint"}};
}

}  // namespace

resource::Kind monitor_kind() {
  return resource::make_kind(resource::KindOf<MonitorSpec>{
      kMonitor,
      "monitors",
      "What an endpoint is asked and answers, compared with what its models were trained on.",
      {.project = true},
      check_monitor,
      endpoint_of,
      {}});
}

}  // namespace falaj::watch
