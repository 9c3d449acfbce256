// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/watch/reference.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/json.h"
#include "foundation/stats/blocks.h"

namespace falaj::watch {
namespace {

using Holds = traffic::ColumnSketch::Holds;

constexpr double kEffectMax = 1e6;

[[noreturn]] void refuse_reference(std::string_view what) {
  throw Error(Code::corrupt, fmt::format("a model's reference.json is not what was written: {}", what));
}

const json::object& object_at(const json::value& value, std::string_view what) {
  if (!value.is_object()) refuse_reference(what);
  return value.get_object();
}

std::uint64_t count_at(const json::object& in, const char* key) {
  const auto* value = in.if_contains(key);
  if (!value || !value->is_int64() || value->get_int64() < 0) refuse_reference(key);
  return static_cast<std::uint64_t>(value->get_int64());
}

double effect_at(const json::object& in, const char* key) {
  const auto* list = in.if_contains(key);
  if (!list) return 1;
  if (!list->is_array()) refuse_reference(key);
  std::vector<stats::BlockScale> scales;
  for (const auto& one : list->get_array()) {
    const auto& fields = object_at(one, key);
    stats::BlockScale scale;
    const auto* ratios = fields.if_contains("ratios");
    if (!ratios || !ratios->is_array() || ratios->get_array().size() > 10'000) refuse_reference(key);
    for (const auto& ratio : ratios->get_array()) {
      if (!ratio.is_number()) refuse_reference(key);
      scale.ratios.push_back(ratio.to_number<double>());
    }
    if (const auto* marks = fields.if_contains("marks")) {
      if (!marks->is_int64() || marks->get_int64() < 1 || marks->get_int64() > 10'000) refuse_reference(key);
      scale.marks = static_cast<std::size_t>(marks->get_int64());
    }
    scales.push_back(std::move(scale));
  }
  const double effect = stats::design_effect(scales);
  if (!(effect >= 1 && effect <= kEffectMax)) refuse_reference(key);
  return effect;
}

ReferenceColumn read_column(const json::value& value) {
  const auto& in = object_at(value, "a column");
  ReferenceColumn out;
  auto& sketch = out.sketch;
  sketch.rows = count_at(in, "rows");
  sketch.missing = count_at(in, "missing");
  const auto* numbers = in.if_contains("quantiles");
  const auto* texts = in.if_contains("frequent");
  const auto* held = numbers ? numbers : texts;
  if (!held || !held->is_string()) refuse_reference("a column without a sketch");
  try {
    const auto bytes = from_base64(std::string_view(held->get_string()));
    ByteReader reader(bytes);
    if (numbers)
      sketch.numbers = stats::Quantiles::decode(reader);
    else
      sketch.texts = stats::Frequent::decode(reader);
    reader.expect_end();
  } catch (const Error& e) {
    refuse_reference(e.what());
  }
  sketch.holds = numbers ? Holds::numbers : Holds::texts;
  if (sketch.missing > sketch.rows ||
      (numbers ? sketch.numbers.count() : sketch.texts.total()) != sketch.rows - sketch.missing)
    refuse_reference("its rows");
  if (sketch.numbers.count() > 0 && !(std::isfinite(sketch.numbers.min()) && std::isfinite(sketch.numbers.max())))
    refuse_reference("its range");
  if (const auto* kind = in.if_contains("kind")) out.time = kind->is_string() && kind->get_string() == "timestamp";
  out.ordered = sketch.numbers;
  out.effect = std::max(effect_at(in, "blocks"), effect_at(in, "marks"));
  out.missing_effect = effect_at(in, "missing_blocks");
  return out;
}

stats::RowSample read_rows(const json::value& value) {
  if (!value.is_string()) refuse_reference("its rows");
  try {
    const auto bytes = from_base64(std::string_view(value.get_string()));
    ByteReader reader(bytes);
    auto out = stats::RowSample::decode(reader);
    reader.expect_end();
    return out;
  } catch (const Error& e) {
    refuse_reference(e.what());
  }
}

PerformanceReference read_performance(const json::value& value) {
  const auto& in = object_at(value, "its performance");
  const auto* outcomes = in.if_contains("outcomes");
  if (!outcomes || !outcomes->is_string()) refuse_reference("its performance");
  PerformanceReference out{"when it was tested", stats::Outcomes(), {}};
  try {
    const auto bytes = from_base64(std::string_view(outcomes->get_string()));
    ByteReader reader(bytes);
    out.outcomes = stats::Outcomes::decode(reader);
    reader.expect_end();
  } catch (const Error& e) {
    refuse_reference(e.what());
  }
  const auto effect = [&](const char* key) {
    const auto* effects = in.if_contains("effects");
    const auto* number = effects && effects->is_object() ? effects->get_object().if_contains(key) : nullptr;
    const double effect = number && number->is_number() ? number->to_number<double>() : 1;
    if (!(effect >= 1 && effect <= kEffectMax)) refuse_reference("effects of its performance");
    return effect;
  };
  out.effects = {effect("wrong"), effect("loss"), effect("auc")};
  return out;
}

}  // namespace

Reference read_reference(std::string_view text, std::string is) {
  json::value parsed;
  try {
    parsed = parse_json(text);
  } catch (const Error& e) {
    refuse_reference(e.what());
  }
  const auto& in = object_at(parsed, "no object");
  const auto version = count_at(in, "version");
  if (version < 1 || version > 3) refuse_reference(fmt::format("version {}, and this program knows 1 to 3", version));
  Reference out;
  out.is = std::move(is);
  const auto* inputs = in.if_contains("inputs");
  const auto* predictions = in.if_contains("predictions");
  if (!inputs || !inputs->is_object() || !predictions || !predictions->is_array())
    refuse_reference("inputs and predictions");
  for (const auto& [name, column] : inputs->get_object()) out.columns.emplace(name, read_column(column));
  const auto& list = predictions->get_array();
  for (std::size_t i = 0; i < list.size(); ++i)
    out.columns.emplace(list.size() == 1 ? "out_prediction" : fmt::format("out_prediction[{}]", i),
                        read_column(list[i]));
  if (const auto* calibration = in.if_contains("calibration")) {
    if (!calibration->is_string()) refuse_reference("its calibration");
    try {
      const auto bytes = from_base64(std::string_view(calibration->get_string()));
      ByteReader reader(bytes);
      out.calibration = stats::Calibration::decode(reader);
      reader.expect_end();
    } catch (const Error& e) {
      refuse_reference(e.what());
    }
  }
  if (const auto* performance = in.if_contains("performance")) out.performance = read_performance(*performance);
  if (const auto* rows = in.if_contains("rows")) out.rows = read_rows(*rows);
  return out;
}

Reference make_reference(std::span<const traffic::Sketches> windows, std::string is,
                         std::span<const stats::RowSample> rows) {
  Reference out;
  out.is = std::move(is);
  for (const auto& sample : rows) {
    out.rows.set_limit(kReferenceRows);
    out.rows.merge(sample);
  }
  std::set<std::string> names;
  for (const auto& window : windows)
    for (const auto& entry : window) names.insert(entry.first);
  for (const auto& name : names) {
    auto& column = out.columns[name];
    std::vector<stats::Quantiles> numbers;
    std::vector<stats::Frequent> texts;
    std::vector<double> missing, rows;
    for (const auto& window : windows) {
      const auto found = window.find(name);
      if (found == window.end()) continue;
      const auto& sketch = found->second;
      column.sketch.merge(sketch);
      numbers.push_back(sketch.numbers);
      texts.push_back(sketch.texts);
      missing.push_back(static_cast<double>(sketch.missing));
      rows.push_back(static_cast<double>(sketch.rows));
    }
    column.ordered = column.sketch.numbers;
    const bool is_numbers = column.sketch.holds == Holds::numbers;
    column.effect =
        std::max(stats::design_effect(is_numbers ? stats::block_scales(numbers) : stats::block_scales(texts)),
                 stats::design_effect(is_numbers ? stats::mark_scales(numbers) : stats::mark_scales(texts)));
    column.missing_effect = stats::design_effect(stats::block_scales(missing, rows));
  }
  return out;
}

}  // namespace falaj::watch
