// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/measuring.h"

#include <algorithm>
#include <cmath>

#include "foundation/stats/distance.h"

namespace falaj::features {
namespace {

constexpr std::uint32_t kSketch = 200;
constexpr double kShares[] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

bool is_number(online::Type type) {
  using online::Type;
  return type == Type::boolean || type == Type::int32 || type == Type::int64 || type == Type::float32 ||
         type == Type::float64;
}

std::optional<double> number_of(const online::RowView& row, std::size_t column, online::Type type) {
  if (row.is_null(column)) return std::nullopt;
  if (type == online::Type::boolean) return row.boolean(column) ? 1 : 0;
  if (type == online::Type::float32 || type == online::Type::float64) return row.real(column);
  return is_number(type) ? static_cast<double>(row.integer(column)) : 0;
}

stats::Quantiles sketch_of(const Measured& measured) {
  const auto bytes = from_base64(measured.sketch);
  ByteReader in(bytes);
  return stats::Quantiles::decode(in);
}

}  // namespace

Measuring::Measuring(const lookup::View& view) : view_(view) {
  for (const auto& column : view.rows)
    features_.push_back({column.name, is_number(column.type), 0, {}, stats::Quantiles(kSketch)});
  for (const auto& name : view.window_names) features_.push_back({name, true, 0, {}, stats::Quantiles(kSketch)});
}

void Measuring::add(Feature& feature, std::optional<double> value) {
  if (!value) {
    ++feature.nulls;
  } else if (feature.number) {
    feature.moments.add(*value);
    feature.quantiles.add(*value);
  }
}

void Measuring::add(const lookup::Part& part, std::int64_t as_of_us) {
  ++entities_;
  lookup::Record record(view_);
  record.set_base(1, 0, part, as_of_us);
  lookup::Record::Answer answer;
  record.read(as_of_us, answer);
  for (std::size_t i = 0; i < view_.rows.size(); ++i)
    add(features_[i], answer.found.columns ? number_of(*answer.found.columns, i, view_.rows[i].type) : std::nullopt);
  for (std::size_t i = 0; i < answer.found.windows.size(); ++i)
    add(features_[view_.rows.size() + i], answer.found.windows[i]);
}

std::vector<Measured> Measuring::result(const std::vector<Measured>& before) const {
  std::vector<Measured> out;
  for (const auto& feature : features_) {
    auto& measured = out.emplace_back();
    measured.name = feature.name;
    measured.entities = entities_;
    measured.nulls = feature.nulls;
    if (!feature.number || feature.quantiles.count() == 0) continue;
    measured.mean = feature.moments.mean();
    measured.deviation = std::sqrt(feature.moments.variance());
    for (const auto share : kShares) measured.quantiles.push_back(feature.quantiles.quantile(share));
    ByteWriter sketch;
    feature.quantiles.encode(sketch);
    measured.sketch = to_base64(sketch.bytes());
    const auto same = std::find_if(before.begin(), before.end(), [&](const auto& m) { return m.name == feature.name; });
    if (same != before.end() && !same->sketch.empty())
      measured.distance = stats::ks(feature.quantiles, sketch_of(*same));
  }
  return out;
}

}  // namespace falaj::features
