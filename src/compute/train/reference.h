// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "compute/loader/prepare.h"

namespace falaj::train {

// What the model was tested on, as sketches of every input and of its predictions: what later inputs and predictions
// are compared with to notice drift. JSON; docs/formats/model_reference.md.
// Where the model tells two classes apart, also what share of those with a score is positive, by `labels`, one a row.
// `whole`: so many of its rows, chosen by chance, are told whole.
std::string reference_text(loader::Rows& rows, std::span<const float> predictions, std::span<const float> labels,
                           std::int64_t whole);

}  // namespace falaj::train
