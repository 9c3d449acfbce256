// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/trees.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::graph {
namespace {

constexpr std::string_view kLinkNames[] = {"identity", "logistic", "softmax", "exponential"};

void check_tree(const Tree& tree, std::size_t number, std::size_t features, std::size_t outputs) {
  const auto refuse = [&](std::string_view what) {
    throw Error(Code::invalid, fmt::format("tree {} {}", number, what));
  };
  if (tree.nodes.empty()) refuse("has no nodes");
  if (tree.output < 0 || static_cast<std::size_t>(tree.output) >= outputs) refuse("adds to no output");
  std::vector<bool> reached(tree.nodes.size());
  std::vector<std::int32_t> open = {0};
  std::size_t count = 0;
  while (!open.empty()) {
    const auto at = open.back();
    open.pop_back();
    if (at < 0 || static_cast<std::size_t>(at) >= tree.nodes.size()) refuse("has a child that is not there");
    if (reached[static_cast<std::size_t>(at)]) refuse("has a node with two parents");
    reached[static_cast<std::size_t>(at)] = true;
    ++count;
    const auto& node = tree.nodes[static_cast<std::size_t>(at)];
    if (!std::isfinite(node.value) && (node.is_leaf() || std::isnan(node.value)))
      refuse("has a value that is not finite");
    if (node.is_leaf()) continue;
    if (node.feature < 0 || static_cast<std::size_t>(node.feature) >= features)
      refuse("splits by a feature that is not there");
    if (node.categories != TreeNode::kNone) {
      if (node.categories < 0 || static_cast<std::size_t>(node.categories) >= tree.sets.size())
        refuse("has categories that are not there");
      const auto& set = tree.sets[static_cast<std::size_t>(node.categories)];
      if (!std::is_sorted(set.begin(), set.end(), std::less_equal<>())) refuse("has categories that do not ascend");
      // A float holds no larger ones exactly.
      if (!set.empty() && (set.front() < 0 || set.back() >= 1 << 24)) refuse("has a category out of 0 to 2^24");
    }
    open.push_back(node.left), open.push_back(node.right);
  }
  if (count != tree.nodes.size()) refuse("has nodes out of reach");
}

bool goes_left(const Tree& tree, const TreeNode& node, float value) {
  if (std::isnan(value)) return node.left_if_missing;
  if (node.categories == TreeNode::kNone) return value < node.value;
  if (!(value >= 0 && value < float{1 << 24})) return true;
  const auto& set = tree.sets[static_cast<std::size_t>(node.categories)];
  return !std::binary_search(set.begin(), set.end(), static_cast<std::int32_t>(value));
}

float leaf_of(const Tree& tree, const float* row) {
  const TreeNode* node = tree.nodes.data();
  while (!node->is_leaf()) {
    const bool left = goes_left(tree, *node, row[node->feature]);
    node = &tree.nodes[static_cast<std::size_t>(left ? node->left : node->right)];
  }
  return node->value;
}

// The lists of attributes that ai.onnx.ml has instead of trees.
struct TreeAttributes {
  std::vector<std::int64_t> tree_ids, node_ids, features, true_ids, false_ids, missing_true;
  std::vector<std::int64_t> target_trees, target_nodes, target_ids;
  std::vector<float> values, target_weights;
  std::vector<std::string> modes;

  void add(std::int64_t tree, std::int64_t id, std::string mode, std::int64_t feature, float value,
           std::int64_t if_true, std::int64_t if_false, bool missing_is_true) {
    tree_ids.push_back(tree), node_ids.push_back(id), modes.push_back(std::move(mode));
    features.push_back(feature), values.push_back(value);
    true_ids.push_back(if_true), false_ids.push_back(if_false), missing_true.push_back(missing_is_true);
  }

  // A set of categories is a chain of equalities: the first has the node's own number, the rest come behind the tree's.
  void add_set(std::int64_t tree, std::int64_t id, const TreeNode& node, const std::vector<std::int32_t>& set,
               std::int64_t& next) {
    if (set.empty()) {  // only a missing value may go right: nothing is below minus infinity
      add(tree, id, "BRANCH_LT", node.feature, -std::numeric_limits<float>::infinity(), node.right, node.left,
          !node.left_if_missing);
      return;
    }
    // A missing value follows the false branches to the left, or the first true one to the right.
    for (std::size_t k = 0; k < set.size(); ++k) {
      const std::int64_t after = k + 1 == set.size() ? node.left : next;
      add(tree, id, "BRANCH_EQ", node.feature, static_cast<float>(set[k]), node.right, after, !node.left_if_missing);
      if (k + 1 < set.size()) id = next++;
    }
  }

