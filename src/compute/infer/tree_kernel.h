// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to infer: our trees as operators inside of ONNX Runtime, for models that have more around them.

#include <memory>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/infer/ort.h"
#include "compute/infer/tree_operator.h"

namespace falaj::infer {

class TreeKernel;

// The operators of one session, which must be gone before they are.
class TreeKernels {
 public:
  static constexpr std::string_view kDomain = "falaj.trees";

  explicit TreeKernels(const Runtime::Rep& runtime);
  ~TreeKernels();

  // Replaces the operators of the graph that this knows by ours; says whether there was one.
  bool take_over(graph::Graph& graph);
  void add_to(OrtSessionOptions* options);
  void clear();  // Requires: no session uses them
  bool empty() const { return kernels_.empty(); }
  std::size_t resident_bytes() const;

 private:
  const Runtime::Rep& runtime_;
  Owned<OrtCustomOpDomain> domain_;
  std::vector<std::unique_ptr<TreeKernel>> kernels_;
};

}  // namespace falaj::infer
