// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/graph/transform.h"
#include "compute/recipe/recipe.h"

namespace falaj::train {

// A network as a list of simple layers. What trains it and what exports it walk the same list, so they cannot disagree;
// a pipeline is a list that was cut.
struct Layer {
  enum class Op {
    join,    // numbers, and an entry of a table for each id, side by side
    linear,  // weight [out, in], bias [out]
    relu,
    norm,     // of the row, with scale and shift
    dropout,  // while training
    keep,     // puts the input aside
    add,      // adds what was put aside last
    scale,    // x * a + b: back to the label's own unit
  };
  Op op = Op::relu;
  std::int64_t in = 0, out = 0;
  std::vector<std::size_t> weights;  // indices into Plan::weights
  double a = 0, b = 0;               // dropout: share a
};

struct Weight {
  enum class Init { zeros, ones, uniform };
  std::string name;
  std::vector<std::int64_t> sizes;
  Init init = Init::zeros;
  double bound = 0;    // uniform: -bound to bound
  bool decays = true;  // biases, norms and tables do not

  std::int64_t count() const;
};

struct Plan {
  std::vector<Layer> layers;
  std::vector<Weight> weights;
  std::int64_t inputs = 0, outputs = 0;

  std::int64_t parameters() const;
};

// `label_mean` and `label_deviation`: of what a regression learns.
Plan plan_network(const recipe::Network& network, const graph::Transform& transform, std::size_t outputs,
                  double label_mean = 0, double label_deviation = 1);

// Adds the layers as nodes; `weights[i]` are the values of Plan::weights[i]. Returns the name of what comes out, before
// any link.
std::string emit_layers(const Plan& plan, const std::vector<std::vector<float>>& weights, graph::Graph& graph,
                        const graph::Transform::Emitted& inputs);

}  // namespace falaj::train
