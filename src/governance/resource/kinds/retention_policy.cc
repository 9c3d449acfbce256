// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/kinds/retention_policy.h"

#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

Kind retention_policy_kind() {
  return make_kind(KindOf<RetentionPolicySpec>{"RetentionPolicy",
                                               "retentionpolicies",
                                               "How long things are kept, and what then happens to them.",
                                               {.tenant = true, .project = true},
                                               {},
                                               {},
                                               {}});
}

}  // namespace falaj::resource
