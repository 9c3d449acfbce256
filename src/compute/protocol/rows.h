// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows instead of tensors: named fields (POST .../predict), and the protocol's version 1. Pure.

#include <string_view>

#include "compute/protocol/tensors.h"

namespace falaj::protocol {

inline constexpr std::size_t kRowsMax = 100'000;  // that one request may hold as JSON

// {"rows": [{...}], "timeout_us"?: 0, "explain"?: true, "as_of"?: "2001-01-31T10:00:00Z"}. Model and version are not
// set. Throws invalid.
Predict decode_predict(std::string_view body);
json::value encode_predicted(Predicted predicted);  // {"model", "version", "rows", and what served them}

// {"instances": [...]}.
json::array decode_instances(std::string_view body);
// Each instance a row of the model's one input: a value, or arrays of them. Throws invalid.
Asked tensor_of_instances(const json::array& instances, const Description& model);
// {"predictions": [...]}: of a model with one output its rows, of another an object a row.
json::value predictions_of(const Answer& answer);

void check_load(std::string_view body);         // of a load: parameters that would change the model are refused
bool decode_only_ready(std::string_view body);  // of the index: "" or {"ready": true}

}  // namespace falaj::protocol
