// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/trees.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "foundation/base/error.h"

namespace falaj::infer {
namespace {

constexpr std::int32_t kBelowAll = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kAboveAll = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kPathMax = 4096;  // nodes from a root to a leaf: what follows them calls itself
constexpr std::uint32_t kDepthMax = 512;
constexpr std::size_t kChoicesMax = 1 << 18;  // of one tree: nodes that several lead to could make very many
constexpr std::size_t kPlacesMax = 1 << 16, kSlotsMax = 1 << 16;  // what Step::where has room for

// An integer that compares with others as its float does. Requires: a number.
std::int32_t ordered(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value + 0.0F);  // there is one zero
  return bits ^ ((bits >> 31) & kAboveAll);
}

enum class Mode { leaf, leq, lt, gte, gt, eq, neq };

std::optional<Mode> mode_of(std::string_view text) {
  constexpr std::pair<std::string_view, Mode> kModes[] = {
      {"LEAF", Mode::leaf},    {"BRANCH_LEQ", Mode::leq}, {"BRANCH_LT", Mode::lt},  {"BRANCH_GTE", Mode::gte},
      {"BRANCH_GT", Mode::gt}, {"BRANCH_EQ", Mode::eq},   {"BRANCH_NEQ", Mode::neq}};
  for (const auto& [name, mode] : kModes)
    if (name == text) return mode;
  return {};
}

// The node of an ONNX tree, its children as indices of the same tree.
struct GivenNode {
  Mode mode = Mode::leaf;
  std::uint32_t feature = 0;
  float value = 0;
  std::int32_t when_true = -1, when_false = -1;
  bool missing_is_true = false;
  std::uint32_t leaf = 0;  // which of all leaves
};

// A comparison of integers, or a leaf.
struct Choice {
  bool leaf = false;
  std::uint32_t slot = 0;
  std::int32_t threshold = 0;
  std::int32_t left = -1, right = -1;  // choices; or the leaf's number in left
};

std::size_t index(std::int32_t at) { return static_cast<std::size_t>(at); }

template <class T>
const std::vector<T>* list_of(const graph::Node& node, std::string_view name) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? nullptr : std::get_if<std::vector<T>>(&found->second);
}

}  // namespace

class TreesBuilder {
 public:
  TreesBuilder(const graph::Node& node, std::size_t outputs) : node_(node) { out_.outputs_ = outputs; }

  bool build() {
    if (!read_leaves() || !read_nodes()) return false;
    for (const auto& tree : given_)
      if (!add_tree(tree)) return false;
    finish_leaves();
    return true;
  }
  Trees take() { return std::move(out_); }

 private:
  using Place = std::pair<std::int64_t, std::int64_t>;  // tree and node, as ONNX numbers them

  // What each leaf adds, by where it is.
  bool read_leaves() {
    const bool classes = list_of<std::int64_t>(node_, "class_ids");
    const std::string of = classes ? "class_" : "target_";
    const auto* trees = list_of<std::int64_t>(node_, of + "treeids");
    const auto* nodes = list_of<std::int64_t>(node_, of + "nodeids");
    const auto* ids = list_of<std::int64_t>(node_, of + "ids");
    const auto* values = list_of<float>(node_, of + "weights");
    if (!trees || !nodes || !ids || !values) return false;
    if (nodes->size() != trees->size() || ids->size() != trees->size() || values->size() != trees->size()) return false;
    for (std::size_t at = 0; at < trees->size(); ++at) {
      if ((*ids)[at] < 0 || static_cast<std::size_t>((*ids)[at]) >= out_.outputs_) return false;
      if (!std::isfinite((*values)[at])) return false;
      const auto output = static_cast<std::uint32_t>((*ids)[at]);
      auto& list = weights_[{(*trees)[at], (*nodes)[at]}];
      for (const auto& weight : list)
        if (weight.output == output) return false;
      list.push_back({output, (*values)[at]});
    }
    return true;
  }

