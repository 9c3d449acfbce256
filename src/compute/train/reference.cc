// SPDX-License-Identifier: Apache-2.0
#include "compute/train/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "foundation/base/json.h"
#include "foundation/stats/blocks.h"
#include "foundation/stats/calibration.h"
#include "foundation/stats/frequent.h"
#include "foundation/stats/quantiles.h"

namespace falaj::train {
namespace {

constexpr std::size_t kBlocks = 32;
constexpr std::size_t kBlockRowsMin = 16;  // of fewer, nothing is said about blocks
constexpr std::uint32_t kNumbers = 1'024, kBlockNumbers = 256, kBlockTexts = 64;

json::array told(const std::vector<stats::BlockScale>& scales) {
  json::array out;
  for (const auto& scale : scales) {
    json::array ratios;
    for (const double ratio : scale.ratios) ratios.push_back(std::round(ratio * 1e4) / 1e4);
    out.push_back(json::object{{"rows", std::llround(scale.rows)}, {"ratios", std::move(ratios)}});
  }
  return out;
}

// A column, whole and in consecutive blocks: how much these differ says how much later windows may.
class Column {
 public:
  explicit Column(std::size_t rows_in_all) : rows_in_all_(rows_in_all) {
    if (rows_in_all < kBlocks * kBlockRowsMin) return;
    block_numbers_.assign(kBlocks, stats::Quantiles(kBlockNumbers));
    block_texts_.assign(kBlocks, stats::Frequent(kBlockTexts));
    block_rows_.assign(kBlocks, 0);
    block_missing_.assign(kBlocks, 0);
  }

  void add(double value) {
    const auto block = next(!std::isfinite(value));
    if (!std::isfinite(value)) return;
    numbers_.add(stats::coarse(value));
    if (block < kBlocks) block_numbers_[block].add(stats::coarse(value));
  }
  void add(std::string_view value) {
    const auto block = next(value.empty());
    if (value.empty()) return;
    texts_.add(value);
    if (block < kBlocks) block_texts_[block].add(value);
  }

  json::object told_as(bool text, std::string_view kind) const {
    ByteWriter out;
    text ? texts_.encode(out) : numbers_.encode(out);
    json::object object{{"rows", rows_},
                        {"missing", missing_},
                        {"kind", kind},
                        {text ? "frequent" : "quantiles", to_base64(out.bytes())}};
    if (block_rows_.empty()) return object;
    object["blocks"] = told(text ? stats::block_scales(block_texts_) : stats::block_scales(block_numbers_));
    object["missing_blocks"] = told(stats::block_scales(block_missing_, block_rows_));
    return object;
  }

 private:
  // The block of the next row; kBlocks: there are none.
  std::size_t next(bool is_missing) {
    const auto block =
        block_rows_.empty() ? kBlocks : std::min<std::size_t>(kBlocks - 1, rows_ * kBlocks / rows_in_all_);
    ++rows_;
    missing_ += is_missing ? 1 : 0;
    if (block == kBlocks) return block;
    ++block_rows_[block];
    block_missing_[block] += is_missing ? 1 : 0;
    return block;
  }

  const std::size_t rows_in_all_;
  std::uint64_t rows_ = 0, missing_ = 0;
  stats::Quantiles numbers_{kNumbers};
  stats::Frequent texts_;
  std::vector<stats::Quantiles> block_numbers_;
  std::vector<stats::Frequent> block_texts_;
  std::vector<double> block_rows_, block_missing_;
};

std::string calibration_of(std::span<const float> predictions, std::span<const float> labels) {
  std::vector<std::pair<double, bool>> scored;
  for (std::size_t i = 0; i < predictions.size(); ++i)
    if (std::isfinite(predictions[i])) scored.emplace_back(stats::coarse(double{predictions[i]}), labels[i] > 0.5F);
  ByteWriter out;
  stats::Calibration::learn(std::move(scored)).encode(out);
  return to_base64(out.bytes());
}

}  // namespace

std::string reference_text(loader::Rows& rows, std::span<const float> predictions, std::span<const float> labels) {
  const auto& problem = rows.problem();
  const auto many = problem.rows[static_cast<std::size_t>(loader::Part::test)];
  std::vector<Column> columns(problem.columns.size(), Column(many));
  Column brightness(many);
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
    inputs[problem.columns[c].name] =
        columns[c].told_as(problem.columns[c].kind == graph::Kind::text, graph::name(problem.columns[c].kind));
  if (problem.image) inputs[problem.image->column] = brightness.told_as(false, "brightness");
  std::vector<Column> outputs(problem.outputs(), Column(predictions.size() / problem.outputs()));
  for (std::size_t i = 0; i < predictions.size(); ++i) outputs[i % outputs.size()].add(double{predictions[i]});
  json::array of_outputs;
  for (const auto& output : outputs) of_outputs.push_back(output.told_as(false, "prediction"));
  json::object out{{"version", 2}, {"inputs", std::move(inputs)}, {"predictions", std::move(of_outputs)}};
  if (problem.objective == loader::Objective::binary && labels.size() == predictions.size())
    out["calibration"] = calibration_of(predictions, labels);
  return json::serialize(out) + "\n";
}

}  // namespace falaj::train
