// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/train/layers.h"

// How a network is taken apart, so that several processes have a part of it each. Pure.
namespace falaj::train {

// Which numbers of a whole network's weight a part's weight is: those from `first` on in one dimension.
struct WeightSlice {
  std::size_t weight = 0;  // of the whole
  std::int64_t dimension = 0, first = 0, count = 0;
  bool tells = true;  // of several parts that have the same, one says what it is
};

struct NetworkPart {
  Plan plan;
  std::vector<WeightSlice> slices;  // of plan.weights
  std::size_t first_layer = 0;      // of the whole
};

// ---- One after the other: stages of a pipeline.
// The layers before which a network can be cut, rising: nothing is put aside there.
std::vector<std::size_t> places_to_cut(const Plan& plan);
// The first layers of so many stages, such that the dearest is as cheap as can be. `costs`: of what begins at 0 and at
// each of places_to_cut(). Throws invalid when there are not enough places.
std::vector<std::size_t> stages_of(const Plan& plan, std::span<const double> costs, std::size_t stages);
NetworkPart stage_of(const Plan& plan, std::size_t first_layer, std::size_t end_layer);

// ---- Side by side: a linear layer and the next one that follows on it with nothing but bends in between are split,
// the first by what comes out of it, the second by what goes in; all else is everybody's. Throws invalid when there are
// no two such layers, or they are narrower than there are ranks.
NetworkPart split_of(const Plan& plan, std::size_t rank, std::size_t ranks);

}  // namespace falaj::train
