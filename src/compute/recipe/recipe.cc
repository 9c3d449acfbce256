// SPDX-License-Identifier: Apache-2.0
#include "compute/recipe/recipe.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace falaj::recipe {
namespace {

void check_data(const Training& training, Faults& faults) {
  const auto& data = training.data;
  if (data.dataset.empty() == data.service.empty())
    faults.push_back({"spec.data", "give either dataset, or service and spine"});
  if (data.service.empty() != data.spine.empty())
    faults.push_back({"spec.data.spine", "service and spine go together"});
}

void check_split(const Split& split, Faults& faults) {
  if (split.test + split.valid >= 1)
    faults.push_back(
        {"spec.split", fmt::format("test {} and valid {} leave nothing to learn from", split.test, split.valid)});
  if ((split.by == "group" || split.by == "part") && split.column.empty())
    faults.push_back({"spec.split.column", fmt::format("required when by is {}", split.by)});
  if (!split.test_from.empty()) {
    if (!parse_time(split.test_from))
      faults.push_back({"spec.split.testFrom",
                        fmt::format("must be a time such as 2026-04-01T00:00:00Z, not '{}'", split.test_from)});
    if (split.by != "auto" && split.by != "time")
      faults.push_back({"spec.split.testFrom", fmt::format("does not go with by: {}", split.by)});
  }
}

void check_columns(const Training& training, Faults& faults) {
  for (const auto& [name, column] : training.columns) {
    const auto at = fmt::format("spec.columns.{}", name.substr(0, 64));
    if (name == training.label) faults.push_back({at, "is the label"});
    if (column.low && column.high && *column.low > *column.high)
      faults.push_back({at + ".low", fmt::format("must be at most high, {}", *column.high)});
    if (!std::is_sorted(column.buckets.begin(), column.buckets.end())) faults.push_back({at + ".buckets", "must rise"});
    const bool numeric = !column.impute.empty() || !column.scale.empty() || column.log || column.low || column.high ||
                         !column.buckets.empty();
    if (column.as == "category" && numeric)
      faults.push_back({at, "impute, scale, log, low, high and buckets are for numbers"});
    if (column.as == "image") {
      if (column.height == 0 || column.width == 0) faults.push_back({at, "an image needs height and width, in pixels"});
      if (numeric || !column.encode.empty())
        faults.push_back({at, "of an image only height, width and channels are said"});
      if (training.model == "xgboost") faults.push_back({at, "trees do not learn from images; model: network does"});
    } else if (column.height != 0 || column.width != 0) {
      faults.push_back({at, "height and width go with as: image"});
    }
    if (column.as == "number" && !column.encode.empty()) faults.push_back({at + ".encode", "is for categories"});
  }
  for (const auto& [name, way] : training.trees.monotone)
    if (way != 1 && way != -1)
      faults.push_back(
          {fmt::format("spec.trees.monotone.{}", name.substr(0, 64)), fmt::format("must be 1 or -1, not {}", way)});
}

void check_layers(const Network& network, Faults& faults) {
  if (network.layers.empty()) return;
  if (network.kind != "auto") faults.push_back({"spec.network.kind", "does not go with layers, which say it all"});
  std::int64_t kept = 0;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    const auto& layer = network.layers[i];
    const auto at = fmt::format("spec.network.layers[{}]", i);
    if (layer.share >= 1) faults.push_back({at + ".share", "must be below 1"});
    const bool sized = layer.op == "linear" || layer.op == "conv";
    if (sized != (layer.size > 0))
      faults.push_back({at + ".size", sized ? "required" : fmt::format("{} has none", layer.op)});
    if (layer.op == "conv" && layer.kernel % 2 == 0) faults.push_back({at + ".kernel", "must be odd"});
    if (layer.op == "conv" && layer.size % layer.groups != 0)
      faults.push_back({at + ".groups", fmt::format("{} channels are not {} equal groups", layer.size, layer.groups)});
    if (layer.op == "keep") ++kept;
    if (layer.op == "add" && --kept < 0) faults.push_back({at, "nothing was put aside by keep before it"});
    kept = std::max<std::int64_t>(kept, 0);
  }
  if (kept > 0) faults.push_back({"spec.network.layers", fmt::format("{} of keep are never added", kept)});
}

void check_network(const Training& training, Faults& faults) {
  const auto& network = training.network;
  for (std::size_t i = 0; i < network.hidden.size(); ++i)
    if (network.hidden[i] < 1 || network.hidden[i] > 1 << 20)
      faults.push_back(
          {fmt::format("spec.network.hidden[{}]", i), fmt::format("must be 1 to 1048576, not {}", network.hidden[i])});
  if (!batch_size(network) && network.batch != "auto")
    faults.push_back({"spec.network.batch",
                      fmt::format("must be a number of rows from 1 to 1048576, or auto, not '{}'", network.batch)});
  if (network.batch == "auto" && training.resources.tasks > 1)
    faults.push_back({"spec.network.batch", "auto is for one task; say how many rows a step all tasks share"});
  if (network.batch == "auto" && network.accumulate > 1)
    faults.push_back({"spec.network.accumulate", "does not go with batch: auto, which finds out itself"});
  check_layers(network, faults);
  if (network.dropout >= 1) faults.push_back({"spec.network.dropout", "must be below 1"});
}

