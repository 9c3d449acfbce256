// SPDX-License-Identifier: Apache-2.0
#include "compute/train/parts.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "foundation/base/testing.h"

namespace falaj::train {
namespace {

using Op = Layer::Op;

// Layers by their ops; linear ones have 6 numbers in and out.
Plan plan_of(const std::vector<Op>& ops) {
  Plan plan;
  for (const auto op : ops) {
    Layer layer;
    layer.op = op;
    layer.in = layer.out = 6;
    if (op == Op::linear || op == Op::norm) {
      const auto sizes = op == Op::linear ? std::vector<std::int64_t>{6, 6} : std::vector<std::int64_t>{6};
      layer.weights = {plan.weights.size(), plan.weights.size() + 1};
      plan.weights.push_back({"weight", sizes});
      plan.weights.push_back({"bias", {6}});
    }
    plan.layers.push_back(layer);
  }
  return plan;
}

const Plan kMlp = plan_of({Op::join, Op::linear, Op::relu, Op::linear, Op::relu, Op::linear, Op::relu, Op::linear});
const Plan kResidual = plan_of({Op::join, Op::linear, Op::keep, Op::norm, Op::linear, Op::relu, Op::linear, Op::add,
                                Op::norm, Op::relu, Op::linear});

// How often each number of a whole plan's weights is told by one of the parts.
std::vector<int> told_by(const Plan& plan, const std::vector<NetworkPart>& parts) {
  std::vector<std::vector<int>> times;
  for (const auto& weight : plan.weights) times.emplace_back(static_cast<std::size_t>(weight.count()), 0);
  for (const auto& part : parts) {
    EXPECT_EQ(part.slices.size(), part.plan.weights.size());
    for (std::size_t i = 0; i < part.slices.size(); ++i) {
      const auto& slice = part.slices[i];
      const auto& sizes = plan.weights[slice.weight].sizes;
      auto expected = sizes;
      expected[static_cast<std::size_t>(slice.dimension)] = slice.count;
      EXPECT_EQ(part.plan.weights[i].sizes, expected);
      const auto columns = sizes.size() > 1 ? sizes[1] : 1;
      for (std::int64_t n = 0; slice.tells && n < plan.weights[slice.weight].count(); ++n) {
        const auto at = slice.dimension == 0 ? n / columns : n % columns;
        if (at >= slice.first && at < slice.first + slice.count) ++times[slice.weight][static_cast<std::size_t>(n)];
      }
    }
  }
  std::vector<int> out;
  for (const auto& one : times) out.insert(out.end(), one.begin(), one.end());
  return out;
}

TEST(Parts, CutsWhereNothingIsPutAside) {
  EXPECT_EQ(places_to_cut(kMlp), (std::vector<std::size_t>{3, 5, 7}));
  EXPECT_EQ(places_to_cut(kResidual), (std::vector<std::size_t>{2, 8, 10}));
}

TEST(Parts, StagesCostAboutTheSame) {
  const std::vector<double> costs{1, 1, 1, 3};
  EXPECT_EQ(stages_of(kMlp, costs, 1), (std::vector<std::size_t>{0}));
  EXPECT_EQ(stages_of(kMlp, costs, 2), (std::vector<std::size_t>{0, 7}));
  EXPECT_EQ(stages_of(kMlp, costs, 4), (std::vector<std::size_t>{0, 3, 5, 7}));
  EXPECT_EQ(stages_of(kMlp, std::vector<double>{9, 1, 1, 1}, 2), (std::vector<std::size_t>{0, 3}));
  EXPECT_ERROR(stages_of(kMlp, costs, 5), Code::invalid);
}

TEST(Parts, StagesAreTheWholeNetwork) {
  for (const auto* plan : {&kMlp, &kResidual}) {
    const auto places = places_to_cut(*plan);
    const auto first = stage_of(*plan, 0, places[1]), second = stage_of(*plan, places[1], plan->layers.size());
    EXPECT_EQ(first.plan.layers.size() + second.plan.layers.size(), plan->layers.size());
    EXPECT_EQ(second.first_layer, places[1]);
    const auto times = told_by(*plan, {first, second});
    EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
  }
}

TEST(Parts, SlicesAreTheWholeNetwork) {
  for (const auto* plan : {&kMlp, &kResidual})
    for (const std::size_t ranks : {1, 2, 4}) {
      std::vector<NetworkPart> parts;
      for (std::size_t rank = 0; rank < ranks; ++rank) parts.push_back(split_of(*plan, rank, ranks));
      const auto times = told_by(*plan, parts);
      EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; })) << ranks;
    }
  const auto part = split_of(kMlp, 1, 4);  // 6 numbers: 1, 2, 1 and 2 of them
  EXPECT_EQ(part.plan.weights[0].sizes, (std::vector<std::int64_t>{2, 6}));
  EXPECT_EQ(part.plan.layers[1].split, Layer::Split::out);
  EXPECT_EQ(part.plan.layers[2].split, Layer::Split::out);
  EXPECT_EQ(part.plan.layers[3].split, Layer::Split::in);
  EXPECT_EQ(part.plan.weights[2].sizes, (std::vector<std::int64_t>{6, 2}));
  EXPECT_EQ(part.plan.layers[4].split, Layer::Split::none);
}

TEST(Parts, SaysWhatCannotBeSplit) {
  EXPECT_ERROR(split_of(plan_of({Op::join, Op::linear, Op::norm, Op::linear}), 0, 2), Code::invalid);
  EXPECT_ERROR(split_of(kMlp, 0, 7), Code::invalid);
}

}  // namespace
}  // namespace falaj::train
