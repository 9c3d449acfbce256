// SPDX-License-Identifier: Apache-2.0
// XGBoost's own model files. Numbers that it keeps as text are read as text, and every index is checked.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "compute/graph/shown.h"
#include "compute/graph/trees.h"
#include "compute/graph/ubjson.h"
#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/base/text.h"

namespace falaj::graph {
namespace {

constexpr std::size_t kTreesMax = 1'000'000;
constexpr std::int64_t kXgboostFeaturesMax = 1'000'000;

[[noreturn]] void no_such_model(const std::string& what) {
  throw Error(Code::invalid, "reading an XGBoost model: " + what);
}

const json::value& member(const json::value& in, std::string_view name) {
  const auto* object = in.if_object();
  const auto* found = object ? object->if_contains(name) : nullptr;
  if (!found) no_such_model(fmt::format("'{}' is missing", name));
  return *found;
}
const json::array& list(const json::value& in, std::string_view name) {
  const auto* array = member(in, name).if_array();
  if (!array) no_such_model(fmt::format("'{}' is not a list", name));
  return *array;
}
std::string_view text_in(const json::value& in, std::string_view name) {
  const auto* text = member(in, name).if_string();
  if (!text) no_such_model(fmt::format("'{}' is not text", name));
  return *text;
}
// Parameters are whole numbers written as text.
std::int64_t parameter(const json::value& in, std::string_view name, std::int64_t least, std::int64_t most) {
  const auto number = parse_int(text_in(in, name));
  if (!number || *number < least || *number > most)
    no_such_model(fmt::format("'{}' is not a whole number of {} to {}", name, least, most));
  return *number;
}

double real_at(const json::array& from, std::size_t at, std::string_view name) {
  if (at >= from.size()) no_such_model(fmt::format("'{}' is too short", name));
  const auto& value = from[at];
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  no_such_model(fmt::format("'{}' holds something that is not a number", name));
}
std::int32_t whole_at(const json::array& from, std::size_t at, std::string_view name) {
  const auto* value = at < from.size() ? &from[at] : nullptr;
  if (value && value->is_bool()) return value->get_bool();
  const auto* whole = value ? value->if_int64() : nullptr;
  if (!whole || *whole < INT32_MIN || *whole > INT32_MAX)
    no_such_model(fmt::format("'{}' holds something that is not a whole number, or is too short", name));
  return static_cast<std::int32_t>(*whole);
}

// The lists of a tree, one entry per node.
struct TreeLists {
  explicit TreeLists(const json::value& tree)
      : left(list(tree, "left_children")),
        right(list(tree, "right_children")),
        conditions(list(tree, "split_conditions")),
        features(list(tree, "split_indices")),
        defaults(list(tree, "default_left")) {
    // Files of before categories have no split_type.
    if (const auto* types = tree.as_object().if_contains("split_type")) {
      if (!types->is_array()) no_such_model("'split_type' is not a list");
      split_types = &types->get_array();
    }
  }
  const json::array &left, &right, &conditions, &features, &defaults;
  const json::array* split_types = nullptr;
};

void read_categories(const json::value& from, Tree& tree) {
  const auto& nodes = list(from, "categories_nodes");
  const auto& segments = list(from, "categories_segments");
  const auto& sizes = list(from, "categories_sizes");
  const auto& categories = list(from, "categories");
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    const auto node = whole_at(nodes, at, "categories_nodes");
    if (node < 0 || static_cast<std::size_t>(node) >= tree.nodes.size()) no_such_model("categories of no node");
    const auto first = whole_at(segments, at, "categories_segments"), size = whole_at(sizes, at, "categories_sizes");
    if (first < 0 || size < 0 || static_cast<std::size_t>(first) + static_cast<std::size_t>(size) > categories.size())
      no_such_model("categories are out of range");
    std::vector<std::int32_t> set;
    for (std::int32_t k = 0; k < size; ++k)
      set.push_back(whole_at(categories, static_cast<std::size_t>(first + k), "categories"));
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
    tree.nodes[static_cast<std::size_t>(node)].categories = static_cast<std::int32_t>(tree.sets.size());
    tree.sets.push_back(std::move(set));
  }
}

Tree read_tree(const json::value& from, float weight) {
  const auto& parameters = member(from, "tree_param");
  if (parameter(parameters, "size_leaf_vector", 0, INT32_MAX) > 1)
    no_such_model("trees with several values in a leaf are not supported");
  const TreeLists lists(from);
  Tree tree;
  tree.nodes.resize(lists.left.size());
  if (tree.nodes.empty()) no_such_model("a tree has no nodes");
  for (std::size_t at = 0; at < tree.nodes.size(); ++at) {
    auto& node = tree.nodes[at];
    node.value = static_cast<float>(real_at(lists.conditions, at, "split_conditions"));
    const auto left = whole_at(lists.left, at, "left_children");
    if (left == TreeNode::kNone) {
      node.value *= weight;
      continue;
    }
    node.left = left;
    node.right = whole_at(lists.right, at, "right_children");
    node.feature = whole_at(lists.features, at, "split_indices");
    node.left_if_missing = whole_at(lists.defaults, at, "default_left") != 0;
    if (node.feature < 0) no_such_model("a split is of a negative feature");
  }
  if (lists.split_types && from.as_object().contains("categories_nodes")) read_categories(from, tree);
  for (std::size_t at = 0; at < tree.nodes.size(); ++at) {
    const bool by_category = lists.split_types && whole_at(*lists.split_types, at, "split_type") == 1;
    if (by_category) tree.nodes[at].value = 0;  // it has none: XGBoost writes not-a-number
    if (tree.nodes[at].is_leaf())
      tree.nodes[at].categories = TreeNode::kNone;
    else if (by_category != (tree.nodes[at].categories != TreeNode::kNone))
      no_such_model(by_category ? "a split by category has no categories" : "a split by value has categories");
  }
  return tree;
}

// Nodes that pruning cut off stay in the file; they are left out here.
Tree without_unreachable(const Tree& from) {
  Tree out;
  out.output = from.output;
  std::vector<std::int32_t> place(from.nodes.size(), TreeNode::kNone), order = {0};
  place[0] = 0;
  for (std::size_t done = 0; done < order.size(); ++done) {
    const auto& node = from.nodes[static_cast<std::size_t>(order[done])];
    if (node.is_leaf()) continue;
    for (const auto child : {node.left, node.right}) {
      if (child < 0 || static_cast<std::size_t>(child) >= place.size() ||
          place[static_cast<std::size_t>(child)] != TreeNode::kNone)
        no_such_model("a tree's nodes are not a tree");
      place[static_cast<std::size_t>(child)] = static_cast<std::int32_t>(order.size());
      order.push_back(child);
    }
  }
  for (const auto at : order) {
    TreeNode node = from.nodes[static_cast<std::size_t>(at)];
    if (!node.is_leaf()) {
      node.left = place[static_cast<std::size_t>(node.left)];
      node.right = place[static_cast<std::size_t>(node.right)];
    }
    if (node.categories != TreeNode::kNone) {
      out.sets.push_back(from.sets[static_cast<std::size_t>(node.categories)]);
      node.categories = static_cast<std::int32_t>(out.sets.size()) - 1;
    }
    out.nodes.push_back(node);
  }
  return out;
}

// What an objective does to the sum, and what its base score is before that.
struct Objective {
  std::string_view name;
  Link link;
  Link base;  // whose inverse makes a margin of the base score
};
constexpr Objective kObjectives[] = {
    {"reg:squarederror", Link::identity, Link::identity},
    {"reg:linear", Link::identity, Link::identity},
    {"reg:squaredlogerror", Link::identity, Link::identity},
    {"reg:pseudohubererror", Link::identity, Link::identity},
    {"reg:absoluteerror", Link::identity, Link::identity},
    {"reg:quantileerror", Link::identity, Link::identity},
    {"reg:logistic", Link::logistic, Link::logistic},
    {"binary:logistic", Link::logistic, Link::logistic},
    {"binary:logitraw", Link::identity, Link::identity},
    {"count:poisson", Link::exponential, Link::exponential},
    {"reg:gamma", Link::exponential, Link::exponential},
    {"reg:tweedie", Link::exponential, Link::exponential},
    {"multi:softprob", Link::softmax, Link::identity},
    {"multi:softmax", Link::softmax, Link::identity},
    {"rank:pairwise", Link::identity, Link::identity},
    {"rank:ndcg", Link::identity, Link::identity},
    {"rank:map", Link::identity, Link::identity},
};

const Objective& objective_of(const json::value& learner) {
  const auto name = text_in(member(learner, "objective"), "name");
  for (const auto& objective : kObjectives)
    if (objective.name == name) return objective;
  no_such_model(fmt::format("objective '{}' is not supported", shown(name)));
}

float base_margin(const json::value& parameters, Link base) {
  float score = 0;
  try {
    score = std::stof(std::string(text_in(parameters, "base_score")));  // "5E-1"
  } catch (const std::logic_error&) {
    no_such_model("'base_score' is not a number");
  }
  if (base == Link::logistic) {
    if (!(score > 0 && score < 1)) no_such_model("'base_score' is not a probability");
    return -std::log(1.0F / score - 1.0F);
  }
  if (base == Link::exponential && !(score > 0)) no_such_model("'base_score' is not positive");
  const float margin = base == Link::exponential ? std::log(score) : score;
  if (!std::isfinite(margin)) no_such_model("'base_score' is not finite");
  return margin;
}

void read_trees(const json::value& booster, std::size_t rounds, std::size_t outputs, TreeEnsemble& out) {
  const auto kind = text_in(booster, "name");
  if (kind != "gbtree" && kind != "dart") no_such_model(fmt::format("booster '{}' is not one of trees", shown(kind)));
  const bool dart = kind == "dart";
  const auto& model = member(dart ? member(booster, "gbtree") : booster, "model");
  const auto& trees = list(model, "trees");
  const auto& info = list(model, "tree_info");
  if (trees.size() > kTreesMax) no_such_model(fmt::format("more than {} trees", kTreesMax));
  const auto at_once = parameter(member(model, "gbtree_model_param"), "num_parallel_tree", 1, 1'000'000);
  std::size_t count = trees.size();
  if (rounds > 0) count = std::min(count, rounds * static_cast<std::size_t>(at_once) * outputs);
  const json::array none;
  const auto& weights = dart ? list(booster, "weight_drop") : none;
  for (std::size_t at = 0; at < count; ++at) {
    const float weight = dart ? static_cast<float>(real_at(weights, at, "weight_drop")) : 1.0F;
    Tree tree = without_unreachable(read_tree(trees[at], weight));
    tree.output = whole_at(info, at, "tree_info");
    out.trees.push_back(std::move(tree));
  }
}

// XGBoost writes not-a-number as NaN, which is no JSON; null is.
std::string with_null_for_nan(std::string_view text) {
  std::string out(text);
  bool quoted = false;
  for (std::size_t at = 0; at < out.size(); ++at) {
    if (out[at] == '"') quoted = !quoted;
    if (quoted && out[at] == '\\') ++at;
    if (!quoted && out[at] == 'N' && out.compare(at, 3, "NaN") == 0) out.replace(at, 3, "null");
  }
  return out;
}

json::value read_document(BytesView model) {
  // {" or { and space is text; in binary a key begins with its length, L or another integer.
  const auto text = as_text(model);
  if (text.size() < 2 || text[0] != '{') no_such_model("it is neither JSON nor binary JSON");
  const bool is_text =
      text[1] == '"' || text[1] == ' ' || text[1] == '\n' || text[1] == '\r' || text[1] == '\t' || text[1] == '}';
  return is_text ? parse_json(with_null_for_nan(text)) : parse_ubjson(model);
}

}  // namespace

