// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/counts.h"

#include <algorithm>
#include <bit>

namespace falaj::serve {

void Counts::count_calls(std::uint32_t how_many, std::uint32_t rows_in_all, std::int64_t took_us) {
  calls.fetch_add(how_many, std::memory_order_relaxed);
  rows.fetch_add(rows_in_all, std::memory_order_relaxed);
  const auto each = std::max(rows_in_all / how_many, 1u);
  by_rows[std::min<std::size_t>(std::bit_width(each) - 1, kSizes - 1)].add(took_us);
}

std::vector<protocol::BatchStatistics> Counts::batches() const {
  std::vector<protocol::BatchStatistics> out;
  for (std::size_t i = 0; i < kSizes; ++i) {
    const auto spent = by_rows[i].read();
    if (spent.count > 0) out.push_back({std::uint64_t{1} << i, {}, spent, {}});
  }
  return out;
}

}  // namespace falaj::serve
