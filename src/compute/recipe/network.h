// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a recipe says of a network, and of how several tasks learn it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compute/recipe/words.h"
#include "foundation/base/shape.h"

namespace falaj::recipe {

// One layer of one's own network.
struct Layer {
  std::string op;
  std::int64_t size = 0;  // numbers that come out of a linear layer, channels of a convolution
  std::int64_t kernel = 3, stride = 1, groups = 1;
  double share = 0.1;  // of dropout
};

struct Network {
  std::string kind = "auto";  // linear, mlp, resnet; images: cnn, mobilenet, efficientnet; auto: mlp or cnn
  std::vector<std::int64_t> hidden = {256, 128};
  std::vector<Layer> layers;  // instead of a kind
  double dropout = 0.1, width = 1;
  std::int64_t epochs = 10;
  std::string batch = "1024";  // or auto
  std::string optimiser = "adamw";
  double learning_rate = 0.002, weight_decay = 0.01, momentum = 0.9;
  std::string schedule = "cosine";
  double warmup = 0.05;  // share of all steps
  double clip = 1;       // of the gradient's norm; 0 = none
  std::int64_t accumulate = 1;
  std::string precision = "fp32";
  bool augment = false;
};

struct Parallel {
  std::string mode = "none";  // data, server, pipeline, tensor
  std::int64_t spares = 0;    // tasks that stand by, beside those of resources
  // data:
  std::string compress = "none";  // fp16, bf16, topk, powersgd
  double keep = 0.01;             // topk
  std::int64_t rank = 4;          // powersgd
  bool shard_optimiser = false;
  // server:
  std::int64_t servers = 1;            // of the tasks
  std::string update = "synchronous";  // asynchronous, bounded
  std::int64_t staleness = 4;          // bounded
  // pipeline:
  std::int64_t micro_batches = 0;  // 0 = four for each stage
};

std::optional<std::int64_t> batch_size(const Network& network);  // nothing: auto

}  // namespace falaj::recipe

namespace falaj {

template <>
struct Shape<recipe::Layer> {
  using T = recipe::Layer;
  static constexpr std::string_view name = "TrainingLayer";
  static Fields fields() {
    return {field("op", &T::op, "What it does.").required().one_of(recipe::kLayers),
            field("size", &T::size, "Numbers that come out of linear, channels of conv.").range(0, 1 << 20),
            field("kernel", &T::kernel, "Pixels each way that conv looks at; odd.").range(1, 31),
            field("stride", &T::stride, "Pixels that conv moves on by.").range(1, 16),
            field("groups", &T::groups, "Of channels that conv keeps apart.").range(1, 1 << 20),
            field("share", &T::share, "Of activations that dropout leaves out while training; below 1.").range(0, 1)};
  }
};
template <>
struct Shape<recipe::Network> {
  using T = recipe::Network;
  static constexpr std::string_view name = "TrainingNetwork";
  static Fields fields() {
    return {field("kind", &T::kind, "Its architecture; auto: mlp, or cnn of images.").one_of(recipe::kNetworks),
            field("hidden", &T::hidden, "Sizes of its hidden layers.").length(0, 64),
            field("layers", &T::layers, "One's own network, layer by layer, instead of a kind; the last one is added.")
                .length(0, 1000),
            field("dropout", &T::dropout, "Share of activations left out while training.").range(0, 1),
            field("width", &T::width, "Factor on the channels of an image network.").range(0, 8),
            field("epochs", &T::epochs, "Passes over the rows at most.").range(1, 100'000),
            field("batch", &T::batch, "Rows a step, or auto: as many as memory allows and as pay.").length(1, 12),
            field("optimiser", &T::optimiser, "How weights are moved.").one_of(recipe::kOptimisers),
            field("learningRate", &T::learning_rate, "At its highest.").range(0, 100),
            field("weightDecay", &T::weight_decay, "Of adamw and sgd.").range(0, 100),
            field("momentum", &T::momentum, "Of sgd.").range(0, 1),
            field("schedule", &T::schedule, "How the learning rate falls.").one_of(recipe::kSchedules),
            field("warmup", &T::warmup, "Share of the steps in which it rises first.").range(0, 1),
            field("clip", &T::clip, "Largest norm of the gradient; 0 = any.").range(0, 1'000'000),
            field("accumulate", &T::accumulate, "Batches whose gradients make one step.").range(1, 10'000),
            field("precision", &T::precision, "Of the arithmetic.").one_of(recipe::kPrecisions),
            field("augment", &T::augment, "Images are seen a little shifted and mirrored, each time in another way.")};
  }
};
template <>
struct Shape<recipe::Parallel> {
  using T = recipe::Parallel;
  static constexpr std::string_view name = "TrainingParallel";
  static Fields fields() {
    return {
        field("mode", &T::mode,
              "How several tasks share the work: the rows (data), the rows with servers for the weights (server), the "
              "layers (pipeline), or each layer (tensor).")
            .one_of(recipe::kModes),
        field("spares", &T::spares, "Tasks that stand by, beside those of resources, and take a lost one's place.")
            .range(0, 1000),
        field("compress", &T::compress, "data: how gradients are made smaller on their way.")
            .one_of(recipe::kCompressions),
        field("keep", &T::keep, "topk: the share of a gradient that is sent; above 0.").range(0, 1),
        field("rank", &T::rank, "powersgd: how many columns stand for a matrix.").range(1, 64),
        field("shardOptimiser", &T::shard_optimiser, "data: each task has the optimiser's state of its part only."),
        field("servers", &T::servers, "server: so many of the tasks hold the weights.").range(1, 1000),
        field("update", &T::update, "server: whether steps are made of all tasks' gradients or of each as it comes.")
            .one_of(recipe::kUpdates),
        field("staleness", &T::staleness, "bounded: steps that a task may be ahead of the last.").range(0, 1000),
        field("microBatches", &T::micro_batches, "pipeline: parts of a step; 0 = four for each task.")
            .range(0, 10'000)};
  }
};

}  // namespace falaj
