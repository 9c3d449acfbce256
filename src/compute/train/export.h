// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compute/infer/session.h"
#include "compute/loader/prepare.h"
#include "compute/train/model.h"
#include "foundation/base/bytes.h"

namespace falaj::train {

// How far the exported model is from the trained one, on rows that neither learned from.
struct Parity {
  std::size_t rows = 0;
  double largest = 0, mean = 0;  // difference of a prediction
};

// The model as one ONNX graph: raw columns in, [rows, 1] each under its own name; out "prediction" [rows, outputs] and,
// of a classification, "label" [rows], the name of the likeliest class.
Bytes export_model(const Problem& problem, const graph::Transform& transform, Model& model);

// What a model says of raw test rows, in their order; it may be another's, whose inputs are then looked for among the
// columns. Throws invalid when one is not there, or when it says something else than the problem asks for.
std::vector<float> predictions_of(const infer::Session& session, Rows& rows);

// Runs `onnx` on raw test rows and compares with `predictions`, those of the trained model on the same rows. Throws
// invalid when one differs by more than `tolerance`, naming the row.
Parity check_parity(const infer::Session& session, Rows& rows, std::span<const float> predictions, double tolerance,
                    std::size_t rows_max);

// What MLflow's clients and our registry read beside the model: its inputs and outputs with their types.
std::string mlmodel_text(const Problem& problem, const graph::Transform& transform, const std::string& run_id);

}  // namespace falaj::train
