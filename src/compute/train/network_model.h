// SPDX-License-Identifier: Apache-2.0
// Private to compute/train: it includes libtorch.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "compute/train/layers.h"
#include "compute/train/model.h"
#include "compute/train/tensors.h"

namespace falaj::train {

// Predictions of the rows from `first` to before `last`; calls `look` now and then.
std::vector<float> predict_rows(const Plan& plan, const Weights& weights, const Packed& rows, std::size_t first,
                                std::size_t last, Objective objective, const Look& look = {});

// A network that has learned: `values[i]` are those of plan.weights[i].
std::unique_ptr<Model> make_network_model(Plan plan, std::vector<std::vector<float>> values, Objective objective);

}  // namespace falaj::train
