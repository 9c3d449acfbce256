// SPDX-License-Identifier: Apache-2.0
#include "compute/train/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "foundation/base/json.h"
#include "foundation/stats/blocks.h"
#include "foundation/stats/calibration.h"
#include "foundation/stats/frequent.h"
#include "foundation/stats/outcomes.h"
#include "foundation/stats/quantiles.h"
#include "foundation/stats/row_sample.h"

namespace falaj::train {
namespace {

constexpr std::size_t kBlocks = 32;
constexpr std::size_t kBlockRowsMin = 16;   // of fewer, nothing is said about blocks
constexpr std::size_t kColumnsAtOnce = 64;  // some hundred kilobytes each: of more, the rows are read again
static_assert(kColumnsAtOnce <= stats::RowSample::kWidthMax);
constexpr std::uint32_t kNumbers = 1'024, kBlockNumbers = 256, kBlockTexts = 64;

json::array told(const std::vector<stats::BlockScale>& scales) {
  json::array out;
  for (const auto& scale : scales) {
    json::array ratios;
    for (const double ratio : scale.ratios) ratios.push_back(std::round(ratio * 1e4) / 1e4);
    json::object one{{"rows", std::llround(scale.rows)}, {"ratios", std::move(ratios)}};
    if (scale.marks > 0) one["marks"] = scale.marks;
    out.push_back(std::move(one));
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
    object["marks"] = told(text ? stats::mark_scales(block_texts_) : stats::mark_scales(block_numbers_));
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

// Rows whole, of the first columns, which are read together, without times, which move on by themselves.
class WholeRows {
 public:
  WholeRows(const loader::Problem& problem, std::int64_t many) {
    if (many == 0) return;
    std::vector<stats::RowSample::Column> columns;
    for (std::size_t c = 0; c < std::min(problem.columns.size(), kColumnsAtOnce); ++c) {
      const auto& column = problem.columns[c];
      if (column.kind == graph::Kind::timestamp) continue;
      columns.push_back({column.name, column.kind == graph::Kind::text});
      places_.push_back(c);
    }
    if (!columns.empty()) sample_ = stats::RowSample(std::move(columns), static_cast<std::uint32_t>(many));
  }
  void add(const loader::Rows::Raw& batch) {
    if (places_.empty()) return;
    std::vector<double> row(places_.size());
    for (std::size_t i = 0; i < batch.rows; ++i) {
      for (std::size_t c = 0; c < places_.size(); ++c)
        row[c] = std::visit([&](const auto& values) { return number_of(values[i]); }, batch.columns[places_[c]]);
      sample_.add(stats::RowSample::key(1, next_++), row);
    }
  }
  std::string encoded() const {
    ByteWriter out;
    sample_.encode(out);
    return to_base64(out.bytes());
  }
  bool empty() const { return places_.empty(); }

 private:
  template <class T>
  static double number_of(const T& value) {
    if constexpr (std::is_same_v<T, std::string_view>)
      return value.empty() ? std::numeric_limits<double>::quiet_NaN() : stats::text_code(value);
    else
      return stats::coarse(static_cast<double>(value));
  }
  stats::RowSample sample_;
  std::vector<std::size_t> places_;
  std::uint64_t next_ = 0;
};

std::string calibration_of(std::span<const float> predictions, std::span<const float> labels) {
  std::vector<std::pair<double, bool>> scored;
  for (std::size_t i = 0; i < predictions.size(); ++i)
    if (std::isfinite(predictions[i])) scored.emplace_back(stats::coarse(double{predictions[i]}), labels[i] > 0.5F);
  ByteWriter out;
  stats::Calibration::learn(std::move(scored)).encode(out);
  return to_base64(out.bytes());
}

std::optional<stats::Task> task_of(loader::Objective objective) {
  switch (objective) {
    case loader::Objective::binary:
      return stats::Task::binary;
    case loader::Objective::multiclass:
      return stats::Task::classes;
    case loader::Objective::regression:
      return stats::Task::regression;
    case loader::Objective::ranking:
      break;
  }
  return std::nullopt;
}

// How well the model did, and how much consecutive blocks of rows differ in that.
json::object performance_of(stats::Task task, std::span<const float> predictions, std::span<const float> labels) {
  const auto width = predictions.size() / labels.size();
  const bool blocks = labels.size() >= kBlocks * kBlockRowsMin;
  std::vector<stats::Outcomes> pieces(blocks ? kBlocks : 1, stats::Outcomes(task));
  std::vector<double> answer(width);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = predictions.subspan(i * width, width);
    std::copy(row.begin(), row.end(), answer.begin());
    pieces[i * pieces.size() / labels.size()].add(answer, double{labels[i]});
  }
  const auto effects = stats::effects_of(pieces);
  stats::Outcomes whole(task);
  for (const auto& piece : pieces) whole.merge(piece);
  ByteWriter out;
  whole.encode(out);
  return {{"task", stats::name(task)},
          {"outcomes", to_base64(out.bytes())},
          {"effects", json::object{{"wrong", effects.wrong}, {"loss", effects.loss}, {"auc", effects.auc}}}};
}

// Sketches of `count` of the columns, from the `first` on; of images one, of how bright they are.
void sketch_inputs(loader::Rows& rows, std::size_t first, std::size_t count, WholeRows& whole, json::object& inputs) {
  const auto& problem = rows.problem();
  const auto many = problem.rows[static_cast<std::size_t>(loader::Part::test)];
  std::vector<Column> columns(count, Column(many));
  Column brightness(many);
  rows.each_batch(loader::Part::test, first, count, [&](const loader::Rows::Raw& batch) {
    const auto size = batch.rows > 0 ? batch.pixels.size() / batch.rows : 0;
    for (std::size_t i = 0; size > 0 && i < batch.rows; ++i) {
      const auto pixels = batch.pixels.subspan(i * size, size);
      brightness.add(std::accumulate(pixels.begin(), pixels.end(), 0.0) / (255.0 * static_cast<double>(size)));
    }
    if (first == 0) whole.add(batch);
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
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto& column = problem.columns[first + c];
    inputs[column.name] = columns[c].told_as(column.kind == graph::Kind::text, graph::name(column.kind));
  }
  if (problem.image) inputs[problem.image->column] = brightness.told_as(false, "brightness");
}

}  // namespace

std::string reference_text(loader::Rows& rows, std::span<const float> predictions, std::span<const float> labels,
                           std::int64_t whole) {
  const auto& problem = rows.problem();
  WholeRows whole_rows(problem, whole);
  json::object inputs;
  std::size_t first = 0;
  do {  // once for images, too, which have no columns
    const auto count = std::min(kColumnsAtOnce, problem.columns.size() - first);
    sketch_inputs(rows, first, count, whole_rows, inputs);
    first += count;
  } while (first < problem.columns.size());
  std::vector<Column> outputs(problem.outputs(), Column(predictions.size() / problem.outputs()));
  for (std::size_t i = 0; i < predictions.size(); ++i) outputs[i % outputs.size()].add(double{predictions[i]});
  json::array of_outputs;
  for (const auto& output : outputs) of_outputs.push_back(output.told_as(false, "prediction"));
  json::object out{{"version", 3}, {"inputs", std::move(inputs)}, {"predictions", std::move(of_outputs)}};
  if (problem.objective == loader::Objective::binary && labels.size() == predictions.size())
    out["calibration"] = calibration_of(predictions, labels);
  if (const auto task = task_of(problem.objective); task && labels.size() * problem.outputs() == predictions.size())
    out["performance"] = performance_of(*task, predictions, labels);
  if (!whole_rows.empty()) out["rows"] = whole_rows.encoded();
  return json::serialize(out) + "\n";
}

}  // namespace falaj::train
