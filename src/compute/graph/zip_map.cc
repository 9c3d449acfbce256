// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>

#include "compute/graph/graph.h"
#include "compute/graph/proto.h"
#include "foundation/base/error.h"

namespace falaj::graph {
namespace {

bool is_zip_map(const onnx::NodeProto& node) {
  return node.op_type() == "ZipMap" && node.domain() == kMl && node.input_size() == 1 && node.output_size() == 1;
}

// Its scores: [rows, classes] of float, the only thing it takes.
void describe(const onnx::NodeProto& zip, onnx::ValueInfoProto& output) {
  std::int64_t classes = 0;
  for (const auto& attribute : zip.attribute())
    classes = std::max<std::int64_t>({classes, attribute.ints_size(), attribute.strings_size()});
  auto& type = *output.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim();
  auto& width = *type.mutable_shape()->add_dim();
  if (classes > 0) width.set_dim_value(classes);
}

}  // namespace

std::optional<Bytes> without_zip_maps(BytesView model, const Limits& limits) {
  Summary summary;
  onnx::ModelProto proto = checked_model(model, limits, summary);
  auto& graph = *proto.mutable_graph();
  bool changed = false;
  for (auto& node : *graph.mutable_node()) {
    if (!is_zip_map(node)) continue;
    for (auto& output : *graph.mutable_output()) {
      if (output.name() != node.output(0)) continue;
      output.clear_type();
      describe(node, output);
      node.set_op_type("Identity");
      node.clear_domain();
      node.clear_attribute();
      changed = true;
    }
  }
  if (!changed) return {};
  // What was said of the values in between may name the list of dictionaries.
  graph.clear_value_info();
  Bytes out(proto.ByteSizeLong());
  CHECK(proto.SerializeToArray(out.data(), static_cast<int>(out.size())), "a protobuf of known size is written");
  return out;
}

}  // namespace falaj::graph
