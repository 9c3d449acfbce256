// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a person says of a training: `kind: Training` in a file. Pure data, known to the control plane, which checks it,
// and to falaj-train, which carries it out. A recipe of data and a label is enough: every default is meant to be good.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compute/recipe/network.h"
#include "compute/recipe/words.h"
#include "foundation/base/shape.h"
#include "foundation/base/text.h"

namespace falaj::recipe {

// Which rows are learned from, which decide when to stop, and which nobody sees before the end.
struct Split {
  std::string by = "auto";         // time, group, part or random; auto: time where there is a column of times
  std::string column;              // of the time, the group or the part
  std::string test_from;           // time only: rows from here on are the test; RFC 3339
  double test = 0.2, valid = 0.1;  // shares; with test_from, `valid` is of the rest
};

// What is done to one column before the model sees it.
struct Column {
  std::string as = "auto";          // number, category, time, image, ignore
  std::string impute;               // mean, median, zero
  std::string scale;                // standard, none
  std::optional<bool> log;          // sign(x) * log(1 + |x|)
  std::optional<double> low, high;  // clipped to
  std::vector<double> buckets;      // bounds
  std::string encode;               // onehot, embed, hash
  std::int64_t size = 0;            // of the vocabulary, of hashing or of the embedding's table; 0 = chosen
  std::int64_t height = 0, width = 0, channels = 1;  // of an image
};

struct Cross {
  std::vector<std::string> of;  // two categories
  std::int64_t size = 1000;
};

struct Trees {
  std::int64_t rounds = 300, depth = 7;
  double learning_rate = 0.1, subsample = 0.9, columns = 1, lambda = 1, child_weight = 5;
  std::map<std::string, std::int64_t> monotone;  // column -> -1, 1
};

struct Checkpoints {
  std::int64_t every_us = 60'000'000;
  std::int64_t keep = 2;
  std::int64_t store_us = 600'000'000;
};

struct Register {
  std::string model;  // "" = the training's own name
  std::string alias;  // that then points at it
  double tolerance = 1e-4;
};

struct Data {
  std::string dataset;  // late-train@3
  std::string service;  // or: a feature service, and
  std::string spine;    // the rows it is asked for, a dataset
};

// What its job asks for; see jobs::JobSpec.
struct Resources {
  double cpus = 2;
  std::int64_t memory_bytes = std::int64_t{4} << 30;
  std::int64_t tasks = 1;
  std::optional<std::int64_t> tasks_min;
  double gpus = 0;
  std::string queue = "default", priority_class, executor;
  std::int64_t time_limit_us = 0;
  bool preemptible = true;
  std::int64_t grace_us = 30'000'000, disk_bytes = 0;
  std::optional<std::int64_t> retries;  // absent: 3, of several tasks 10
};

struct Training {
  Data data;
  std::string label;
  std::string objective = "auto";     // binary, multiclass, regression, ranking
  std::string weight, group;          // columns
  std::vector<std::string> features;  // none = every other column
  std::vector<std::string> exclude;
  Split split;
  std::map<std::string, Column> columns;
  std::vector<Cross> crosses;
  std::string model = "auto";  // xgboost, network
  Trees trees;
  Network network;
  std::string metric;               // that decides; "" = the objective's own
  std::int64_t patience = 20;       // early stopping, in rounds; of a network in evaluations
  bool balance = false;             // weights classes by how rare they are
  bool profile = false;             // a trace of where the time went is left
  std::int64_t reference_rows = 0;  // of the test, left whole beside the model for monitors
  Parallel parallel;
  Checkpoints checkpoints;
  std::vector<std::string> slices;
  std::string compare;  // "late@champion" or "late/3": a model that is run on the same test rows
  std::int64_t seed = 1;
  std::int64_t budget_us = 600'000'000;  // of model: auto
  std::string experiment;
  Register registered;
  Resources resources;
};

// What is wrong with deciding by this metric; "" = nothing.
std::string fault_of_metric(std::string_view metric, std::string_view objective);

// What no single field can tell. Paths begin with "spec".
void check(const Training& training, Faults& faults);

}  // namespace falaj::recipe

