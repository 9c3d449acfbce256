// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/labelled.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "lifecycle/serving/predictions.h"

namespace falaj::watch {
namespace {

constexpr std::int64_t kSlackUs = 3'600'000'000;  // between when a prediction is called and when it was written down
constexpr std::size_t kAnswerMax = 10'000;

// What a log holds of an output: a number, or a list of them as JSON. Empty where it is neither.
std::vector<double> answer_in(std::string_view text) {
  std::vector<double> out;
  try {
    const auto value = parse_json(text);
    if (value.is_number()) return {value.to_number<double>()};
    if (value.is_bool()) return {value.get_bool() ? 1.0 : 0.0};
    if (!value.is_array() || value.get_array().size() > kAnswerMax) return {};
    for (const auto& one : value.get_array()) {
      if (!one.is_number()) return {};
      out.push_back(one.to_number<double>());
    }
  } catch (const Error&) {
    return {};
  }
  return out;
}

// Microseconds since 1970 of a column that holds them, a time, or the text of one.
std::string moment_of(const table::Column& column) {
  const auto name = "p." + table::identifier(column.name);
  switch (column.type) {
    case table::Type::int32:
    case table::Type::int64:
    case table::Type::float64:
      return fmt::format("CAST({} AS BIGINT)", name);
    case table::Type::timestamp:
    case table::Type::date:
      return fmt::format("epoch_us(CAST({} AS TIMESTAMP))", name);
    default:
      return fmt::format("epoch_us(TRY_CAST({} AS TIMESTAMP))", name);
  }
}

}  // namespace

std::vector<std::optional<Labelled>> join(data::Datasets& datasets, const Where& where, const std::string& endpoint,
                                          const PerformanceSpec& spec, const std::vector<CameLabel>& labels,
                                          std::string* why_not) {
  std::vector<std::optional<Labelled>> out(labels.size());
  const auto dataset = serving::predictions_dataset(endpoint);
  std::optional<data::Version> version;
  try {
    version = datasets.version(where, dataset, std::nullopt);
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    *why_not = fmt::format("nothing is in {} yet", dataset);
    return out;
  }
  const auto column = [&](std::string_view prefix, const std::string& name, const char* field) {
    const auto* found = table::find(version->schema, fmt::format("{}{}", prefix, name));
    if (!found) *why_not = fmt::format("{} has no column {}{}: see performance.{}", dataset, prefix, name, field);
    return found;
  };
  const auto* answer = column("out_", spec.output, "output");
  const auto* time = spec.time.empty() ? nullptr : column("in_", spec.time, "time");
  if (!answer || (!spec.time.empty() && !time)) return out;

  const auto room = datasets.room();
  datasets.open(*room, where, *version, "p");
  room->run("CREATE TABLE wanted(id VARCHAR, place BIGINT)");
  auto filler = room->fill("wanted");
  std::int64_t first = INT64_MAX, last = INT64_MIN;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    filler.add(labels[i].prediction);
    filler.add(static_cast<std::int64_t>(i));
    filler.end_row();
    first = std::min(first, labels[i].predicted_us);
    last = std::max(last, labels[i].predicted_us);
  }
  filler.finish();
  room->query(
      fmt::format("SELECT wanted.place, CAST(p.{} AS VARCHAR), {} FROM p JOIN wanted ON p.prediction_id = wanted.id "
                  "WHERE p.time >= make_timestamp({}) AND p.time <= make_timestamp({})",
                  table::identifier(answer->name), time ? moment_of(*time) : "CAST(NULL AS BIGINT)", first - kSlackUs,
                  last + kSlackUs),
      {}, [&](const table::Chunk& chunk) {
        for (std::size_t i = 0; i < chunk.rows(); ++i) {
          const auto place = static_cast<std::size_t>(chunk.integer(0, i));
          Labelled row{labels[place].predicted_us, labels[place].value, {}};
          if (!chunk.is_null(1, i)) row.answer = answer_in(chunk.text(1, i));
          if (time && !chunk.is_null(2, i)) row.at_us = chunk.integer(2, i);
          out[place] = std::move(row);
        }
        return true;
      });
  return out;
}

Bytes encode_labelled(const std::vector<Labelled>& rows) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(rows.size()));
  for (const auto& row : rows) {
    out.u64(static_cast<std::uint64_t>(row.at_us));
    out.u64(std::bit_cast<std::uint64_t>(row.label));
    out.u32(static_cast<std::uint32_t>(row.answer.size()));
    for (const double one : row.answer) out.u64(std::bit_cast<std::uint64_t>(one));
  }
  return out.take();
}

std::vector<Labelled> decode_labelled(BytesView bytes) {
  ByteReader in(bytes);
  std::vector<Labelled> out;
  for (auto rows = in.u32(); rows > 0; --rows) {
    Labelled row;
    row.at_us = static_cast<std::int64_t>(in.u64());
    row.label = std::bit_cast<double>(in.u64());
    for (auto many = in.u32(); many > 0; --many) row.answer.push_back(std::bit_cast<double>(in.u64()));
    out.push_back(std::move(row));
  }
  in.expect_end();
  return out;
}

}  // namespace falaj::watch