  void add_tree(std::int64_t number, const Tree& tree) {
    auto next = static_cast<std::int64_t>(tree.nodes.size());
    for (std::size_t at = 0; at < tree.nodes.size(); ++at) {
      const auto& node = tree.nodes[at];
      const auto id = static_cast<std::int64_t>(at);
      if (node.is_leaf()) {
        add(number, id, "LEAF", 0, 0, 0, 0, false);
        target_trees.push_back(number), target_nodes.push_back(id);
        target_ids.push_back(tree.output), target_weights.push_back(node.value);
      } else if (node.categories == TreeNode::kNone) {
        add(number, id, "BRANCH_LT", node.feature, node.value, node.left, node.right, node.left_if_missing);
      } else {
        add_set(number, id, node, tree.sets[static_cast<std::size_t>(node.categories)], next);
      }
    }
  }

  Attributes take(std::size_t outputs, const std::vector<float>& base) && {
    return {{"n_targets", static_cast<std::int64_t>(outputs)},
            {"aggregate_function", std::string("SUM")},
            {"post_transform", std::string("NONE")},
            {"base_values", base},
            {"nodes_treeids", std::move(tree_ids)},
            {"nodes_nodeids", std::move(node_ids)},
            {"nodes_featureids", std::move(features)},
            {"nodes_modes", std::move(modes)},
            {"nodes_values", std::move(values)},
            {"nodes_truenodeids", std::move(true_ids)},
            {"nodes_falsenodeids", std::move(false_ids)},
            {"nodes_missing_value_tracks_true", std::move(missing_true)},
            {"target_treeids", std::move(target_trees)},
            {"target_nodeids", std::move(target_nodes)},
            {"target_ids", std::move(target_ids)},
            {"target_weights", std::move(target_weights)}};
  }
};

}  // namespace

std::string_view name(Link link) { return kLinkNames[static_cast<std::size_t>(link)]; }

void TreeEnsemble::check() const {
  if (outputs < 1 || base.size() != outputs) throw Error(Code::invalid, "an ensemble of trees has a base per output");
  if (link == Link::softmax && outputs < 2) throw Error(Code::invalid, "softmax needs two classes at least");
  if (!feature_names.empty() && feature_names.size() != features)
    throw Error(Code::invalid, "an ensemble of trees has a name per feature, or none");
  for (std::size_t at = 0; at < trees.size(); ++at) check_tree(trees[at], at, features, outputs);
}

void TreeEnsemble::margins(std::span<const float> rows, std::span<float> out) const {
  const std::size_t count = out.size() / outputs;
  CHECK(count * outputs == out.size() && count * features == rows.size(), "whole rows, and room for each");
  for (std::size_t row = 0; row < count; ++row) std::copy(base.begin(), base.end(), out.data() + row * outputs);
  constexpr std::size_t kBlock = 64;  // a tree is in the cache for so many rows
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t end = std::min(count, first + kBlock);
    for (const auto& tree : trees) {
      float* to = out.data() + static_cast<std::size_t>(tree.output);
      for (std::size_t row = first; row < end; ++row) to[row * outputs] += leaf_of(tree, rows.data() + row * features);
    }
  }
}

void TreeEnsemble::predict(std::span<const float> rows, std::span<float> out) const {
  margins(rows, out);
  if (link == Link::logistic)
    for (float& v : out) v = 1.0F / (1.0F + std::exp(-v));
  if (link == Link::exponential)
    for (float& v : out) v = std::exp(v);
  if (link != Link::softmax) return;
  for (float* row = out.data(); row != out.data() + out.size(); row += outputs) {
    const float highest = *std::max_element(row, row + outputs);
    double sum = 0;
    for (std::size_t k = 0; k < outputs; ++k) sum += row[k] = std::exp(row[k] - highest);
    for (std::size_t k = 0; k < outputs; ++k) row[k] /= static_cast<float>(sum);
  }
}

TreeEnsemble::Emitted TreeEnsemble::emit(Graph& graph, const std::string& rows) const {
  check();
  TreeAttributes lists;
  for (std::size_t at = 0; at < trees.size(); ++at) lists.add_tree(static_cast<std::int64_t>(at), trees[at]);
  if (trees.empty()) lists.add_tree(0, Tree{{TreeNode{}}, {}, 0});  // the operator wants one: a leaf that adds nothing
  Emitted out;
  out.margins = graph.add_node("TreeEnsembleRegressor", {rows}, std::move(lists).take(outputs, base), kMl);
  out.predictions = out.margins;
  if (link == Link::logistic) out.predictions = graph.add_node("Sigmoid", {out.margins});
  if (link == Link::exponential) out.predictions = graph.add_node("Exp", {out.margins});
  if (link == Link::softmax) out.predictions = graph.add_node("Softmax", {out.margins}, {{"axis", std::int64_t{1}}});
  return out;
}

}  // namespace falaj::graph
