// SPDX-License-Identifier: Apache-2.0
// XGBoost itself, our reading of its models, and ONNX Runtime's running of what we write say the same.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>
#include <xgboost/c_api.h>

#include "compute/graph/trees.h"
#include "compute/infer/testing.h"
#include "foundation/base/testing.h"

namespace falaj::infer {
namespace {

using namespace falaj::graph;

constexpr std::size_t kFeatures = 8;  // 0 to 4 numbers, 5 to 7 categories
constexpr std::size_t kTrained = 3'000, kAsked = repeats(10'000);

void must(int status) { ASSERT_EQ(status, 0) << XGBGetLastError(); }

// Rows with missing values; when asked, with categories beyond those of training.
std::vector<float> rows_of(std::size_t count, std::uint64_t seed, bool strange) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count * kFeatures);
  for (std::size_t at = 0; at < out.size(); ++at) {
    const std::size_t feature = at % kFeatures;
    constexpr int kCategories[] = {3, 12, 70};
    if (random() % 10 == 0)
      out[at] = std::nanf("");
    else if (feature >= 5)
      out[at] = static_cast<float>(random() % static_cast<std::uint64_t>(kCategories[feature - 5] + (strange ? 5 : 0)));
    else
      out[at] = random() % 8 == 0 ? std::round(normal(random)) : normal(random);  // some exactly at thresholds
  }
  return out;
}

class Booster {
 public:
  using Parameters = std::vector<std::pair<std::string, std::string>>;

  Booster(const Parameters& parameters, int classes, bool categorical, int rounds = 12)
      : categorical_(categorical), data_(rows_of(kTrained, 1, false)), matrix_(matrix(data_)) {
    std::mt19937_64 random(2);
    std::vector<float> labels;
    for (std::size_t row = 0; row < kTrained; ++row) {
      const float* x = &data_[row * kFeatures];
      const float signal = (std::isnan(x[0]) ? 1 : x[0]) + 0.7F * (std::isnan(x[5]) ? 2 : x[5]) +
                           (std::isnan(x[6]) ? 0 : std::sin(x[6])) + (std::isnan(x[7]) ? 0 : std::cos(7 * x[7]));
      const auto noisy = signal + static_cast<float>(random() % 100) / 100;
      labels.push_back(classes == 0 ? std::fabs(noisy)
                                    : static_cast<float>(static_cast<int>(std::fabs(noisy)) % classes));
    }
    must(XGDMatrixSetFloatInfo(matrix_, "label", labels.data(), labels.size()));
    must(XGBoosterCreate(&matrix_, 1, &booster_));
    for (const auto& [name, value] : parameters) must(XGBoosterSetParam(booster_, name.c_str(), value.c_str()));
    for (const auto& [name, value] : Parameters{{"nthread", "1"}, {"seed", "1"}, {"verbosity", "0"}})
      must(XGBoosterSetParam(booster_, name.c_str(), value.c_str()));
    for (int round = 0; round < rounds; ++round) must(XGBoosterUpdateOneIter(booster_, round, matrix_));
  }
  ~Booster() {
    XGBoosterFree(booster_);
    XGDMatrixFree(matrix_);
  }

  Bytes model(const std::string& format) const {
    bst_ulong size = 0;
    const char* bytes = nullptr;
    must(XGBoosterSaveModelToBuffer(booster_, ("{\"format\":\"" + format + "\"}").c_str(), &size, &bytes));
    return to_bytes({bytes, size});
  }

  std::vector<float> predictions(const std::vector<float>& rows, bool margin, int rounds = 0) const {
    DMatrixHandle asked = matrix(rows);
    const auto how = "{\"type\":" + std::to_string(margin ? 1 : 0) + ",\"training\":false,\"iteration_begin\":0," +
                     "\"iteration_end\":" + std::to_string(rounds) + ",\"strict_shape\":false}";
    const bst_ulong* shape = nullptr;
    bst_ulong rank = 0;
    const float* made = nullptr;
    must(XGBoosterPredictFromDMatrix(booster_, asked, how.c_str(), &shape, &rank, &made));
    bst_ulong count = 1;
    for (bst_ulong at = 0; at < rank; ++at) count *= shape[at];
    std::vector<float> out(made, made + count);
    XGDMatrixFree(asked);
    return out;
  }

 private:
  DMatrixHandle matrix(const std::vector<float>& rows) const {
    DMatrixHandle out = nullptr;
    must(XGDMatrixCreateFromMat(rows.data(), rows.size() / kFeatures, kFeatures, std::nanf(""), &out));
    const char* types[kFeatures] = {"float", "float", "float", "float", "float", "c", "c", "c"};
    if (categorical_) must(XGDMatrixSetStrFeatureInfo(out, "feature_type", types, kFeatures));
    return out;
  }

  bool categorical_;
  std::vector<float> data_;
  DMatrixHandle matrix_ = nullptr;
  BoosterHandle booster_ = nullptr;
};

