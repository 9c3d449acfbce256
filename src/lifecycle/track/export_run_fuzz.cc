// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "foundation/base/error.h"
#include "lifecycle/track/export_run.h"

namespace {

using namespace falaj;
using namespace falaj::track;

// Gives a few bytes at a time, as a network does.
blob::Source in_pieces(std::string_view text, std::size_t piece) {
  return [text, piece](std::span<std::byte> out) mutable {
    const auto n = std::min({text.size(), out.size(), piece});
    std::memcpy(out.data(), text.data(), n);
    text.remove_prefix(n);
    return n;
  };
}

std::vector<PointsReader::Line> lines_of(std::string_view csv, std::size_t series, std::size_t piece) {
  std::vector<PointsReader::Line> out;
  PointsReader reader(in_pieces(csv, piece), series);
  while (const auto line = reader.next()) {
    CHECK(line->series < series && line->point.unix_ms >= 0, "a point out of its bounds");
    CHECK(out.empty() || out.back().series < line->series ||
              (out.back().series == line->series && before(out.back().point, line->point)),
          "a point out of order");
    out.push_back(*line);
  }
  return out;
}

// Refused with invalid, or points whose bits survive being written again, however the bytes come.
void read_points(std::string_view csv, std::size_t series, std::size_t piece) {
  std::vector<PointsReader::Line> lines;
  try {
    lines = lines_of(csv, series, piece);
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid, "refused with another code");
    return;
  }
  std::string text(kPointsHeader);
  for (const auto& line : lines) append_csv(text, line.series, line.point);
  const auto again = lines_of(text, series, 64 * 1024);
  CHECK(again.size() == lines.size(), "points were lost");
  for (std::size_t i = 0; i < lines.size(); ++i)
    CHECK(again[i].series == lines[i].series && again[i].point.unix_ms == lines[i].point.unix_ms &&
              again[i].point.step == lines[i].point.step &&
              std::bit_cast<std::uint64_t>(again[i].point.value) == std::bit_cast<std::uint64_t>(lines[i].point.value),
          "a point changed");
}

// Refused with invalid, or a run whose text stays what it is from then on.
void read_run(std::string_view text) {
  std::string once;
  try {
    once = to_text(parse_exported_run(text));
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid, "refused with another code");
    return;
  }
  CHECK(to_text(parse_exported_run(once)) == once, "a run changed");
}

}  // namespace

// The first byte: '{' begins a run.json; others say how many series there are and in what pieces points.csv comes,
// which has its titles whether or not the input does.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text[0] == '{') {
    read_run(text);
    return 0;
  }
  const auto series = std::size_t{data[0]} % 4, piece = std::size_t{data[0]} % 61 + 1;
  read_points(text.substr(1), series, piece);
  read_points(std::string(kPointsHeader) + std::string(text.substr(1)), series, piece);
  return 0;
}
