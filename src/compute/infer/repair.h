// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to infer: what some builds of ONNX Runtime get wrong.

#include "compute/graph/graph.h"
#include "foundation/base/bytes.h"

namespace falaj::infer {

// Writes anew what ONNX Runtime 1.27.0 answers wrongly, and 1.23 and 1.31 do not, in operators that every build gets
// right. Says whether there was such a thing.
//
// Forests of two classes as scikit-learn's exporter writes them, whose leaves hold the probability of the second class
// alone: it answers -p and p, and the second class whenever p is above 0, where 1-p, p and a half are meant. Becomes a
// regressor and what makes labels and scores of it.
//
// QLinearSoftmax, which its own tool for quantising writes: some rows come out as another class. Becomes a Softmax
// between DequantizeLinear and QuantizeLinear.
bool repair(graph::Graph& graph);
// Whether a model may need it, from the names of operators in its bytes.
bool may_need_repair(BytesView model);

}  // namespace falaj::infer
