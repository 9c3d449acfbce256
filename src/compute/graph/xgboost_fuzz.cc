// SPDX-License-Identifier: Apache-2.0
// Any bytes are refused as invalid, or are trees that predict something for any row and can be written as a graph.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "compute/graph/trees.h"
#include "foundation/base/text.h"

using namespace falaj;
using namespace falaj::graph;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto trees = parse_xgboost({reinterpret_cast<const std::byte*>(data), size});
    if (trees.features > 1'000 || trees.outputs > 1'000) return 0;
    for (const float value : {0.0F, 3.0F, std::nanf(""), -INFINITY}) {
      const std::vector<float> row(trees.features, value);
      std::vector<float> out(trees.outputs);
      trees.predict(row, out);
    }
    Graph graph;
    trees.emit(graph, graph.add_input("x", Element::float32, {}));
  } catch (const Error& error) {
    if (error.code() != Code::invalid || !is_utf8(error.what())) std::abort();
  }
  return 0;
}
