// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "compute/infer/session.h"
#include "compute/loader/prepare.h"
#include "compute/train/model.h"
#include "foundation/base/bytes.h"

namespace falaj::train {

// The model as one ONNX graph: raw columns in, [rows, 1] each under its own name; out "prediction" [rows, outputs] and,
// of a classification, "label" [rows], the name of the likeliest class.
Bytes export_model(const Problem& problem, const graph::Transform& transform, Model& model);

// What a model says of raw rows of a problem.
std::vector<float> answer_of(const infer::Session& session, const Problem& problem, const Rows::Raw& batch);
// What a model says of raw test rows, in their order; it may be another's, whose inputs are then looked for among the
// columns. Throws invalid when one is not there, or when it says something else than the problem asks for.
std::vector<float> predictions_of(const infer::Session& session, Rows& rows);

// What MLflow's clients and our registry read beside the model: its inputs and outputs with their types.
std::string mlmodel_text(const Problem& problem, const graph::Transform& transform, const std::string& run_id);

}  // namespace falaj::train
