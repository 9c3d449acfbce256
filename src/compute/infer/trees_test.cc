// SPDX-License-Identifier: Apache-2.0
#include "compute/infer/trees.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/infer/model.h"
#include "compute/infer/testing.h"
#include "foundation/base/testing.h"

namespace falaj::infer {
namespace {

using graph::Element;

constexpr Trees::Lanes kAllLanes[] = {Trees::Lanes::plain, Trees::Lanes::avx2, Trees::Lanes::avx512};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An operator of ONNX as the lists of its attributes, grown at random: every mode, values that hit thresholds exactly.
class RandomOperator {
 public:
  struct Wanted {
    std::size_t trees = 5, depth = 4, features = 6, outputs = 1;
    bool classifier = false, lists = false, all_modes = true, missing = true;
  };
  RandomOperator(const Wanted& wanted, std::uint64_t seed) : wanted_(wanted), random_(seed) {
    for (std::size_t tree = 0; tree < wanted.trees; ++tree) {
      next_ = 0;
      grow(static_cast<std::int64_t>(tree), 0);
    }
  }

  graph::Node node(std::vector<std::string> inputs, std::vector<std::string> outputs) const {
    graph::Node out{wanted_.classifier ? "TreeEnsembleClassifier" : "TreeEnsembleRegressor",
                    std::string(graph::kMl),
                    "trees",
                    std::move(inputs),
                    std::move(outputs),
                    {}};
    const std::string of = wanted_.classifier ? "class_" : "target_";
    out.attributes = {{"nodes_treeids", tree_ids_},
                      {"nodes_nodeids", node_ids_},
                      {"nodes_featureids", features_},
                      {"nodes_modes", modes_},
                      {"nodes_values", values_},
                      {"nodes_truenodeids", when_true_},
                      {"nodes_falsenodeids", when_false_},
                      {"nodes_missing_value_tracks_true", missing_},
                      {of + "treeids", leaf_trees_},
                      {of + "nodeids", leaf_nodes_},
                      {of + "ids", leaf_ids_},
                      {of + "weights", leaf_weights_}};
    if (wanted_.classifier) {
      std::vector<std::int64_t> labels;
      for (std::size_t k = 0; k < wanted_.outputs; ++k) labels.push_back(static_cast<std::int64_t>(10 * k + 3));
      out.attributes["classlabels_int64s"] = labels;
    } else {
      out.attributes["n_targets"] = static_cast<std::int64_t>(wanted_.outputs);
    }
    return out;
  }

  // What the specification says, node by node.
  void walk(const float* row, float* sums) const {
    for (std::size_t tree = 0; tree < wanted_.trees; ++tree) {
      std::int64_t id = 0;
      while (true) {
        const std::size_t at = find(static_cast<std::int64_t>(tree), id);
        if (modes_[at] == "LEAF") break;
        const float x = row[features_[at]], t = values_[at];
        const std::string& mode = modes_[at];
        const bool yes = mode == "BRANCH_LEQ"   ? x <= t
                         : mode == "BRANCH_LT"  ? x < t
                         : mode == "BRANCH_GTE" ? x >= t
                         : mode == "BRANCH_GT"  ? x > t
                         : mode == "BRANCH_EQ"  ? x == t
                                                : x != t;
        id = yes || (std::isnan(x) && missing_[at] != 0) ? when_true_[at] : when_false_[at];
      }
      for (std::size_t at = 0; at < leaf_ids_.size(); ++at)
        if (leaf_trees_[at] == static_cast<std::int64_t>(tree) && leaf_nodes_[at] == id)
          sums[leaf_ids_[at]] += leaf_weights_[at];
    }
  }

  std::vector<float> rows(std::size_t count) {
    std::vector<float> out(count * wanted_.features);
    for (float& v : out) v = value(true);
    return out;
  }

 private:
  float value(bool missing) {
    constexpr float kEdges[] = {0.0F, -0.0F, kInfinity, -kInfinity, 1e-42F, -1e-42F, 1.0F, 2.0F, 3.0F};
    const auto pick = random_() % 10;
    if (pick == 0 && missing) return std::numeric_limits<float>::quiet_NaN();
    if (pick < 6) return kEdges[random_() % std::size(kEdges)];
    return static_cast<float>(static_cast<double>(random_() % 2000) / 500 - 2);
  }

