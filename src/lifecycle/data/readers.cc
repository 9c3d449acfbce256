// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/readers.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"

namespace falaj::data {
namespace {

std::string struct_of(const table::Schema& columns) {
  std::string out;
  for (const auto& c : columns)
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", table::literal(c.name),
                       table::literal(table::sql_name(c.type)));
  return "{" + out + "}";
}

// How deep values are nested in one line of JSON that was parsed already.
std::size_t depth_of(std::string_view line) {
  std::size_t depth = 0, deepest = 0;
  bool text = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (text) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        text = false;
    } else if (c == '"') {
      text = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

bool is_gzip(const table::Source& source) {
  std::byte head[2] = {};
  if (source.size() < sizeof head) return false;
  source.read(0, head);
  return head[0] == std::byte{0x1f} && head[1] == std::byte{0x8b};
}

std::string reader(Format format, bool gzip, const table::Schema& declared) {
  const auto compression = gzip ? "gzip" : format == Format::csv ? "none" : "uncompressed";
  const auto types = declared.empty() ? "" : ", types = " + struct_of(declared);
  switch (format) {
    case Format::csv:
      return fmt::format("read_csv('in', compression = '{}'{})", compression, types);
    case Format::jsonl:
      return declared.empty()
                 ? fmt::format("read_json('in', format = 'newline_delimited', compression = '{}')", compression)
                 : fmt::format("read_json('in', format = 'newline_delimited', compression = '{}', columns = {})",
                               compression, struct_of(declared));
    case Format::parquet:
      return "read_parquet('in')";
  }
  CHECK(false, "every format has a reader");
  return "";
}

// The engine guesses types with a function that calls itself for every level, as deep as the data says: what is nested
// without end would end the process. Its parser does not, so lines are looked at first as they are.
void refuse_deep(table::Workspace& room, bool gzip, const table::Workspace::Watch& watch) {
  std::int64_t row = 0;
  room.query(
      fmt::format("SELECT json::VARCHAR FROM read_ndjson_objects('in', compression = '{}')",
                  gzip ? "gzip" : "uncompressed"),
      {},
      [&](const table::Chunk& chunk) {
        for (std::size_t i = 0; i < chunk.rows(); ++i) {
          ++row;
          if (!chunk.is_null(0, i) && depth_of(chunk.text(0, i)) > kJsonDepthMax)
            throw Error(Code::invalid, fmt::format("row {}: values are nested more than {} deep", row, kJsonDepthMax));
        }
        return true;
      },
      watch);
}

}  // namespace falaj::data
