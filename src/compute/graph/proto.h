// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to graph: the only header that knows ONNX's protobufs.

#define ONNX_ML 1
#define ONNX_NAMESPACE onnx
#include <onnx/onnx_pb.h>

#include <cstdint>
#include <optional>
#include <string>

#include "compute/graph/check.h"
#include "compute/graph/tensor.h"
#include "foundation/base/bytes.h"

namespace falaj::graph {

std::optional<Element> element_of_type(std::int64_t onnx_type);  // nothing for types not known here

// The model, after everything check() promises. Throws invalid.
onnx::ModelProto checked_model(BytesView model, const Limits& limits, Summary& summary);

onnx::TensorProto checked_tensor(BytesView tensor, const Limits& limits);

// Throws invalid when the bytes are no ONNX model, or hold more of anything than `limits`; gives memory to none of it.
void scan_model(BytesView model, const Limits& limits);

// How many values a tensor holds in the field of its type; raw bytes are not among them.
std::size_t typed_values(const onnx::TensorProto& tensor, Element element);

}  // namespace falaj::graph
