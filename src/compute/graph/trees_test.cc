// SPDX-License-Identifier: Apache-2.0
// Reading models of XGBoost by hand; compute/infer compares with XGBoost itself.
#include "compute/graph/trees.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/graph/ubjson.h"
#include "foundation/base/json.h"
#include "foundation/base/testing.h"

namespace falaj::graph {
namespace {

// One tree: x0 < 0.5 ? -1 : (x1 in {1, 3} ? 2 : 1); missing x0 goes right, missing x1 left.
json::value small_model() {
  return parse_json(R"({"learner": {
    "feature_names": ["a", "b"], "feature_types": ["float", "c"],
    "gradient_booster": {"name": "gbtree", "model": {
      "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": "1"},
      "tree_info": [0],
      "trees": [{"left_children": [1, -1, 3, -1, -1], "right_children": [2, -1, 4, -1, -1],
        "split_indices": [0, 0, 1, 0, 0], "split_conditions": [0.5, -1.0, 0, 1.0, 2.0],
        "default_left": [0, 0, 1, 0, 0], "split_type": [0, 0, 1, 0, 0],
        "categories_nodes": [2], "categories_segments": [0], "categories_sizes": [2], "categories": [3, 1],
        "tree_param": {"num_nodes": "5", "size_leaf_vector": "0"}}]}},
    "learner_model_param": {"base_score": "5E-1", "num_class": "0", "num_feature": "2", "num_target": "1"},
    "objective": {"name": "binary:logistic"}}, "version": [1, 7, 4]})");
}

TreeEnsemble parsed(const json::value& model) { return parse_xgboost(as_bytes(json::serialize(model))); }

TEST(Trees, FollowSplitsCategoriesAndMissingValues) {
  const auto trees = parsed(small_model());
  const float nothing = std::nanf("");
  const std::vector<float> rows = {0, 0, 0.5, 3, 0.5, 2, 1, nothing, nothing, 1, 1, -3, 1, 1e9F};
  std::vector<float> margins(7);
  trees.margins(rows, margins);
  EXPECT_THAT(margins, testing::ElementsAre(-1, 2, 1, 1, 2, 1, 1));
  std::vector<float> predictions(7);
  trees.predict(rows, predictions);
  EXPECT_FLOAT_EQ(predictions[1], 1 / (1 + std::exp(-2.0F)));
  EXPECT_THAT(trees.feature_names, testing::ElementsAre("a", "b"));
}

// Changes one place of the model, given as a JSON pointer.
TreeEnsemble after(std::string_view place, const json::value& value) {
  auto model = small_model();
  model.at_pointer(place) = value;
  return parsed(model);
}
TreeEnsemble after_in_tree(const std::string& place, const json::value& value) {
  return after("/learner/gradient_booster/model/trees/0/" + place, value);
}

TEST(Trees, RefusesModelsThatAreNotWhole) {
  EXPECT_ERROR(after("/learner/objective/name", "survival:cox"), Code::invalid);
  EXPECT_ERROR(after("/learner/gradient_booster/name", "gblinear"), Code::invalid);
  EXPECT_ERROR(after("/learner/learner_model_param/base_score", "x"), Code::invalid);
  EXPECT_ERROR(after("/learner/learner_model_param/base_score", "1"), Code::invalid);
  EXPECT_ERROR(after("/learner/learner_model_param/num_feature", "1"), Code::invalid);
  EXPECT_ERROR(after("/learner/learner_model_param/num_feature", "99999999999"), Code::invalid);
  EXPECT_ERROR(after("/learner/learner_model_param/num_target", "2"), Code::invalid);
  EXPECT_ERROR(after("/learner/gradient_booster/model/tree_info/0", 1), Code::invalid);
  EXPECT_ERROR(after("/learner/gradient_booster/model/tree_info", json::array{}), Code::invalid);
  EXPECT_ERROR(after_in_tree("left_children/0", 0), Code::invalid);  // a cycle
  EXPECT_ERROR(after_in_tree("left_children/0", 2), Code::invalid);  // two parents
  EXPECT_ERROR(after_in_tree("left_children/0", 5), Code::invalid);
  EXPECT_ERROR(after_in_tree("right_children/0", -1), Code::invalid);
  EXPECT_ERROR(after_in_tree("split_conditions", json::array{1.0}), Code::invalid);
  EXPECT_ERROR(after_in_tree("split_conditions/1", "x"), Code::invalid);
  EXPECT_ERROR(after_in_tree("split_indices/0", 2), Code::invalid);
  EXPECT_ERROR(after_in_tree("split_type/2", 0), Code::invalid);
  EXPECT_ERROR(after_in_tree("split_type/0", 1), Code::invalid);
  EXPECT_ERROR(after_in_tree("categories_sizes/0", 3), Code::invalid);
  EXPECT_ERROR(after_in_tree("categories_segments/0", -1), Code::invalid);
  EXPECT_ERROR(after_in_tree("categories_nodes/0", 9), Code::invalid);
  EXPECT_ERROR(after_in_tree("categories/0", -1), Code::invalid);
  EXPECT_ERROR(after_in_tree("tree_param/size_leaf_vector", "3"), Code::invalid);
  EXPECT_ERROR(parse_xgboost({}), Code::invalid);
  EXPECT_ERROR(parse_xgboost(as_bytes("{}")), Code::invalid);
  EXPECT_ERROR(parse_xgboost(as_bytes("{L\x7f\xff\xff\xff\xff\xff\xff\xff")), Code::invalid);
}

TEST(Trees, AnEnsembleIsCheckedBeforeItIsWritten) {
  TreeEnsemble trees{1, 1, {0}, {Tree{{TreeNode{0, 1, 1, 2}, TreeNode{}, TreeNode{}}, {}, 0}}, Link::identity, {}};
  Graph graph;
  const auto x = graph.add_input("x", Element::float32, {std::string(kRows), std::int64_t{1}});
  EXPECT_NO_THROW(trees.emit(graph, x));
  trees.trees[0].nodes[0].right = 1;
  EXPECT_ERROR(trees.emit(graph, x), Code::invalid);
  trees.trees[0].nodes[0].right = 2;
  trees.trees[0].nodes[1].value = INFINITY;
  EXPECT_ERROR(trees.emit(graph, x), Code::invalid);
  trees.trees[0].nodes[1].value = 0;
  trees.link = Link::softmax;
  EXPECT_ERROR(trees.emit(graph, x), Code::invalid);
}

TEST(Ubjson, ReadsWhatXgboostWrites) {
  using namespace std::string_literals;
  const auto text =
      "{L\0\0\0\0\0\0\0\1a[$d#L\0\0\0\0\0\0\0\2\x3f\x80\0\0\xc0\0\0\0L\0\0\0\0\0\0\0\1b[SL\0\0\0\0\0\0\0\2hi]i\1cTU\1dI\xff\xfe}"s;
  EXPECT_EQ(parse_ubjson(as_bytes(text)), parse_json(R"({"a": [1.0, -2.0], "b": ["hi"], "c": true, "d": -2})"));
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_ERROR(parse_ubjson(as_bytes(text.substr(0, size))), Code::invalid);
  EXPECT_ERROR(parse_ubjson(as_bytes(text + "Z")), Code::invalid);
  EXPECT_ERROR(parse_ubjson(as_bytes(std::string(1000, '['))), Code::invalid);
}

}  // namespace
}  // namespace falaj::graph
