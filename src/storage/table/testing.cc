// SPDX-License-Identifier: Apache-2.0
#include "storage/table/testing.h"

#include <algorithm>

#include <fmt/format.h>

namespace falaj::table {

void MemorySource::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
}

std::vector<std::vector<std::string>> rows(Workspace& room, const std::string& sql, std::span<const Value> values) {
  std::vector<std::vector<std::string>> out;
  room.query(sql, values, [&](const Chunk& chunk) {
    for (std::size_t r = 0; r < chunk.rows(); ++r) {
      auto& row = out.emplace_back();
      for (std::size_t c = 0; c < chunk.columns(); ++c) {
        const auto type = chunk.type(c);
        if (chunk.is_null(c, r))
          row.emplace_back("null");
        else if (type == Type::text || type == Type::bytes)
          row.emplace_back(chunk.text(c, r));
        else if (type == Type::float32 || type == Type::float64)
          row.push_back(fmt::format("{}", chunk.real(c, r)));
        else
          row.push_back(fmt::format("{}", chunk.integer(c, r)));
      }
    }
    return true;
  });
  return out;
}

std::string parquet_text(Workspace& room, const Bytes& file) {
  room.put("parquet text", std::make_shared<MemorySource>(file));
  std::string out;
  room.query("SELECT t::VARCHAR FROM (SELECT t FROM read_parquet('parquet text') t)", {}, [&](const Chunk& chunk) {
    for (std::size_t i = 0; i < chunk.rows(); ++i) out += std::string(chunk.text(0, i)) + "\n";
    return true;
  });
  return out;
}

}  // namespace falaj::table
