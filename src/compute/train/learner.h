// SPDX-License-Identifier: Apache-2.0
// Private to compute/train, as tensors.h is.
#pragma once

#include <cstdint>
#include <memory>

#include "compute/recipe/recipe.h"
#include "compute/train/gang.h"
#include "compute/train/loss_scale.h"
#include "compute/train/model.h"
#include "compute/train/tensors.h"

namespace falaj::train {

struct Step {
  std::uint64_t number = 0;  // from 0, over all epochs
  double rate = 0;
  bool whole = true;  // after these rows the gradient is complete; else more are to be added to it
};

// What somebody wants after a step.
struct Wish {
  bool stop = false;  // to save and go
  bool save = false;
  bool any() const { return stop || save; }
};

struct Learned {
  double loss = 0;  // of the step's rows; of one's own where nobody waits for the others
  Wish wish;        // of all ranks: they are told at the same step, where steps are everybody's
};

// What an optimiser knows of the whole network.
struct OptimiserState {
  Tensor first, second;
  std::uint64_t steps = 0;
  LossScale scale = {};
};

// How ranks make new weights of the rows of a step: an implementation for each way to share the work. All ranks call
// the same functions in the same order. The weights and moments of the whole network are what they have in common: a
// checkpoint holds nothing else, so any number of ranks goes on from it, in any way.
class Learner {
 public:
  // Requires: all of it outlives the learner.
  struct Setting {
    const recipe::Training& training;
    const Plan& plan;
    Weights& weights;  // of the whole network; a learner keeps its own where it has a part only
    Objective objective;
    double deviation;  // of a regression's label
    const Packed& rows;
    const Surroundings& around;
    Gang& gang;
  };
  virtual ~Learner() = default;

  // Which part of each step's rows is mine. No parts: none of them, I serve().
  struct Share {
    std::size_t part = 0, parts = 1;
  };
  virtual Share share() const = 0;

  virtual Learned learn(const RowBlock& rows, const Step& step, Wish mine) = 0;
  virtual Wish serve();                  // works for those who learn until they have paused
  virtual void pause() {}                // between steps: when learn() told of a wish, or there are no more rows
  virtual void collect() {}              // the whole network's weights are everywhere
  virtual OptimiserState moments() = 0;  // of the whole network
  virtual void restore(
      const OptimiserState& moments) = 0;  // goes on from these, and the whole network's weights as they are

 protected:
  explicit Learner(const Setting& setting) : setting_(setting), network_(setting.training.network) {}

  // Chance depends on the place alone: who goes on from a checkpoint draws the same.
  std::uint64_t seed_of(const Step& step, std::size_t part) const {
    return (static_cast<std::uint64_t>(setting_.training.seed) + (part << 32)) * 1'000'003 + step.number;
  }

  const Setting setting_;
  const recipe::Network& network_;
};

// As training.parallel says. Throws invalid when this network cannot be shared so.
std::unique_ptr<Learner> make_learner(const Learner::Setting& setting);
// One for each way.
std::unique_ptr<Learner> make_data_learner(const Learner::Setting& setting);
std::unique_ptr<Learner> make_server_learner(const Learner::Setting& setting);
std::unique_ptr<Learner> make_part_learner(const Learner::Setting& setting);  // pipeline and tensor

inline std::span<float> floats_of(const Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace falaj::train
