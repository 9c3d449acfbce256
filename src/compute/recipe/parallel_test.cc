// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "compute/recipe/recipe.h"

namespace falaj::recipe {
namespace {

std::set<std::string> faults_of(const std::function<void(Training&)>& set) {
  Training training;
  training.data.dataset = "rows@1";
  training.label = "late";
  training.model = "network";
  training.resources.tasks = 4;
  set(training);
  Faults faults;
  check(training, faults);
  std::set<std::string> out;
  for (const auto& fault : faults) out.insert(fault.where);
  return out;
}
using Places = std::set<std::string>;

TEST(Parallel, WhatMakesSenseIsAccepted) {
  for (const auto* mode : {"data", "server", "tensor"})
    EXPECT_EQ(faults_of([&](Training& t) { t.parallel.mode = mode; }), Places{}) << mode;
  EXPECT_EQ(faults_of([](Training& t) { t.parallel.mode = "pipeline", t.network.hidden = {8, 8, 8}; }), Places{});
  EXPECT_EQ(faults_of([](Training& t) { t.parallel.mode = "pipeline", t.network.kind = "resnet"; }), Places{});
  EXPECT_EQ(faults_of([](Training& t) { t.parallel.mode = "data", t.resources.tasks_min = 1; }), Places{});
  EXPECT_EQ(faults_of([](Training& t) { t.parallel.mode = "data", t.parallel.spares = 2; }), Places{});
  EXPECT_EQ(
      faults_of([](Training& t) { t.parallel.mode = "data", t.resources.gpus = 1, t.network.precision = "fp16"; }),
      Places{});
}

TEST(Parallel, WhatDoesNotIsRefusedWithItsPlace) {
  const struct {
    std::function<void(Training&)> set;
    Places places;
  } cases[] = {
      {[](Training&) {}, {"spec.parallel.mode"}},
      {[](Training& t) { t.parallel.mode = "pipeline"; }, {"spec.resources.tasks"}},  // two hidden layers, four tasks
      {[](Training& t) { t.parallel.mode = "tensor", t.resources.tasks = 1; }, {"spec.resources.tasks"}},
      {[](Training& t) {
         t.parallel.mode = "tensor", t.network.hidden = {2, 8};
       },
       {"spec.network.hidden[0]"}},
      {[](Training& t) { t.parallel.mode = "tensor", t.network.kind = "linear"; }, {"spec.network.kind"}},
      {[](Training& t) { t.parallel.mode = "server", t.parallel.servers = 4; }, {"spec.parallel.servers"}},
      {[](Training& t) { t.parallel.mode = "server", t.resources.tasks_min = 1; }, {"spec.parallel.servers"}},
      {[](Training& t) { t.parallel.mode = "server", t.network.kind = "cnn"; }, {"spec.parallel.mode"}},
      {[](Training& t) { t.parallel.mode = "server", t.parallel.staleness = 9; }, {"spec.parallel.staleness"}},
      {[](Training& t) { t.parallel.mode = "server", t.parallel.compress = "fp16"; }, {"spec.parallel.compress"}},
      {[](Training& t) { t.parallel.mode = "tensor", t.parallel.shard_optimiser = true; },
       {"spec.parallel.shardOptimiser"}},
      {[](Training& t) { t.parallel.mode = "data", t.parallel.update = "bounded", t.parallel.micro_batches = 2; },
       {"spec.parallel.update", "spec.parallel.microBatches"}},
      {[](Training& t) { t.parallel.mode = "data", t.parallel.rank = 2, t.parallel.keep = 0.5; },
       {"spec.parallel.rank", "spec.parallel.keep"}},
      {[](Training& t) { t.parallel.mode = "data", t.network.batch = "3"; }, {"spec.network.batch"}},
      {[](Training& t) { t.parallel.mode = "tensor", t.network.precision = "bf16", t.network.accumulate = 2; },
       {"spec.network.precision", "spec.network.accumulate"}},
      {[](Training& t) { t.parallel.mode = "data", t.parallel.spares = 1, t.resources.tasks_min = 2; },
       {"spec.parallel.spares"}},
      {[](Training& t) { t.parallel.mode = "data", t.parallel.spares = 1, t.resources.tasks = 1; },
       {"spec.parallel.spares"}},
      {[](Training& t) { t.parallel.mode = "data", t.resources.tasks_min = 5; }, {"spec.resources.tasksMin"}},
      {[](Training& t) { t.parallel.mode = "data", t.model = "xgboost"; }, {"spec.parallel.mode"}},
      {[](Training& t) { t.parallel.mode = "data", t.network.precision = "fp16"; }, {"spec.network.precision"}},
      {[](Training& t) { t.parallel.mode = "tensor", t.resources.gpus = 1; }, {"spec.parallel.mode"}},
      {[](Training& t) { t.parallel.mode = "data", t.resources.gpus = 2; }, {"spec.resources.gpus"}},
      {[](Training& t) {
         t.parallel.mode = "data", t.parallel.compress = "topk", t.parallel.shard_optimiser = true;
         t.resources.gpus = 1;
       },
       {"spec.parallel.compress", "spec.parallel.shardOptimiser"}},
      {[](Training& t) { t.resources.tasks = 1, t.resources.gpus = 1, t.model = "xgboost"; }, {"spec.resources.gpus"}},
      {[](Training& t) { t.resources.tasks = 1, t.resources.gpus = 1, t.network.batch = "auto"; },
       {"spec.network.batch"}},
  };
  for (const auto& one : cases) EXPECT_EQ(faults_of(one.set), one.places);
}

TEST(Objective, WhatItCannotHeedIsRefused) {
  const auto alone = [](auto set) { return faults_of([&](Training& t) { t.resources.tasks = 1, set(t); }); };
  const auto ranking = [&](auto set) {
    return alone([&](Training& t) { t.objective = "ranking", t.group = "query", set(t); });
  };
  EXPECT_EQ(ranking([](Training&) {}), Places{});
  EXPECT_EQ(ranking([](Training& t) { t.weight = "counts", t.balance = true; }),
            (Places{"spec.weight", "spec.balance"}));
  EXPECT_EQ(alone([](Training& t) { t.objective = "ranking"; }), Places{"spec.group"});
  const std::pair<const char*, const char*> wrong[] = {
      {"binary", "rmse"}, {"multiclass", "auc"}, {"regression", "logloss"}, {"ranking", "auc"}};
  for (const auto& one : wrong)
    EXPECT_EQ(alone([&](Training& t) { t.objective = one.first, t.group = "g", t.metric = one.second; }),
              Places{"spec.metric"})
        << one.first;
  EXPECT_EQ(alone([](Training& t) { t.metric = "rmse"; }), Places{}) << "the label tells";
  EXPECT_EQ(alone([](Training& t) { t.objective = "multiclass", t.metric = "accuracy"; }), Places{});
  EXPECT_EQ(alone([](Training& t) { t.trees.monotone = {{"x", 1}}; }), Places{"spec.trees.monotone"}) << "a network";
}

}  // namespace
}  // namespace falaj::recipe
