// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the protocol says about models, as JSON. Pure.

#include <span>
#include <string_view>
#include <vector>

#include "compute/protocol/inference.h"

namespace falaj::protocol {

inline constexpr std::string_view kServerName = "falaj-serve";
inline constexpr std::string_view kServerVersion = "0.1.0";
// Extensions of the protocol that exist here. A client may rely on each.
inline constexpr std::string_view kExtensions[] = {"classification",      "model_repository",   "schedule_policy",
                                                   "model_configuration", "binary_tensor_data", "parameters",
                                                   "statistics"};

graph::Sizes shape_of(const graph::Port& port);  // -1 for what each call decides
// Without the rows, when the model is called with many of them: as a model's configuration counts dimensions.
graph::Sizes dims_of(const graph::Port& port, const Description& model);
inline bool has_rows(const Description& model) { return model.rows_first && model.rows_max > 0; }

json::value server_metadata();
json::value metadata(const Description& model);
json::value configuration(const Description& model);
json::value statistics(std::span<const Statistics> models);
json::value index(std::span<const IndexEntry> models);
// OpenAPI 3.1 of the calls to one model.
json::value openapi(const Description& model);

}  // namespace falaj::protocol
