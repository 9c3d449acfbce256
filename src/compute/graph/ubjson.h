// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private to graph: reading Universal Binary JSON as XGBoost writes it.

#include "foundation/base/bytes.h"
#include "foundation/base/json.h"

namespace falaj::graph {

// One value and nothing after it, nested at most kJsonDepthMax deep, of at most `values_max` values. Throws invalid
// with the byte it failed at.
json::value parse_ubjson(BytesView bytes, std::size_t values_max = 200'000'000);

}  // namespace falaj::graph
