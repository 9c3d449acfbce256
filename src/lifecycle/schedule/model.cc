// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/schedule/model.h"

#include "foundation/base/error.h"

namespace falaj::schedule {

int tasks_of(const Placement& placement) {
  int tasks = 0;
  for (const Part& part : placement) tasks += part.tasks;
  return tasks;
}

std::string_view name_of(Reason reason) {
  switch (reason) {
    case Reason::held:
      return "held";
    case Reason::not_before:
      return "not_before";
    case Reason::limit:
      return "limit";
    case Reason::guarantee:
      return "guarantee";
    case Reason::no_node:
      return "no_node";
    case Reason::zone:
      return "zone";
    case Reason::reservation:
      return "reservation";
    case Reason::resources:
      return "resources";
    case Reason::displacing:
      return "displacing";
  }
  CHECK(false, "no such reason");
}

}  // namespace falaj::schedule