  bool read_nodes() {
    const auto* trees = list_of<std::int64_t>(node_, "nodes_treeids");
    const auto* ids = list_of<std::int64_t>(node_, "nodes_nodeids");
    const auto* features = list_of<std::int64_t>(node_, "nodes_featureids");
    const auto* modes = list_of<std::string>(node_, "nodes_modes");
    const auto* values = list_of<float>(node_, "nodes_values");
    const auto* when_true = list_of<std::int64_t>(node_, "nodes_truenodeids");
    const auto* when_false = list_of<std::int64_t>(node_, "nodes_falsenodeids");
    const auto* missing = list_of<std::int64_t>(node_, "nodes_missing_value_tracks_true");
    if (!trees || !ids || !features || !modes || !values || !when_true || !when_false || trees->empty()) return false;
    const std::size_t count = trees->size();
    for (const std::size_t size : {ids->size(), features->size(), modes->size(), values->size(), when_true->size(),
                                   when_false->size(), missing && !missing->empty() ? missing->size() : count})
      if (size != count) return false;
    std::map<std::int64_t, bool> seen;
    for (std::size_t first = 0, end = 0; first < count; first = end) {
      while (end < count && (*trees)[end] == (*trees)[first]) ++end;
      if (!seen.emplace((*trees)[first], true).second) return false;  // its nodes lie apart
      std::map<std::int64_t, std::int32_t> index;
      for (std::size_t at = first; at < end; ++at)
        if (!index.emplace((*ids)[at], static_cast<std::int32_t>(at - first)).second) return false;
      auto& tree = given_.emplace_back();
      for (std::size_t at = first; at < end; ++at) {
        const auto mode = mode_of((*modes)[at]);
        if (!mode) return false;
        GivenNode& to = tree.emplace_back();
        to.mode = *mode;
        if (*mode == Mode::leaf) {
          to.leaf = leaf_number({(*trees)[at], (*ids)[at]});
          continue;
        }
        const auto yes = index.find((*when_true)[at]), no = index.find((*when_false)[at]);
        if (yes == index.end() || no == index.end() || yes->second == 0 || no->second == 0) return false;
        if ((*features)[at] < 0 || (*features)[at] > (1 << 24) || std::isnan((*values)[at])) return false;
        to.feature = static_cast<std::uint32_t>((*features)[at]);
        to.value = (*values)[at];
        to.when_true = yes->second, to.when_false = no->second;
        to.missing_is_true = missing && !missing->empty() && (*missing)[at] != 0;
        out_.features_ = std::max<std::size_t>(out_.features_, to.feature + 1);
      }
    }
    return true;
  }

  std::uint32_t leaf_number(Place place) {
    const auto found = weights_.find(place);
    lists_.push_back(found == weights_.end() ? std::vector<Trees::Weight>() : found->second);
    return static_cast<std::uint32_t>(lists_.size() - 1);
  }

  std::uint32_t slot(std::uint32_t feature, bool missing_left) {
    const Trees::Slot wanted{feature, missing_left ? kBelowAll : kAboveAll};
    const auto [at, added] = slots_.emplace(wanted, static_cast<std::uint32_t>(out_.slots_.size()));
    if (added) out_.slots_.push_back(wanted);
    return at->second;
  }

  // ---- One tree: first as choices, then each where it is to lie.
  bool add_tree(const std::vector<GivenNode>& tree) {
    if (!is_tree(tree)) return false;
    choices_.clear();
    choice_of_.assign(tree.size(), -1);
    const std::int32_t root = choose(tree, 0);
    if (choices_.size() >= kChoicesMax) return false;
    std::vector<std::uint32_t> depths;  // children stand before their parents
    for (const Choice& choice : choices_)
      depths.push_back(choice.leaf ? 0 : 1 + std::max(depths[index(choice.left)], depths[index(choice.right)]));
    if (out_.slots_.size() > kSlotsMax || depths[index(root)] > kDepthMax) return false;
    const std::size_t first = out_.steps_.size();
    out_.firsts_.push_back(static_cast<std::uint32_t>(first));
    out_.depths_.push_back(depths[index(root)]);
    pairs_.clear();
    steps_.assign(2, {kBelowAll, 0});  // the first is nobody's: a leaf has one before it
    leaf_at_.assign(2, kNoLeaf);
    if (!place(root, 1)) return false;
    out_.steps_.insert(out_.steps_.end(), steps_.begin(), steps_.end());
    leaves_at_.insert(leaves_at_.end(), leaf_at_.begin(), leaf_at_.end());
    return out_.steps_.size() < (std::size_t{1} << 28);
  }

