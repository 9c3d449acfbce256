// SPDX-License-Identifier: Apache-2.0
// Any bytes are refused as corrupt, or are a transform that works on a batch and is written as it was read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "compute/graph/transform.h"

using namespace falaj;
using namespace falaj::graph;

namespace {

// A few rows of any column.
const double kReals[] = {0, -1.5, 1e300, 0.0 / 0.0};
const float kFloats[] = {0, -1.5F, 1e30F, 0.0F / 0.0F};
const std::int64_t kWhole[] = {0, -1, INT64_MAX, INT64_MIN};
const std::uint8_t kBooleans[] = {0, 1, 1, 0};
const std::string_view kTexts[] = {"", "a", "b", "\xff"};

Batch rows_of(const std::vector<Column>& columns) {
  Batch out{4, {}};
  for (const auto& column : columns) {
    switch (column.element()) {
      case Element::float64:
        out.columns.emplace_back(std::span<const double>(kReals));
        break;
      case Element::float32:
        out.columns.emplace_back(std::span<const float>(kFloats));
        break;
      case Element::int64:
        out.columns.emplace_back(std::span<const std::int64_t>(kWhole));
        break;
      case Element::boolean:
        out.columns.emplace_back(std::span<const std::uint8_t>(kBooleans));
        break;
      default:
        out.columns.emplace_back(std::span<const std::string_view>(kTexts));
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const BytesView bytes{reinterpret_cast<const std::byte*>(data), size};
  try {
    const auto transform = Transform::decode(bytes);
    if (Transform::decode(transform.encode()) != transform) std::abort();
    std::vector<float> floats(4 * transform.float_names().size());
    std::vector<std::int64_t> ids(4 * transform.ids().size());
    transform.apply(rows_of(transform.columns()), floats, ids);
    for (std::size_t at = 0; at < ids.size(); ++at)
      if (ids[at] < 0 || static_cast<std::size_t>(ids[at]) >= transform.ids()[at % transform.ids().size()].cardinality)
        std::abort();
  } catch (const Error& error) {
    if (error.code() != Code::corrupt) std::abort();
  }
  return 0;
}
