// SPDX-License-Identifier: Apache-2.0
#include "compute/train/reference.h"

#include <cmath>
#include <numeric>

#include "foundation/base/json.h"
#include "foundation/stats/frequent.h"
#include "foundation/stats/quantiles.h"

namespace falaj::train {
namespace {

struct Column {
  std::uint64_t rows = 0, missing = 0;
  stats::Quantiles numbers;
  stats::Frequent texts;

  void add(double value) {
    rows += 1;
    if (std::isfinite(value))
      numbers.add(value);
    else
      missing += 1;
  }
  void add(std::string_view value) {
    rows += 1;
    if (value.empty())
      missing += 1;
    else
      texts.add(value);
  }
  json::object told(bool text) const {
    ByteWriter out;
    text ? texts.encode(out) : numbers.encode(out);
    return {{"rows", rows}, {"missing", missing}, {text ? "frequent" : "quantiles", to_base64(out.bytes())}};
  }
};

}  // namespace

std::string reference_text(loader::Rows& rows, std::span<const float> predictions) {
  const auto& problem = rows.problem();
  std::vector<Column> columns(problem.columns.size());
  Column brightness;
  rows.each_batch(loader::Part::test, [&](const loader::Rows::Raw& batch) {
    const auto size = batch.rows > 0 ? batch.pixels.size() / batch.rows : 0;
    for (std::size_t i = 0; size > 0 && i < batch.rows; ++i) {
      const auto pixels = batch.pixels.subspan(i * size, size);
      brightness.add(std::accumulate(pixels.begin(), pixels.end(), 0.0) / (255.0 * static_cast<double>(size)));
    }
    for (std::size_t c = 0; c < columns.size(); ++c)
      std::visit(
          [&](const auto& values) {
            for (const auto& value : values) {
              if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string_view>)
                columns[c].add(value);
              else
                columns[c].add(static_cast<double>(value));
            }
          },
          batch.columns[c]);
    return true;
  });
  json::object inputs;
  for (std::size_t c = 0; c < columns.size(); ++c)
    inputs[problem.columns[c].name] = columns[c].told(problem.columns[c].kind == graph::Kind::text);
  if (problem.image) inputs[problem.image->column] = brightness.told(false);
  std::vector<Column> outputs(problem.outputs());
  for (std::size_t i = 0; i < predictions.size(); ++i) outputs[i % outputs.size()].add(double{predictions[i]});
  json::array of_outputs;
  for (const auto& output : outputs) of_outputs.push_back(output.told(false));
  return json::serialize(
             json::object{{"version", 1}, {"inputs", std::move(inputs)}, {"predictions", std::move(of_outputs)}}) +
         "\n";
}

}  // namespace falaj::train
