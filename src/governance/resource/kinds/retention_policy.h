// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "foundation/base/shape.h"

namespace falaj::resource {

// Read by whoever keeps such things: Resources::list("RetentionPolicy"), then decode<RetentionPolicySpec>.
struct RetentionPolicySpec {
  std::vector<std::string> resources;
  std::int64_t keep_us = 0;
  std::string then;
};

inline constexpr std::string_view kRetentionEnds[] = {"delete", "archive"};

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::RetentionPolicySpec> {
  using S = resource::RetentionPolicySpec;
  static constexpr std::string_view name = "RetentionPolicySpec";
  static Fields fields() {
    return {
        field("resources", &S::resources,
              "Paths below the project (or, with p/PROJECT/ before them, the tenant) it belongs to: run/*, "
              "experiment/NAME*, logged-model/*, job/NAME*, blob/raw-*; '*' stands for anything.")
            .required()
            .length(1, 100),
        field("keep", &S::keep_us,
              "How long they are kept after they ended (archive; a job: delete), or were deleted or, a blob, stored "
              "(delete).")
            .required()
            .duration()
            .range(1'000'000, 3'153'600'000'000'000),
        field("then", &S::then,
              "archive: runs are put away and can be restored; delete: what was put away is removed for good, "
              "and blobs, and jobs with their history and logs.")
            .required()
            .one_of(resource::kRetentionEnds)};
  }
};
