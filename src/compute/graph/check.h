// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "foundation/base/bytes.h"

namespace falaj::graph {

// How large and how deep a model may be.
struct Limits {
  std::size_t bytes = std::size_t{2'000'000'000};  // protobuf itself ends at 2 GiB
  std::size_t nodes = 200'000;                     // in all graphs of the model
  std::size_t tensors = 200'000;                   // initialisers and constants
  std::size_t tensor_bytes = std::size_t{2'000'000'000};
  std::size_t attributes = 1'000'000;
  std::size_t values = 1'000'000;  // names of inputs and outputs of nodes
  std::size_t texts = 20'000'000;  // texts inside tensors and attributes
  std::size_t graphs_nested = 4;   // If in Loop in If in the graph
  std::size_t name_bytes = 1024;
  std::size_t rank = 16;         // sizes of a tensor
  std::int64_t ir_version = 13;  // of ONNX 1.20; ONNX Runtime 1.27 reads no newer
  std::vector<std::string> domains = {"", "ai.onnx", "ai.onnx.ml"};
};

// What a model is, without having run any of it.
struct Summary {
  std::int64_t ir_version = 0;
  std::map<std::string, std::int64_t> opsets;
  std::size_t nodes = 0, tensors = 0;
  std::size_t tensor_bytes = 0;
};

// Reads a model made by anybody and throws invalid, each fault naming the node or the tensor, unless it
//   is a model within `limits`, which are counted before memory is given to any of it;
//   is whole: no data in other files, no functions, no training, only operators of `limits.domains`;
//   has names that are unique, text and resolvable, and no cycle;
//   has tensors that hold as much data as their sizes say.
// Whether the operators exist and fit together is for ONNX Runtime to say. Foreign bytes are given to it only after
// this and only in a process that may do nothing else.
Summary check(BytesView model, const Limits& limits = {});

}  // namespace falaj::graph
