// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to lifecycle/serving: features as serving programs are told of them.

#include <cstdint>
#include <map>
#include <string>

#include "governance/resource/resources.h"
#include "lifecycle/features/online.h"
#include "lifecycle/traffic/features.h"

namespace falaj::serving {

// Where the rows of a view are that a plan names.
struct PlannedSpace {
  data::Where where;
  std::string view;
  Digest meaning;
  std::int64_t generation = 0;
};
using PlannedSpaces = std::map<std::string, PlannedSpace>;  // by the space's name

// What it takes to read the features of a service; why that is not possible is said in it. Adds the spaces it names.
traffic::Features plan_features(features::Online& online, resource::Resources& resources, const data::Where& where,
                                const std::string& service, PlannedSpaces& spaces);

// The keys of a space of the plan, for a program that reads it.
traffic::SpaceKeys share_space(features::Online& online, const std::string& name, const PlannedSpace& space);

}  // namespace falaj::serving