// Words that mean something in one mode only.
void check_of_mode(const Parallel& parallel, Faults& faults) {
  const Parallel usual;
  const auto only = [&](bool said, const char* field, const char* mode) {
    if (said && parallel.mode != mode)
      faults.push_back(
          {fmt::format("spec.parallel.{}", field), fmt::format("goes with mode: {}, not {}", mode, parallel.mode)});
  };
  only(parallel.compress != usual.compress, "compress", "data");
  only(parallel.shard_optimiser, "shardOptimiser", "data");
  only(parallel.servers != usual.servers, "servers", "server");
  only(parallel.update != usual.update, "update", "server");
  only(parallel.micro_batches != usual.micro_batches, "microBatches", "pipeline");
  if (parallel.keep <= 0) faults.push_back({"spec.parallel.keep", "must be above 0"});
  if (parallel.keep != usual.keep && parallel.compress != "topk")
    faults.push_back({"spec.parallel.keep", "goes with compress: topk"});
  if (parallel.rank != usual.rank && parallel.compress != "powersgd")
    faults.push_back({"spec.parallel.rank", "goes with compress: powersgd"});
  if (parallel.staleness != usual.staleness && parallel.update != "bounded")
    faults.push_back({"spec.parallel.staleness", "goes with update: bounded"});
}

// Ways in which tasks have a part of the network, or send what one of them made of its rows to another.
void check_shared_network(const Training& training, Faults& faults) {
  const auto& mode = training.parallel.mode;
  const auto& network = training.network;
  const auto& kind = network.kind;
  const bool images = kind == "cnn" || kind == "mobilenet" || kind == "efficientnet" ||
                      std::any_of(training.columns.begin(), training.columns.end(),
                                  [](const auto& c) { return c.second.as == "image"; });
  if (images) faults.push_back({"spec.parallel.mode", fmt::format("{} is for tables; images need data", mode)});
  if (network.accumulate > 1)
    faults.push_back({"spec.network.accumulate",
                      fmt::format("does not go with mode: {}{}", mode,
                                  mode == "pipeline" ? ", which has microBatches" : "; use a larger batch")});
  if (mode == "server") return;
  if (network.precision != "fp32")
    faults.push_back({"spec.network.precision", fmt::format("must be fp32 with mode: {}", mode)});
  if (kind == "linear")
    faults.push_back({"spec.network.kind", fmt::format("linear is one layer: there is nothing to share by {}", mode)});
  if (!network.layers.empty()) return;  // the trainer sees where they can be taken apart
  const auto tasks = training.resources.tasks;
  const auto stages = std::ssize(network.hidden) + (kind == "resnet" ? 3 : 1);
  if (mode == "pipeline" && tasks > stages)
    faults.push_back(
        {"spec.resources.tasks", fmt::format("this network can be cut into {} stages at most, not {}", stages, tasks)});
  for (std::size_t i = 0; mode == "tensor" && i < network.hidden.size(); ++i)
    if (network.hidden[i] < tasks)
      faults.push_back({fmt::format("spec.network.hidden[{}]", i),
                        fmt::format("{} tasks cannot share a layer of {}", tasks, network.hidden[i])});
}

// How many tasks there are, and may be.
void check_tasks(const Training& training, Faults& faults) {
  const auto& parallel = training.parallel;
  const auto& mode = parallel.mode;
  const auto tasks = training.resources.tasks, fewest = training.resources.tasks_min.value_or(tasks);
  if (mode == "none" && tasks > 1)
    faults.push_back({"spec.parallel.mode", fmt::format("{} tasks need a mode, such as data", tasks)});
  if (fewest > tasks) faults.push_back({"spec.resources.tasksMin", fmt::format("must be at most tasks, {}", tasks)});
  if ((mode == "pipeline" || mode == "tensor") && fewest < 2)
    faults.push_back({"spec.resources.tasks", fmt::format("mode: {} needs two at least", mode)});
  if (mode == "server" && parallel.servers >= fewest)
    faults.push_back(
        {"spec.parallel.servers", fmt::format("{} of {} tasks leave none to learn", parallel.servers, fewest)});
  const auto learning = mode == "server" ? tasks - parallel.servers : mode == "data" ? tasks : 1;
  const auto parts = std::max(learning, parallel.micro_batches);
  if (const auto batch = batch_size(training.network); batch && *batch < parts)
    faults.push_back({"spec.network.batch", fmt::format("{} rows a step cannot be shared by {}", *batch, parts)});
  if (parallel.spares > 0 && tasks < 2)
    faults.push_back({"spec.parallel.spares", "stand in for one of several tasks, and there is one"});
  if (parallel.spares > 0 && fewest < tasks)
    faults.push_back(
        {"spec.parallel.spares", "do not go with tasksMin: an elastic training goes on with what is left"});
}

