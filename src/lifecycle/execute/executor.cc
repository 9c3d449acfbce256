// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/execute/executor.h"

#include "foundation/base/error.h"

namespace falaj::execute {

std::string_view name_of(Isolation isolation) {
  switch (isolation) {
    case Isolation::none:
      return "none";
    case Isolation::restricted:
      return "restricted";
    case Isolation::contained:
      return "contained";
    case Isolation::isolated:
      return "isolated";
  }
  CHECK(false, "no such isolation");
}

std::string_view name_of(Reason reason) {
  switch (reason) {
    case Reason::finished:
      return "finished";
    case Reason::checkpointed:
      return "checkpointed";
    case Reason::signalled:
      return "signalled";
    case Reason::out_of_memory:
      return "out_of_memory";
    case Reason::out_of_disk:
      return "out_of_disk";
    case Reason::time_limit:
      return "time_limit";
    case Reason::stopped:
      return "stopped";
    case Reason::node_lost:
      return "node_lost";
    case Reason::not_started:
      return "not_started";
  }
  CHECK(false, "no such reason");
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::starting:
      return "starting";
    case Phase::running:
      return "running";
    case Phase::ended:
      return "ended";
  }
  CHECK(false, "no such phase");
}

}  // namespace falaj::execute
