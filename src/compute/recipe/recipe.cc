// SPDX-License-Identifier: Apache-2.0
#include "compute/recipe/recipe.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

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

void check_network(const Training& training, Faults& faults) {
  const auto& network = training.network;
  for (std::size_t i = 0; i < network.hidden.size(); ++i)
    if (network.hidden[i] < 1 || network.hidden[i] > 1 << 20)
      faults.push_back(
          {fmt::format("spec.network.hidden[{}]", i), fmt::format("must be 1 to 1048576, not {}", network.hidden[i])});
  if (!batch_size(network) && network.batch != "auto")
    faults.push_back({"spec.network.batch",
                      fmt::format("must be a number of rows from 1 to 1048576, or auto, not '{}'", network.batch)});
  if (network.dropout >= 1) faults.push_back({"spec.network.dropout", "must be below 1"});
}

void check_parallel(const Training& training, Faults& faults) {
  const auto& mode = training.parallel.mode;
  const auto tasks = training.resources.tasks;
  if (mode == "none" && tasks > 1)
    faults.push_back({"spec.parallel.mode", fmt::format("{} tasks need a mode: data", tasks)});
  if (mode != "none" && mode != "data")
    faults.push_back({"spec.parallel.mode", fmt::format("{} is not there yet; data is", mode)});
  if (const auto batch = batch_size(training.network); mode == "data" && batch && *batch < tasks)
    faults.push_back({"spec.network.batch", fmt::format("{} tasks cannot share {} rows a step", tasks, *batch)});
  if (mode != "none" && training.model == "xgboost")
    faults.push_back({"spec.parallel.mode", "is for networks; xgboost uses all processors of one task"});
  if (training.network.precision == "fp16" && training.resources.gpus == 0)
    faults.push_back({"spec.network.precision", "fp16 needs a GPU; use bf16 or fp32 on processors"});
}

}  // namespace

std::optional<std::int64_t> batch_size(const Network& network) {
  std::int64_t rows = 0;
  const auto* end = network.batch.data() + network.batch.size();
  const auto parsed = std::from_chars(network.batch.data(), end, rows);
  if (parsed.ec != std::errc() || parsed.ptr != end || rows < 1 || rows > 1 << 20) return std::nullopt;
  return rows;
}

void check(const Training& training, Faults& faults) {
  check_data(training, faults);
  check_split(training.split, faults);
  check_columns(training, faults);
  check_network(training, faults);
  check_parallel(training, faults);
  if (std::find(training.features.begin(), training.features.end(), training.label) != training.features.end())
    faults.push_back({"spec.features", fmt::format("'{}' is the label", training.label)});
}

}  // namespace falaj::recipe