std::vector<NamedTensor> run(const TreeEnsemble& trees, const std::vector<float>& rows) {
  Graph graph;
  const auto in = graph.add_input("x", Element::float32, {std::string(kRows), std::int64_t{kFeatures}});
  const auto emitted = trees.emit(graph, in);
  const std::vector<Dimension> shape = {std::string(kRows), static_cast<std::int64_t>(trees.outputs)};
  graph.add_output("margins", emitted.margins, Element::float32, shape);
  graph.add_output("predictions", emitted.predictions, Element::float32, shape);
  const auto session = Session::open(runtime(), serialise(graph));
  const Sizes sizes = {static_cast<std::int64_t>(rows.size() / kFeatures), kFeatures};
  return session.run(std::vector<NamedTensor>{{"x", Tensor::of(sizes, rows)}});
}

float furthest(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float out = 0;
  for (std::size_t at = 0; at < std::min(a.size(), b.size()); ++at)
    out = std::max(out, std::fabs(a[at] - b[at]) / std::max(1.0F, std::fabs(a[at])));
  return out;
}

struct Case {
  std::string name;
  Booster::Parameters parameters;
  int classes;
  bool categorical;
};

class TreeParity : public testing::TestWithParam<Case> {};

TEST_P(TreeParity, AllThreeAgree) {
  const auto& given = GetParam();
  const Booster booster(given.parameters, given.classes, given.categorical);
  const auto trees = parse_xgboost(booster.model("ubj"));
  EXPECT_EQ(trees, parse_xgboost(booster.model("json"))) << "both formats say the same";
  bool by_category = false;
  for (const auto& tree : trees.trees) by_category = by_category || !tree.sets.empty();
  EXPECT_EQ(by_category, given.categorical) << "the case tests what it says";

  const auto rows = rows_of(kAsked, 3, true);
  std::vector<float> margins(kAsked * trees.outputs), predictions(margins.size());
  trees.margins(rows, margins);
  trees.predict(rows, predictions);
  EXPECT_EQ(margins, booster.predictions(rows, true)) << "bit by bit";
  EXPECT_LT(furthest(booster.predictions(rows, false), predictions), 1e-6F);

  const auto out = run(trees, rows);
  EXPECT_LT(furthest(margins, out[0].tensor.values<float>()), 1e-5F);
  EXPECT_LT(furthest(predictions, out[1].tensor.values<float>()), 1e-5F);

  // What early stopping asks for.
  const auto first = parse_xgboost(booster.model("ubj"), 5);
  std::vector<float> early(kAsked * first.outputs);
  first.margins(rows, early);
  EXPECT_EQ(early, booster.predictions(rows, true, 5));
}

std::vector<Case> cases() {
  const auto with = [](Booster::Parameters more) {
    more.insert(more.end(), {{"tree_method", "hist"}, {"max_depth", "6"}, {"eta", "0.3"}});
    return more;
  };
  return {
      {"regression", with({{"objective", "reg:squarederror"}}), 0, false},
      {"logistic", with({{"objective", "binary:logistic"}, {"base_score", "0.2"}}), 2, false},
      {"raw", with({{"objective", "binary:logitraw"}}), 2, false},
      {"poisson", with({{"objective", "count:poisson"}}), 0, false},
      {"softmax", with({{"objective", "multi:softprob"}, {"num_class", "4"}}), 4, false},
      {"by_categories", with({{"objective", "binary:logistic"}, {"max_cat_to_onehot", "4"}}), 2, true},
      {"one_category_each", with({{"objective", "binary:logistic"}, {"max_cat_to_onehot", "100"}}), 2, true},
      {"categories_and_classes",
       with({{"objective", "multi:softprob"}, {"num_class", "3"}, {"max_cat_to_onehot", "1"}}), 3, true},
      {"forest", with({{"objective", "reg:squarederror"}, {"num_parallel_tree", "3"}, {"subsample", "0.6"}}), 0, false},
      {"pruned",
       with({{"objective", "reg:squarederror"}, {"gamma", "20"}, {"grow_policy", "lossguide"}, {"max_leaves", "9"}}), 0,
       false},
  };
}
INSTANTIATE_TEST_SUITE_P(Xgboost, TreeParity, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(TreeParityDart, WeightsOfDroppedTreesCount) {
  const Booster booster(
      {{"booster", "dart"}, {"rate_drop", "0.5"}, {"objective", "binary:logistic"}, {"max_depth", "4"}}, 2, false);
  const auto trees = parse_xgboost(booster.model("ubj"));
  const auto rows = rows_of(1'000, 4, false);
  std::vector<float> margins(1'000);
  trees.margins(rows, margins);
  EXPECT_LT(furthest(booster.predictions(rows, true), margins), 1e-5F);
  EXPECT_LT(furthest(margins, run(trees, rows)[0].tensor.values<float>()), 1e-5F);
}

TEST(TreeParityDart, LinearBoostersAreRefused) {
  const Booster booster({{"booster", "gblinear"}, {"objective", "binary:logistic"}}, 2, false);
  EXPECT_ERROR(parse_xgboost(booster.model("ubj")), Code::invalid);
}

TEST(TreeParityEmpty, NoTreesGiveTheBase) {
  const Booster booster({{"objective", "binary:logistic"}, {"base_score", "0.3"}}, 2, false, 0);
  const auto trees = parse_xgboost(booster.model("json"));
  EXPECT_TRUE(trees.trees.empty());
  const auto out = run(trees, rows_of(3, 1, false));
  for (const float p : out[1].tensor.values<float>()) EXPECT_NEAR(p, 0.3F, 1e-6F);
}

}  // namespace
}  // namespace falaj::infer
