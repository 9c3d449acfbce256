// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "governance/resource/kind.h"
#include "lifecycle/features/as_of.h"
#include "lifecycle/features/types.h"

namespace falaj::features {

// Entity, FeatureView and FeatureService, in the order in which they are applied.
std::vector<resource::Kind> feature_kinds();

// "VIEW:FEATURE".
struct FeatureName {
  std::string view, feature;  // feature "*": all
};
std::optional<FeatureName> parse_feature_name(std::string_view text);

// A view over rows of these columns, for those of its features that `wanted` names (all when it is empty).
// Throws invalid with every fault.
ViewPlan compile(const FeatureViewSpec& view, const EntitySpec& entity, const table::Schema& rows,
                 const std::vector<std::string>& wanted);

}  // namespace falaj::features
