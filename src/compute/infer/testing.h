// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/graph/trees.h"
#include "compute/infer/session.h"
#include "compute/infer/view.h"
#include "foundation/base/bytes.h"

namespace falaj::infer {

// The runtime that ./setup obtained, loaded once for all tests of a program.
const Runtime& runtime();

// x [rows, 2] float32 -> y = 2 x + 1.
Bytes affine_model();
// x [rows, 64] float32 -> y [rows, 10]: two hidden layers of `hidden` with relu, weights from the seed.
Bytes network_model(std::size_t hidden = 256, std::uint64_t seed = 1);
// Trees that split evenly at random thresholds between -1 and 1, all of the same depth.
graph::TreeEnsemble random_trees(std::size_t trees, std::size_t depth, std::size_t features, std::size_t outputs,
                                 std::uint64_t seed);
// x [rows, features] float32 -> margins and predictions [rows, outputs].
Bytes trees_model(const graph::TreeEnsemble& trees);
// Numbers of a standard normal distribution.
std::vector<float> random_numbers(std::size_t count, std::uint64_t seed);

// ONNX's own models with what goes in and must come out, of Debian's libonnx-testdata: "node/test_abs" and so on; none
// when it is not installed. FALAJ_ONNX_CASES names another directory of the same form.
struct OnnxSet {
  std::vector<graph::Initialiser> inputs, outputs;  // in the order of the model's
};
std::vector<std::string> onnx_cases();
Bytes onnx_model(const std::string& name);
std::vector<OnnxSet> onnx_sets(const std::string& name);  // throws invalid when one holds no tensor
// Whether it is what was to come out: numbers within 1e-3 of it and 1e-5 of the largest; the rest exactly.
bool near_enough(const TensorView& made, const graph::Tensor& wanted);

// A view of numbers that stay where they are.
template <class T>
TensorView view_of(const std::vector<T>& values, std::initializer_list<std::int64_t> sizes) {
  return {graph::element_of<T>(), Shape(sizes), std::as_bytes(std::span(values)), {}};
}

}  // namespace falaj::infer
