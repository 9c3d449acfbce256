// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/graph/transform.h"
#include "compute/loader/images.h"
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
    // Of images, [rows, channels, height, width]:
    image,       // [rows, height, width, channels], 0 to 1, with its channels first
    conv,        // weight [out, in / groups, kernel, kernel]; at the edges is 0
    batch_norm,  // of each channel, with scale, shift and the mean and variance that stand for a batch's own later
    relu6,
    silu,
    max_pool,  // of 2 by 2 pixels
    average,   // of all pixels: [rows, channels]
    flatten,   // to [rows, channels * height * width]
  };
  Op op = Op::relu;
  std::int64_t in = 0, out = 0;                     // numbers of a row; channels
  std::vector<std::size_t> weights;                 // indices into Plan::weights
  double a = 0, b = 0;                              // dropout: share a
  std::int64_t kernel = 0, stride = 1, groups = 1;  // conv
  // When ranks have a slice of it each (parts.h): of what comes out of it, or of what goes in, which is then summed up.
  enum class Split { none, out, in };
  Split split = Split::none;
};

struct Weight {
  enum class Init { zeros, ones, uniform };
  std::string name;
  std::vector<std::int64_t> sizes;
  Init init = Init::zeros;
  double bound = 0;    // uniform: -bound to bound
  bool decays = true;  // biases, norms and tables do not
  bool learns = true;  // else it has no gradient: means and variances of batches, which forward() keeps

  std::int64_t count() const;
};

struct Plan {
  std::vector<Layer> layers;
  std::vector<Weight> weights;
  std::int64_t inputs = 0, outputs = 0;
  std::int64_t widest = 0;  // numbers of a row where there are most of them: what memory is needed for
  std::optional<loader::Image> image;

  std::int64_t parameters() const;
};

inline constexpr double kBatchNormEpsilon = 1e-5, kBatchNormMomentum = 0.1;

// `label_mean` and `label_deviation`: of what a regression learns. `image`: what rows are, when they are images.
// Throws invalid when the network is for something else.
Plan plan_network(const recipe::Network& network, const graph::Transform& transform, std::size_t outputs,
                  double label_mean = 0, double label_deviation = 1, const std::optional<loader::Image>& image = {});

// Adds the layers as nodes; `weights[i]` are the values of Plan::weights[i]. Of images, `inputs.floats` is [rows,
// height, width, channels]. Returns the name of what comes out, before any link.
std::string emit_layers(const Plan& plan, const std::vector<std::vector<float>>& weights, graph::Graph& graph,
                        const graph::Transform::Emitted& inputs);

}  // namespace falaj::train
