// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compute/graph/graph.h"
#include "compute/graph/transform.h"
#include "compute/loader/packed.h"
#include "compute/loader/prepare.h"
#include "compute/recipe/recipe.h"
#include "compute/train/checkpoint.h"
#include "compute/train/profile.h"
#include "foundation/sys/clock.h"

namespace falaj::train {

class Gang;

using loader::Objective;
using loader::Packed;
using loader::Part;
using loader::Problem;
using loader::RowBlock;
using loader::Rows;

using Look = Rows::Look;

// A model that has learned. One thread at a time.
class Model {
 public:
  virtual ~Model() = default;
  // Problem::outputs() numbers a row: a probability of class 1, of each class, or the value itself. Calls `look` now
  // and then; what that throws is thrown on.
  virtual std::vector<float> predict(const Packed& rows, const Look& look = {}) = 0;
  // Adds what makes predictions of a transform's outputs, and returns their name: [rows, outputs] tensor(float).
  virtual std::string emit(graph::Graph& graph, const graph::Transform::Emitted& inputs) = 0;
  struct Importance {
    std::string feature;
    double share = 0;  // of all; 0 to 1
  };
  virtual std::vector<Importance> importance() { return {}; }  // most important first; none when it is not known
};

// What happened so far, told as it happens.
struct Told {
  std::size_t step = 0, steps = 0;  // rounds of trees, steps of a network
  std::vector<std::pair<std::string, double>> metrics;
  std::vector<std::pair<std::string, double>> aside;  // of the work, not of the model: where the time went
};

// What a training has around it.
struct Surroundings {
  const sys::Clock& clock;
  Checkpoints& checkpoints;
  std::function<void(const Told&)> tell;
  std::function<bool()> must_stop;  // somebody wants the place: save what was learned, and go
  int threads = 1;
  Gang* gang = nullptr;  // null: alone
  Profile* profile = nullptr;
  std::int64_t memory_bytes = std::int64_t{4} << 30;
  Look look = {};  // called now and then between steps; throws Stopped when somebody wants the place
  std::function<bool()> time_is_up = [] { return false; };  // the best so far is enough

  void enter(std::string_view phase) const {
    if (profile) profile->enter(phase);
  }
};

// Thrown when must_stop() was obeyed: what was learned is in the checkpoint.
struct Stopped {};

// What boosting keeps in memory of each row, for each of its outputs, and of each value; `features`: values of a row.
inline constexpr std::int64_t kTreeRowBytes = 32, kTreeValueBytes = 2;
std::int64_t tree_bytes(const Problem& problem, std::size_t features);
bool trees_fit(const Problem& problem, std::size_t features, std::int64_t memory_bytes);

// Throws invalid when there is no such device as the recipe asks for: what was given a GPU is not to run slowly
// without.
void check_device(const recipe::Training& training);

// Learns until the recipe says that it is enough. Goes on from the newest checkpoint of the same recipe.
std::unique_ptr<Model> train_trees(const recipe::Training& training, const Problem& problem,
                                   const graph::Transform& transform, const Rows::Parts& parts, Surroundings& around);
std::unique_ptr<Model> train_network(const recipe::Training& training, const Problem& problem,
                                     const graph::Transform& transform, const Rows::Parts& parts, Surroundings& around);

}  // namespace falaj::train
