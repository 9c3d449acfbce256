// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/graph/graph.h"
#include "foundation/base/bytes.h"

namespace falaj::graph {

// How the sum of the leaves becomes a prediction.
enum class Link { identity, logistic, softmax, exponential };
std::string_view name(Link link);

// A leaf has no feature and its value is what it adds. A split sends a row left when its feature is below the value; by
// `left_if_missing` when it is not a number; and where there are categories, right when it is one of those.
struct TreeNode {
  static constexpr std::int32_t kNone = -1;

  std::int32_t feature = kNone;
  float value = 0;
  std::int32_t left = kNone, right = kNone;
  std::int32_t categories = kNone;  // index of the set in Tree::sets
  bool left_if_missing = false;

  bool is_leaf() const { return feature == kNone; }
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

struct Tree {
  std::vector<TreeNode> nodes;                  // the first is the root
  std::vector<std::vector<std::int32_t>> sets;  // sorted categories
  std::int32_t output = 0;                      // which of the outputs its leaves add to
  friend bool operator==(const Tree&, const Tree&) = default;
};

// Gradient-boosted trees or a forest, of whichever trainer.
struct TreeEnsemble {
  std::size_t features = 0;
  std::size_t outputs = 1;  // classes when the link is softmax
  std::vector<float> base;  // per output, added before the link
  std::vector<Tree> trees;
  Link link = Link::identity;
  std::vector<std::string> feature_names;  // empty, or one per feature
  friend bool operator==(const TreeEnsemble&, const TreeEnsemble&) = default;

  // Throws invalid unless every index is in range and every tree is one: no node twice, none out of reach.
  void check() const;

  // Rows of `features` numbers one after the other, not-a-number where one is missing; `outputs` numbers per row come
  // out. Adds leaves in the order of the trees, in float, which is what XGBoost does: equal to it bit by bit before the
  // link. Simple rather than fast.
  void margins(std::span<const float> rows, std::span<float> out) const;
  void predict(std::span<const float> rows, std::span<float> out) const;  // after the link

  // Adds the ensemble as ai.onnx.ml TreeEnsembleRegressor and its link; `rows` names a [rows, features] tensor(float).
  // A regressor for classes too: it gives margins of any number of classes as one tensor. A set of categories becomes a
  // chain of equalities whose true branches share one child.
  struct Emitted {
    std::string margins, predictions;  // names of [rows, outputs] tensor(float)
  };
  Emitted emit(Graph& graph, const std::string& rows) const;
};

// Reads what XGBoosterSaveModelToBuffer or XGBoosterSaveModel of XGBoost 1.6 to 2.1 wrote as "json" or "ubj" (told
// apart by the bytes). Boosters gbtree and dart. `rounds`: only the first so many, 0 all of them; the best iteration of
// early stopping is best + 1 rounds. Throws invalid, saying what of the model is wrong or not supported.
TreeEnsemble parse_xgboost(BytesView model, std::size_t rounds = 0);

}  // namespace falaj::graph