namespace falaj {

template <>
struct Shape<recipe::Split> {
  using T = recipe::Split;
  static constexpr std::string_view name = "TrainingSplit";
  static Fields fields() {
    return {field("by", &T::by,
                  "time: the latest rows are the test; group: a group is never in two parts; part: a column says "
                  "train, valid "
                  "or test; random.")
                .one_of(recipe::kSplits),
            field("column", &T::column, "Of the time, the group or the part.").length(0, 256),
            field("testFrom", &T::test_from, "Rows from this moment on are the test; RFC 3339.").length(0, 40),
            field("test", &T::test, "Share of the rows that nobody sees before the end.").range(0, 1),
            field("valid", &T::valid, "Share of the rows that decide when to stop.").range(0, 1)};
  }
};
template <>
struct Shape<recipe::Column> {
  using T = recipe::Column;
  static constexpr std::string_view name = "TrainingColumn";
  static Fields fields() {
    return {field("as", &T::as, "What it is taken for.").one_of(recipe::kAs),
            field("impute", &T::impute, "What stands in for a missing number.").one_of(recipe::kImputes),
            field("scale", &T::scale, "standard: to mean 0 and deviation 1.").one_of(recipe::kScales),
            field("log", &T::log, "Takes the logarithm of 1 + |x|, with the sign kept."),
            field("low", &T::low, "Smaller numbers become this one."),
            field("high", &T::high, "Larger numbers become this one."),
            field("buckets", &T::buckets, "Bounds; the number becomes the bucket it is in.").length(0, 1000),
            field("encode", &T::encode, "How a category reaches the model.").one_of(recipe::kEncodings),
            field("size", &T::size, "Entries of its vocabulary or table; 0 = chosen.").range(0, 1'000'000),
            field("height", &T::height, "Of an image, in pixels.").range(0, 4096),
            field("width", &T::width, "Of an image, in pixels.").range(0, 4096),
            field("channels", &T::channels, "Bytes of a pixel: 1 grey, 3 colours.").range(1, 16)};
  }
};
template <>
struct Shape<recipe::Cross> {
  using T = recipe::Cross;
  static constexpr std::string_view name = "TrainingCross";
  static Fields fields() {
    return {field("of", &T::of, "Two columns whose values together are a category.").required().length(2, 2),
            field("size", &T::size, "Entries of its vocabulary.").range(2, 1'000'000)};
  }
};
template <>
struct Shape<recipe::Trees> {
  using T = recipe::Trees;
  static constexpr std::string_view name = "TrainingTrees";
  static Fields fields() {
    return {
        field("rounds", &T::rounds, "Trees at most.").range(1, 100'000),
        field("depth", &T::depth, "Of a tree.").range(1, 16),
        field("learningRate", &T::learning_rate, "What each tree contributes.").range(0, 1),
        field("subsample", &T::subsample, "Share of rows that a tree sees.").range(0, 1),
        field(
            "columns", &T::columns,
            "Share of columns that a tree sees. Below 1, a run that was stopped and went on is as good, not the same.")
            .range(0, 1),
        field("lambda", &T::lambda, "L2 regularisation.").range(0, 1'000'000),
        field("childWeight", &T::child_weight, "Least weight of a leaf.").range(0, 1'000'000),
        field("monotone", &T::monotone, "Columns with which the prediction only rises (1) or falls (-1).")
            .length(0, 1000)};
  }
};
template <>
struct Shape<recipe::Checkpoints> {
  using T = recipe::Checkpoints;
  static constexpr std::string_view name = "TrainingCheckpoints";
  static Fields fields() {
    return {field("every", &T::every_us, "Time between two.").duration().range(0, std::int64_t{86'400} * 1'000'000),
            field("keep", &T::keep, "How many.").range(1, 100),
            field("store", &T::store_us, "Time between two copies of them into the blob store; 0 = none.")
                .duration()
                .range(0, std::int64_t{86'400} * 1'000'000)};
  }
};
template <>
struct Shape<recipe::Register> {
  using T = recipe::Register;
  static constexpr std::string_view name = "TrainingRegister";
  static Fields fields() {
    return {field("model", &T::model, "The registered model that gets a version; the training's name when absent.")
                .length(0, 256),
            field("alias", &T::alias, "Points at the new version.").length(0, 256),
            field("tolerance", &T::tolerance, "How far the exported model may be from the trained one.").range(0, 1)};
  }
};
template <>
struct Shape<recipe::Data> {
  using T = recipe::Data;
  static constexpr std::string_view name = "TrainingData";
  static Fields fields() {
    return {field("dataset", &T::dataset, "A version, flights@3; without @ the newest.").length(0, 256),
            field("service", &T::service, "A feature service: with a spine, instead of a dataset.").length(0, 256),
            field("spine", &T::spine, "A dataset with the entities, the times and the label.").length(0, 256)};
  }
};
template <>
struct Shape<recipe::Resources> {
  using T = recipe::Resources;
  static constexpr std::string_view name = "TrainingResources";
  static Fields fields() {
    return {
        field("cpus", &T::cpus, "Processors of each task.").range(0, 100'000),
        field("memory", &T::memory_bytes, "Memory of each task.").bytes().range(1 << 20, std::int64_t{1} << 50),
        field("tasks", &T::tasks, "Processes that train together.").range(1, 10'000),
        field("tasksMin", &T::tasks_min, "So many are enough to begin with; more join when there is room.")
            .range(1, 10'000),
        field("gpus", &T::gpus, "GPUs of each task.").range(0, 16),
        field("queue", &T::queue, "Where its job waits.").length(1, 127),
        field("priorityClass", &T::priority_class, "A PriorityClass.").length(0, 63),
        field("executor", &T::executor, "Where it runs.").length(0, 63),
        field("timeLimit", &T::time_limit_us, "It is stopped then; 0 = never.")
            .duration()
            .range(0, std::int64_t{366} * 86'400 * 1'000'000),
        field("preemptible", &T::preemptible, "Whether more urgent work may stop it; it goes on from its checkpoint."),
        field("grace", &T::grace_us, "Time to save what was learned when it is stopped.")
            .duration()
            .range(0, std::int64_t{86'400} * 1'000'000),
        field("disk", &T::disk_bytes, "What each task may write into its work directory; 0 = not limited.")
            .bytes()
            .range(0, std::int64_t{1} << 50),
        field("retries", &T::retries,
              "How often it is started again when it ends badly, but for what the recipe or the data are to blame for; "
              "3, of several tasks 10.")
            .range(0, 1000)};
  }
};
template <>
struct Shape<recipe::Training> {
  using T = recipe::Training;
  static constexpr std::string_view name = "TrainingSpec";
  static Fields fields() {
    return {
        field("data", &T::data, "What is learned from.").required(),
        field("label", &T::label, "The column to predict.").required().length(1, 256),
        field("objective", &T::objective, "What kind of prediction; auto: by the label.").one_of(recipe::kObjectives),
        field("weight", &T::weight, "A column: how much a row counts.").length(0, 256),
        field("group", &T::group, "A column: rows that are ranked against each other.").length(0, 256),
        field("features", &T::features, "Columns that the model sees; all others when absent.").length(0, 10'000),
        field("exclude", &T::exclude, "Columns that it does not see.").length(0, 10'000),
        field("split", &T::split, "What is learned from, what decides, what is held out."),
        field("columns", &T::columns, "Preprocessing by column, where it is not to be chosen.").length(0, 10'000),
        field("crosses", &T::crosses, "Pairs of categories that count together.").length(0, 100),
        field("model", &T::model, "auto tries a few within the budget.").one_of(recipe::kModels),
        field("trees", &T::trees, "Of model: xgboost."),
        field("network", &T::network, "Of model: network."),
        field("metric", &T::metric, "What decides which model is better.").one_of(recipe::kMetrics),
        field("patience", &T::patience, "Rounds or epochs without a gain after which training ends; 0 = never.")
            .range(0, 100'000),
        field("balance", &T::balance, "Rare classes count more."),
        field("profile", &T::profile, "Leaves a trace of where the time went, profile.json, for chrome://tracing."),
        field("referenceRows", &T::reference_rows,
              "Rows of the test that stay whole beside the model, for monitors that look at columns together; texts as "
              "codes. 0 = none.")
            .range(0, 10'000),
        field("parallel", &T::parallel, "How tasks work together."),
        field("checkpoints", &T::checkpoints, "How much can be lost, and how many are kept."),
        field("slices", &T::slices, "Columns by whose values the result is broken down.").length(0, 100),
        field("compare", &T::compare,
              "MODEL@ALIAS or MODEL/VERSION: run on the same test rows; an alias may be missing yet.")
            .length(0, 300),
        field("seed", &T::seed, "Equal seeds give equal models.").range(0, std::int64_t{1} << 31),
        field("budget", &T::budget_us, "Of model: auto.").duration().range(0, std::int64_t{366} * 86'400 * 1'000'000),
        field("experiment", &T::experiment, "Of the run; made when missing.").length(0, 500),
        field("register", &T::registered, "The registered model."),
        field("resources", &T::resources, "What its job asks for.")};
  }
};

}  // namespace falaj
