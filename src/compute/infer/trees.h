// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compute/graph/graph.h"

namespace falaj::infer {

// An ensemble of trees made for running: several rows, or several trees of one row, take their steps at once.
//
// Every split of ONNX is written as comparisons of whole numbers: a float becomes an integer of the same order, so
// "<=" is "<" of the next one, and a missing value becomes less or more than everything, as the split wants it (each
// feature is kept in the form its splits ask for: a *slot*). A chain of equalities becomes a search among ranges. The
// two children of a split lie side by side and a leaf leads to itself, so a step is the same few instructions wherever
// a row stands, and a tree is as many steps as it is deep.
class Trees {
 public:
  // One step: stay left of the pair at `child` when the slot's number is below `threshold`, else go right.
  struct Step {
    std::int32_t threshold;
    std::uint32_t where;  // slot << 16 | child, counted from the tree's first step
  };
  static_assert(sizeof(Step) == 8);

  // What one slot of a row is made from.
  struct Slot {
    std::uint32_t feature = 0;
    std::int32_t missing = 0;  // what not-a-number becomes
    friend auto operator<=>(const Slot&, const Slot&) = default;
  };

  // Of an operator TreeEnsembleRegressor or TreeEnsembleClassifier: the splits and what its leaves add to which of
  // `outputs` sums. Nothing when there is something in it that this does not know, or that is wrong: then ONNX Runtime
  // runs it, or says what is wrong.
  static std::optional<Trees> of(const graph::Node& node, std::size_t outputs);

  std::size_t features() const { return features_; }  // a row has that many at least
  std::size_t outputs() const { return outputs_; }
  std::size_t trees() const { return depths_.size(); }
  std::size_t resident_bytes() const;
  // Whether every row gets something added to this sum.
  bool completes(std::size_t output) const { return complete_[output]; }

  // Adds to out[row * outputs() + k] what the leaves say, tree after tree, in float, as the reference does.
  // Requires: rows of `stride` numbers, at least features(); sums are set to what they start from.
  void add(std::span<const float> rows, std::size_t stride, std::span<float> sums) const;

  // Which instructions it uses; add() finds out once which are the fastest here. The results are the same.
  enum class Lanes { plain, avx2, avx512 };
  static Lanes lanes();  // the widest that this machine has
  void add_with(Lanes lanes, std::span<const float> rows, std::size_t stride, std::span<float> sums) const;

 private:
  friend class TreesBuilder;
  friend class TreesRun;

  static constexpr std::size_t kTreesAtOnce = 64;
  void check_room(std::span<const float> rows, std::size_t stride, std::span<const float> sums) const;

  struct Weight {  // what a leaf adds when it adds to several sums, or none
    std::uint32_t output;
    float value;
  };
  struct Leaf {
    std::uint32_t first = 0, count = 0;  // of weights_
  };

  std::size_t features_ = 0, outputs_ = 1;
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
  std::vector<float> values_;          // of leaves, beside steps_; with `listed_` the bits of an index of leaves_
  std::vector<std::uint32_t> firsts_;  // of each tree: its first step, which is unused; the next is its root. Filled up
                                       // to whole groups with the first tree
  std::vector<std::uint32_t> depths_;
  std::vector<std::uint32_t> targets_;  // the sum each tree adds to, unless listed_
  bool listed_ = false;                 // leaves have lists of weights
  std::vector<Leaf> leaves_;
  std::vector<Weight> weights_;
  std::vector<bool> complete_;
};

}  // namespace falaj::infer