  bool place(std::int32_t which, std::size_t at) {
    const Choice& choice = choices_[index(which)];
    if (choice.leaf) {
      leaf_at_[at] = choice.left;
      steps_[at] = {kBelowAll, static_cast<std::uint32_t>(at - 1)};  // nothing is below: it goes right, to itself
      return true;
    }
    const auto [pair, added] =
        pairs_.emplace(std::pair(choice.left, choice.right), static_cast<std::uint32_t>(steps_.size()));
    const std::uint32_t child = pair->second;
    if (added) {
      if (steps_.size() + 2 > kPlacesMax) return false;
      steps_.resize(steps_.size() + 2);
      leaf_at_.resize(steps_.size(), kNoLeaf);
      if (!place(choice.left, child) || !place(choice.right, child + 1)) return false;
    }
    steps_[at] = {choice.threshold, choice.slot << 16 | child};
    return true;
  }

  // No way down comes back to where it was, or is too long.
  static bool is_tree(const std::vector<GivenNode>& tree) {
    enum : char { fresh, open, closed };
    std::vector<char> state(tree.size(), fresh);
    std::vector<std::int32_t> path = {0};
    while (!path.empty()) {
      const auto at = static_cast<std::size_t>(path.back());
      const GivenNode& node = tree[at];
      state[at] = open;
      std::int32_t next = -1;
      if (node.mode != Mode::leaf) {
        for (const std::int32_t child : {node.when_true, node.when_false}) {
          const char s = state[index(child)];
          if (s == open) return false;
          if (s == fresh && next < 0) next = child;
        }
      }
      if (next < 0) {
        state[at] = closed;
        path.pop_back();
      } else {
        path.push_back(next);
        if (path.size() > kPathMax) return false;
      }
    }
    return true;
  }

  std::int32_t add_choice(Choice choice) {
    if (choices_.size() >= kChoicesMax) return 0;  // given up: what comes back is not used
    choices_.push_back(choice);
    return static_cast<std::int32_t>(choices_.size() - 1);
  }

  std::int32_t choose(const std::vector<GivenNode>& tree, std::int32_t at) {
    if (choice_of_[index(at)] >= 0) return choice_of_[index(at)];
    if (choices_.size() >= kChoicesMax) return 0;
    const GivenNode& node = tree[index(at)];
    std::int32_t made = -1;
    if (node.mode == Mode::leaf) {
      made = add_choice({true, 0, 0, static_cast<std::int32_t>(node.leaf), -1});
    } else if (node.mode == Mode::eq || node.mode == Mode::neq) {
      made = choose_equal(tree, at);
    } else {
      // "x < t", or "x <= t" which is "x < the next"; ">=" and ">" are those with the sides changed.
      const bool turned = node.mode == Mode::gte || node.mode == Mode::gt;
      const bool next = node.mode == Mode::leq || node.mode == Mode::gt;
      const std::int32_t yes = choose(tree, node.when_true), no = choose(tree, node.when_false);
      made = add_choice({false, slot(node.feature, node.missing_is_true != turned),
                         ordered(node.value) + (next ? 1 : 0), turned ? no : yes, turned ? yes : no});
    }
    return choice_of_[index(at)] = made;
  }

  // Nodes that ask whether one feature equals this, else that, else that: the ranges of the feature in order, each with
  // where it leads, and a search among them.
  std::int32_t choose_equal(const std::vector<GivenNode>& tree, std::int32_t at) {
    const std::uint32_t feature = tree[index(at)].feature;
    std::map<std::int32_t, std::int32_t> values;  // where each leads
    std::int32_t missing = -1;
    const GivenNode* node = &tree[index(at)];
    while (true) {
      const bool turned = node->mode == Mode::neq;
      const std::int32_t equal = turned ? node->when_false : node->when_true;
      const std::int32_t other = turned ? node->when_true : node->when_false;
      values.emplace(ordered(node->value), equal);  // who asks first is answered
      // Not-a-number differs from everything, and is only ever taken to the true side on purpose.
      if (missing < 0 && node->missing_is_true && !turned) missing = equal;
      at = other;
      node = &tree[index(at)];
      if ((node->mode != Mode::eq && node->mode != Mode::neq) || node->feature != feature) break;
    }
    const std::int32_t rest = choose(tree, at);
    std::vector<Range> ranges = {{kBelowAll, rest}};
    for (const auto& [value, leads] : values) {
      const std::int32_t to = choose(tree, leads);
      if (ranges.back().from == value)
        ranges.back().to = to;
      else
        ranges.push_back({value, to});
      ranges.push_back({value + 1, rest});
    }
    const std::int32_t search = find_among(feature, ranges, 0, ranges.size());
    if (missing < 0) return search;
    const std::int32_t when_missing = choose(tree, missing);
    if (when_missing == rest) return search;
    return add_choice({false, slot(feature, true), kBelowAll + 1, when_missing, search});
  }

