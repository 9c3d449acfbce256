// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// The words that may stand in a recipe where one of a few is to be chosen.
namespace falaj::recipe {

inline constexpr std::string_view kSplits[] = {"auto", "time", "group", "part", "random"};
inline constexpr std::string_view kAs[] = {"auto", "number", "category", "time", "image", "ignore"};
inline constexpr std::string_view kImputes[] = {"", "mean", "median", "zero"};
inline constexpr std::string_view kScales[] = {"", "standard", "none"};
inline constexpr std::string_view kEncodings[] = {"", "onehot", "embed", "hash"};
inline constexpr std::string_view kObjectives[] = {"auto", "binary", "multiclass", "regression", "ranking"};
inline constexpr std::string_view kModels[] = {"auto", "xgboost", "network"};
inline constexpr std::string_view kNetworks[] = {"auto", "linear", "mlp", "resnet", "cnn", "mobilenet", "efficientnet"};
inline constexpr std::string_view kLayers[] = {"linear", "relu", "relu6", "silu",     "norm",    "dropout",
                                               "keep",   "add",  "conv",  "max_pool", "average", "flatten"};
inline constexpr std::string_view kOptimisers[] = {"adamw", "adam", "sgd"};
inline constexpr std::string_view kSchedules[] = {"cosine", "linear", "constant"};
inline constexpr std::string_view kPrecisions[] = {"fp32", "bf16", "fp16"};
inline constexpr std::string_view kCompressions[] = {"none", "fp16", "bf16", "topk", "powersgd"};
inline constexpr std::string_view kUpdates[] = {"synchronous", "asynchronous", "bounded"};
inline constexpr std::string_view kModes[] = {"none", "data", "server", "pipeline", "tensor"};
inline constexpr std::string_view kMetrics[] = {"", "auc", "logloss", "accuracy", "rmse", "mae", "ndcg"};

}  // namespace falaj::recipe
