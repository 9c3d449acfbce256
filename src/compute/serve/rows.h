// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows of named fields, as people write them, and tensors, as models take them.

#include <span>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/graph/tensor.h"
#include "compute/infer/view.h"
#include "foundation/base/json.h"

namespace falaj::serve {

// A tensor for each input: a column of what the rows say under its name. A number that a row leaves out or says null
// for is not a number, a text is empty; a time may be written as such; whole numbers and truths must be there. Throws
// invalid, naming row and field. `known`, unless it is empty, has those that are there already; the others are without
// sizes.
std::vector<graph::Tensor> columns_of(const json::array& rows, std::span<const graph::Port> inputs,
                                      std::span<const graph::Tensor> known = {});

// An object for each row: what each output says of it; a list where it says several things. Requires: as many of each.
json::array rows_of(std::size_t rows, std::span<const graph::Port> outputs, std::span<const infer::TensorView> tensors);

}  // namespace falaj::serve