  struct Range {
    std::int32_t from;
    std::int32_t to;  // where it leads
  };
  std::int32_t find_among(std::uint32_t feature, const std::vector<Range>& ranges, std::size_t first, std::size_t end) {
    if (end - first == 1) return ranges[first].to;
    const std::size_t middle = first + (end - first) / 2;
    const std::int32_t left = find_among(feature, ranges, first, middle);
    const std::int32_t right = find_among(feature, ranges, middle, end);
    if (left == right) return left;
    return add_choice({false, slot(feature, false), ranges[middle].from, left, right});
  }

  // Leaves of one weight each, all of a tree for one sum, need no lists.
  void finish_leaves() {
    out_.values_.assign(out_.steps_.size(), 0);
    std::vector<bool> complete(out_.outputs_, false);
    for (std::size_t tree = 0; tree < out_.firsts_.size(); ++tree) {
      const std::size_t first = out_.firsts_[tree];
      const std::size_t end = tree + 1 < out_.firsts_.size() ? out_.firsts_[tree + 1] : out_.steps_.size();
      std::vector<std::size_t> leaves(out_.outputs_);  // that add to each
      std::size_t count = 0, weights = 0;
      for (std::size_t at = first; at < end; ++at) {
        if (leaves_at_[at] == kNoLeaf) continue;
        ++count;
        for (const auto& weight : lists_[index(leaves_at_[at])]) ++leaves[weight.output], ++weights;
      }
      const auto most = std::max_element(leaves.begin(), leaves.end());
      out_.targets_.push_back(static_cast<std::uint32_t>(most - leaves.begin()));
      if (weights != *most) out_.listed_ = true;
      for (std::size_t k = 0; k < leaves.size(); ++k) complete[k] = complete[k] || leaves[k] == count;
    }
    out_.complete_ = complete;
    for (const auto& list : lists_) {
      if (!out_.listed_) break;
      out_.leaves_.push_back(
          {static_cast<std::uint32_t>(out_.weights_.size()), static_cast<std::uint32_t>(list.size())});
      out_.weights_.insert(out_.weights_.end(), list.begin(), list.end());
    }
    for (std::size_t at = 0; at < leaves_at_.size(); ++at) {
      if (leaves_at_[at] == kNoLeaf) continue;
      const auto& list = lists_[index(leaves_at_[at])];
      out_.values_[at] = out_.listed_ ? std::bit_cast<float>(leaves_at_[at]) : list.empty() ? 0 : list[0].value;
    }
    // Whole groups of trees are taken at once; those that fill the last are not counted.
    for (std::size_t at = out_.depths_.size(); at % Trees::kTreesAtOnce != 0; ++at) out_.firsts_.push_back(0);
  }

  static constexpr std::int32_t kNoLeaf = -1;

  const graph::Node& node_;
  Trees out_;
  std::map<Place, std::vector<Trees::Weight>> weights_;  // as ONNX lists them
  std::vector<std::vector<GivenNode>> given_;            // trees
  std::vector<std::vector<Trees::Weight>> lists_;        // of leaves by their number
  std::map<Trees::Slot, std::uint32_t> slots_;
  std::vector<std::int32_t> leaves_at_;  // beside out_.steps_

  std::vector<Choice> choices_;          // of the tree at hand
  std::vector<std::int32_t> choice_of_;  // each of its nodes
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> pairs_;
  std::vector<Trees::Step> steps_;
  std::vector<std::int32_t> leaf_at_;
};

std::optional<Trees> Trees::of(const graph::Node& node, std::size_t outputs) {
  TreesBuilder builder(node, outputs);
  if (!builder.build()) return {};
  return builder.take();
}

std::size_t Trees::resident_bytes() const {
  return sizeof *this + steps_.size() * (sizeof(Step) + sizeof(float)) + weights_.size() * sizeof(Weight) +
         leaves_.size() * sizeof(Leaf) + slots_.size() * sizeof(Slot) +
         depths_.size() * (sizeof firsts_[0] + sizeof depths_[0] + sizeof targets_[0]);
}

}  // namespace falaj::infer