void check_parallel(const Training& training, Faults& faults) {
  const auto& mode = training.parallel.mode;
  check_of_mode(training.parallel, faults);
  check_tasks(training, faults);
  if (mode == "server" || mode == "pipeline" || mode == "tensor") check_shared_network(training, faults);
  if (mode != "none" && training.objective == "ranking")
    faults.push_back({"spec.parallel.mode", "rankings are learned by one task"});
  if (mode != "none" && training.model == "xgboost")
    faults.push_back({"spec.parallel.mode", "is for networks; xgboost uses all processors of one task"});
}

std::span<const std::string_view> metrics_of(std::string_view objective) {
  static constexpr std::string_view kBinary[] = {"auc", "logloss", "accuracy"}, kMany[] = {"logloss", "accuracy"},
                                    kRegression[] = {"rmse", "mae"}, kRanking[] = {"ndcg"};
  if (objective == "binary") return kBinary;
  if (objective == "multiclass") return kMany;
  if (objective == "regression") return kRegression;
  return kRanking;
}

// Rows of a ranking count by their groups, and those all alike.
void check_objective(const Training& training, Faults& faults) {
  const auto& objective = training.objective;
  if (const auto fault = fault_of_metric(training.metric, objective); objective != "auto" && !fault.empty())
    faults.push_back({"spec.metric", fault});
  if (!training.trees.monotone.empty() && training.model == "network")
    faults.push_back({"spec.trees.monotone", "is kept by trees only, and model is network"});
  if (objective != "ranking") return;
  if (training.group.empty())
    faults.push_back({"spec.group", "ranking needs a column whose equal values are ranked together"});
  if (!training.weight.empty())
    faults.push_back({"spec.weight", "does not go with objective: ranking, of which every group counts alike"});
  if (training.balance) faults.push_back({"spec.balance", "does not go with objective: ranking, which has no classes"});
}

void check_gpus(const Training& training, Faults& faults) {
  const auto gpus = training.resources.gpus;
  if (gpus == 0) {
    if (training.network.precision == "fp16")
      faults.push_back({"spec.network.precision", "fp16 needs a GPU; use bf16 or fp32 on processors"});
    return;
  }
  const auto refuse = [&](bool when, const char* field, const std::string& why) {
    if (when) faults.push_back({field, why});
  };
  const auto& mode = training.parallel.mode;
  refuse(gpus > 1, "spec.resources.gpus",
         fmt::format("a task uses one; for {} say tasks and parallel: {{mode: data}}", gpus));
  refuse(training.model == "xgboost", "spec.resources.gpus", "trees are learned on processors");
  refuse(mode != "none" && mode != "data", "spec.parallel.mode", "with GPUs is data");
  refuse(training.parallel.compress != "none", "spec.parallel.compress", "does not go with GPUs");
  refuse(training.parallel.shard_optimiser, "spec.parallel.shardOptimiser", "does not go with GPUs");
  refuse(training.network.batch == "auto", "spec.network.batch",
         "auto knows the memory of processors only; say how many");
}

}  // namespace

std::optional<std::int64_t> batch_size(const Network& network) {
  std::int64_t rows = 0;
  const auto* end = network.batch.data() + network.batch.size();
  const auto parsed = std::from_chars(network.batch.data(), end, rows);
  if (parsed.ec != std::errc() || parsed.ptr != end || rows < 1 || rows > 1 << 20) return std::nullopt;
  return rows;
}

std::string fault_of_metric(std::string_view metric, std::string_view objective) {
  const auto metrics = metrics_of(objective);
  if (metric.empty() || std::find(metrics.begin(), metrics.end(), metric) != metrics.end()) return "";
  return fmt::format("{} says nothing of {}; there are {}", metric, objective, fmt::join(metrics, ", "));
}

void check(const Training& training, Faults& faults) {
  check_data(training, faults);
  check_split(training.split, faults);
  check_columns(training, faults);
  check_network(training, faults);
  check_parallel(training, faults);
  check_objective(training, faults);
  check_gpus(training, faults);
  if (std::find(training.features.begin(), training.features.end(), training.label) != training.features.end())
    faults.push_back({"spec.features", fmt::format("'{}' is the label", training.label)});
}

}  // namespace falaj::recipe