  std::size_t find(std::int64_t tree, std::int64_t id) const {
    for (std::size_t at = 0; at < node_ids_.size(); ++at)
      if (tree_ids_[at] == tree && node_ids_[at] == id) return at;
    ADD_FAILURE() << "no node " << id << " in tree " << tree;
    return 0;
  }

  std::int64_t grow(std::int64_t tree, std::size_t depth) {
    constexpr const char* kModes[] = {"BRANCH_LT", "BRANCH_LEQ", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"};
    const std::int64_t id = next_++;
    const std::size_t at = node_ids_.size();
    const bool leaf = depth == wanted_.depth || (depth > 0 && random_() % 5 == 0);
    tree_ids_.push_back(tree), node_ids_.push_back(id);
    features_.push_back(static_cast<std::int64_t>(random_() % wanted_.features));
    values_.push_back(leaf ? 0 : value(false));
    missing_.push_back(wanted_.missing && random_() % 2 == 0);
    modes_.push_back(leaf ? "LEAF" : kModes[random_() % (wanted_.all_modes ? 6 : 1)]);
    when_true_.push_back(0), when_false_.push_back(0);
    if (leaf) {
      add_leaf(tree, id);
      return id;
    }
    // A chain of questions for the same feature, now and then.
    if (depth > 0 && random_() % 3 == 0) features_[at] = features_[at - 1];
    const auto yes = grow(tree, depth + 1);
    const auto no = grow(tree, depth + 1);
    when_true_[at] = yes, when_false_[at] = no;
    return id;
  }

  void add_leaf(std::int64_t tree, std::int64_t id) {
    for (std::size_t k = 0; k < wanted_.outputs; ++k) {
      if (!wanted_.lists && k != static_cast<std::size_t>(tree) % wanted_.outputs) continue;
      leaf_trees_.push_back(tree), leaf_nodes_.push_back(id), leaf_ids_.push_back(static_cast<std::int64_t>(k));
      leaf_weights_.push_back(static_cast<float>(static_cast<double>(random_() % 20'000) / 10'000 - 1));
    }
  }

  Wanted wanted_;
  std::mt19937_64 random_;
  std::int64_t next_ = 0;
  std::vector<std::int64_t> tree_ids_, node_ids_, features_, when_true_, when_false_, missing_;
  std::vector<std::int64_t> leaf_trees_, leaf_nodes_, leaf_ids_;
  std::vector<float> values_, leaf_weights_;
  std::vector<std::string> modes_;
};

std::vector<float> sums_of(const Trees& trees, Trees::Lanes lanes, const std::vector<float>& rows, std::size_t width) {
  std::vector<float> out(rows.size() / width * trees.outputs());
  trees.add_with(lanes, rows, width, out);
  return out;
}

bool can(Trees::Lanes lanes) { return lanes <= Trees::lanes(); }

TEST(Trees, WalkAsTheSpecificationSays) {
  for (std::uint64_t seed = 0; seed < repeats(std::uint64_t{120}); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const RandomOperator::Wanted wanted = {.trees = 1 + random() % 9,
                                           .depth = random() % 9,
                                           .features = 1 + random() % 7,
                                           .outputs = 1 + random() % 3,
                                           .lists = random() % 2 == 0};
    RandomOperator given(wanted, seed);
    const auto trees = Trees::of(given.node({"x"}, {"y"}), wanted.outputs);
    ASSERT_TRUE(trees);
    EXPECT_EQ(trees->trees(), wanted.trees);
    for (const std::size_t count : {1U, 5U, 8U, 23U, 64U, 70U}) {
      const auto rows = given.rows(count);
      std::vector<float> expected(count * wanted.outputs);
      for (std::size_t row = 0; row < count; ++row)
        given.walk(&rows[row * wanted.features], &expected[row * wanted.outputs]);
      for (const auto lanes : kAllLanes) {
        if (!can(lanes)) continue;
        ASSERT_EQ(sums_of(*trees, lanes, rows, wanted.features), expected) << count << " rows, " << int(lanes);
      }
    }
  }
}

// Ours, with categories and missing values: bit by bit what the reference says.
TEST(Trees, AddAsTheReferenceDoes) {
  constexpr std::size_t kNumbers = 10;  // the features behind are categories: whole numbers
  auto ensemble = random_trees(70, 6, 20, 3, 5);
  std::mt19937_64 random(6);
  for (auto& tree : ensemble.trees) {
    for (auto& node : tree.nodes) {
      if (node.is_leaf() || node.feature < static_cast<std::int32_t>(kNumbers)) continue;
      node.categories = static_cast<std::int32_t>(tree.sets.size());
      auto& set = tree.sets.emplace_back();
      for (std::int32_t category = 0; category < 40; ++category)
        if (random() % 3 == 0) set.push_back(category);
    }
  }
  graph::Graph graph;
  const auto x = graph.add_input("x", Element::float32, {std::string(graph::kRows), std::int64_t{20}});
  ensemble.emit(graph, x);
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                  [](const auto& node) { return node.op == "TreeEnsembleRegressor"; });
  const auto trees = Trees::of(*found, 3);
  ASSERT_TRUE(trees);
  for (const std::size_t count : {1U, 7U, 200U}) {
    std::vector<float> rows = random_numbers(count * 20, 7);
    for (std::size_t at = 0; at < rows.size(); ++at) {
      if (at % 20 >= kNumbers) rows[at] = static_cast<float>(random() % 45) - 2;
      if (random() % 10 == 0) rows[at] = std::nanf("");
    }
    std::vector<float> expected(count * 3);
    ensemble.margins(rows, expected);
    for (const auto lanes : kAllLanes) {
      if (!can(lanes)) continue;
      std::vector<float> sums(count * 3, 0.5F);  // the base
      trees->add_with(lanes, rows, 20, sums);
      ASSERT_EQ(sums, expected);
    }
  }
}

TEST(Trees, RefuseWhatIsNoTree) {
  RandomOperator given({.trees = 2, .depth = 3}, 1);
  const auto broken = [&](const std::string& attribute, auto change) {
    auto node = given.node({"x"}, {"y"});
    change(node.attributes[attribute]);
    EXPECT_FALSE(Trees::of(node, 1)) << attribute;
  };
  using Wholes = std::vector<std::int64_t>;
  broken("nodes_truenodeids", [](auto& a) { std::get<Wholes>(a)[0] = 1'000; });
  broken("nodes_truenodeids", [](auto& a) { std::get<Wholes>(a)[1] = 0; });  // round and round
  broken("nodes_truenodeids", [](auto& a) { std::get<Wholes>(a)[1] = 1; });
  broken("nodes_featureids", [](auto& a) { std::get<Wholes>(a)[0] = -1; });
  broken("nodes_modes", [](auto& a) { std::get<std::vector<std::string>>(a)[0] = "BRANCH_MAYBE"; });
  broken("nodes_values", [](auto& a) { std::get<std::vector<float>>(a)[0] = std::nanf(""); });
  broken("nodes_values", [](auto& a) { std::get<std::vector<float>>(a).pop_back(); });
  broken("nodes_nodeids", [](auto& a) { std::get<Wholes>(a)[1] = 0; });
  broken("target_ids", [](auto& a) { std::get<Wholes>(a)[0] = 1; });
  broken("target_ids", [](auto& a) { std::get<Wholes>(a)[0] = -1; });
  broken("target_weights", [](auto& a) { std::get<std::vector<float>>(a)[0] = kInfinity; });
}

// ---- Whole models: ours against ONNX Runtime. It adds base values last, and its exponentials differ in the last bits.
void expect_same_answers(BytesView bytes, const std::vector<float>& rows, std::int64_t width, std::string_view engine) {
  LoadOptions theirs;
  theirs.native_trees = false;
  const auto ours = Model::load(runtime(), bytes);
  const auto reference = Model::load(runtime(), bytes, theirs);
  EXPECT_EQ(ours->engine(), engine);
  EXPECT_EQ(reference->engine(), "onnxruntime");
  ASSERT_EQ(ours->outputs().size(), reference->outputs().size());
  EXPECT_TRUE(ours->rows_first());
  const auto in = view_of(rows, {static_cast<std::int64_t>(rows.size()) / width, width});
  const auto a = ours->run(std::span(&in, 1)), b = reference->run(std::span(&in, 1));
  for (std::size_t at = 0; at < a.tensors().size(); ++at) {
    const auto &x = a.tensors()[at], &y = b.tensors()[at];
    SCOPED_TRACE(ours->outputs()[at].name);
    ASSERT_EQ(x.shape, y.shape);
    ASSERT_EQ(x.element, y.element);
    if (x.element == Element::float32) {
      for (std::size_t k = 0; k < x.values<float>().size(); ++k) {
        const float p = x.values<float>()[k], q = y.values<float>()[k];
        ASSERT_LE(std::fabs(p - q), 2e-6F * std::max(1.0F, std::fabs(q))) << "number " << k;
      }
    } else {
      ASSERT_TRUE(std::ranges::equal(x.bytes, y.bytes));
      ASSERT_TRUE(std::ranges::equal(x.texts, y.texts));
    }
  }
}

std::vector<graph::Dimension> any_rows(std::int64_t width) { return {std::string(graph::kRows), width}; }

TEST(TreeModels, SayWhatOnnxRuntimeSays) {
  for (const std::size_t outputs : {1U, 4U}) {
    const auto ensemble = random_trees(60, 5, 12, outputs, outputs);
    auto rows = random_numbers(200 * 12, 9);
    for (std::size_t at = 0; at < rows.size(); at += 7) rows[at] = std::nanf("");
    expect_same_answers(trees_model(ensemble), rows, 12, "trees");
  }
}

TEST(TreeModels, AveragesToo) {
  RandomOperator given({.trees = 30, .depth = 6, .outputs = 3, .lists = true}, 3);
  graph::Graph graph;
  const auto x = graph.add_input("x", Element::float32, any_rows(6));
  auto node = given.node({x}, {"%out"});
  node.attributes["aggregate_function"] = std::string("AVERAGE");
  node.attributes["base_values"] = std::vector<float>{1, 2, 3};
  graph.nodes.push_back(node);
  graph.add_output("y", "%out", Element::float32, any_rows(3));
  expect_same_answers(graph::serialise(graph), given.rows(150), 6, "trees");
}

struct Classes {
  std::string name;
  std::size_t classes;
  bool lists;
  std::string after;
  std::vector<float> base;
  bool texts, positive;
  std::string engine = "trees";
};
class TreeClassifiers : public testing::TestWithParam<Classes> {};

TEST_P(TreeClassifiers, SayWhatOnnxRuntimeSays) {
  const auto& asked = GetParam();
  RandomOperator given({.trees = 24,
                        .depth = 5,
                        .outputs = asked.classes == 2 && !asked.lists ? 1 : asked.classes,
                        .classifier = true,
                        .lists = asked.lists},
                       11);
  graph::Graph graph;
  const auto x = graph.add_input("x", Element::float32, any_rows(6));
  auto node = given.node({x}, {"%label", "%scores"});
  node.attributes["post_transform"] = asked.after;
  if (!asked.base.empty()) node.attributes["base_values"] = asked.base;
  std::vector<std::int64_t> labels;
  std::vector<std::string> texts;
  for (std::size_t k = 0; k < asked.classes; ++k)
    labels.push_back(static_cast<std::int64_t>(5 - 2 * k)), texts.push_back("class " + std::to_string(k));
  node.attributes.erase("classlabels_int64s");
  if (asked.texts)
    node.attributes["classlabels_strings"] = texts;
  else
    node.attributes["classlabels_int64s"] = labels;
  if (asked.positive)
    for (float& weight : std::get<std::vector<float>>(node.attributes["class_weights"])) weight = (weight + 1) / 48;
  graph.nodes.push_back(node);
  const auto label_element = asked.texts ? Element::text : Element::int64;
  const auto label = graph.add_node("Cast", {"%label"}, {{"to", graph::onnx_type(label_element)}});  // as exporters do
  graph.add_output("label", label, label_element, {std::string(graph::kRows)});
  graph.add_output("scores", "%scores", Element::float32, any_rows(static_cast<std::int64_t>(asked.classes)));
  const auto bytes = graph::serialise(graph);
  expect_same_answers(bytes, given.rows(300), 6, asked.engine);
  expect_same_answers(bytes, given.rows(1), 6, asked.engine);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, TreeClassifiers,
    testing::Values(Classes{"binary_logistic", 2, false, "LOGISTIC", {0.25F}, false, false},
                    Classes{"binary_logistic_no_base", 2, false, "LOGISTIC", {}, false, false},
                    Classes{"binary_raw", 2, false, "NONE", {}, true, false},
                    Classes{"binary_probabilities", 2, false, "NONE", {}, false, true},
                    Classes{"binary_probabilities_as_texts", 2, false, "NONE", {0.125F}, true, true},
                    Classes{"binary_probabilities_softmax", 2, false, "SOFTMAX", {}, false, true, "onnxruntime"},
                    Classes{"several_softmax", 4, false, "SOFTMAX", {0.1F, 0.2F, 0.3F, 0.4F}, false, false},
                    Classes{"several_logistic", 3, true, "LOGISTIC", {}, false, false},
                    Classes{"forest", 3, true, "NONE", {}, true, true},
                    Classes{"two_sums", 2, true, "NONE", {}, false, true, "onnxruntime"},
                    Classes{"softmax_zero", 3, true, "SOFTMAX_ZERO", {}, false, false, "onnxruntime"}),
    [](const auto& info) { return info.param.name; });

// More around the trees than a link: they run inside of ONNX Runtime.
TEST(TreeModels, RunInsideOfOtherGraphs) {
  const auto ensemble = random_trees(50, 5, 4, 2, 8);
  graph::Graph graph;
  const auto x = graph.add_input("x", Element::float32, any_rows(4));
  const auto scale = graph.add_constant(graph::Tensor::of<float>({4}, std::vector<float>{1, 2, 0.5F, -1}));
  const auto emitted = ensemble.emit(graph, graph.add_node("Mul", {x, scale}));
  const auto index =
      graph.add_node("ArgMax", {emitted.predictions}, {{"axis", std::int64_t{1}}, {"keepdims", std::int64_t{0}}});
  graph.add_output("predictions", emitted.predictions, Element::float32, any_rows(2));
  graph.add_output("class", index, Element::int64, {std::string(graph::kRows)});
  RandomOperator given({.trees = 24, .depth = 5, .features = 4, .outputs = 3, .classifier = true, .lists = true}, 2);
  auto node = given.node({x}, {"%unread", "%second"});
  graph.nodes.push_back(node);
  graph.add_output("scores", "%second", Element::float32, any_rows(3));
  const auto bytes = graph::serialise(graph);
  expect_same_answers(bytes, random_numbers(100 * 4, 3), 4, "onnxruntime+trees");
  expect_same_answers(bytes, random_numbers(4, 3), 4, "onnxruntime+trees");
}

TEST(TreeModels, RefuseRowsThatAreTooShort) {
  const auto ensemble = random_trees(5, 3, 4, 1, 8);
  graph::Graph graph;
  const auto x = graph.add_input("x", Element::float32, {std::string(graph::kRows), std::string()});
  graph.add_output("y", ensemble.emit(graph, x).margins, Element::float32, any_rows(1));
  const auto model = Model::load(runtime(), graph::serialise(graph));
  EXPECT_EQ(model->engine(), "trees");
  const auto numbers = random_numbers(6, 1);
  const auto bad = view_of(numbers, {2, 3});
  EXPECT_ERROR(model->run(std::span(&bad, 1)), Code::invalid);
}

}  // namespace
}  // namespace falaj::infer