TreeEnsemble parse_xgboost(BytesView model, std::size_t rounds) {
  const json::value document = read_document(model);
  const auto& learner = member(document, "learner");
  const auto& parameters = member(learner, "learner_model_param");
  const auto& objective = objective_of(learner);
  TreeEnsemble out;
  out.features = static_cast<std::size_t>(parameter(parameters, "num_feature", 0, kXgboostFeaturesMax));
  const auto classes = static_cast<std::size_t>(parameter(parameters, "num_class", 0, 100'000));
  const bool targets_known = parameters.as_object().contains("num_target");
  if (targets_known && parameter(parameters, "num_target", 0, 100'000) > 1)
    no_such_model("models of several targets are not supported");
  out.outputs = std::max<std::size_t>(classes, 1);
  out.link = objective.link;
  out.base.assign(out.outputs, base_margin(parameters, objective.base));
  if (const auto* names = learner.as_object().if_contains("feature_names"); names && names->is_array()) {
    for (const auto& name : names->get_array())
      if (name.is_string() && is_utf8(name.get_string())) out.feature_names.emplace_back(name.get_string());
    if (out.feature_names.size() != out.features) out.feature_names.clear();
  }
  read_trees(member(learner, "gradient_booster"), rounds, out.outputs, out);
  out.check();
  return out;
}

}  // namespace falaj::graph
