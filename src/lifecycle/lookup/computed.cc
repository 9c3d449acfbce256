// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/lookup/computed.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/lookup/values.h"

namespace falaj::lookup {
namespace {

expr::Type expr_type(Type type) {
  switch (type) {
    case Type::boolean:
      return expr::Type::boolean;
    case Type::int32:
    case Type::int64:
      return expr::Type::int64;
    case Type::float32:
    case Type::float64:
      return expr::Type::float64;
    case Type::date:
    case Type::timestamp:
      return expr::Type::timestamp;
    default:
      return expr::Type::text;
  }
}

expr::Value from_row(const online::RowView& row, std::size_t column, Type type) {
  if (row.is_null(column)) return {};
  switch (expr_type(type)) {
    case expr::Type::boolean:
      return expr::Value::boolean(row.boolean(column));
    case expr::Type::int64:
      return expr::Value::int64(row.integer(column));
    case expr::Type::float64:
      return expr::Value::float64(row.real(column));
    case expr::Type::timestamp:
      return expr::Value::timestamp(row.integer(column) * (type == Type::date ? kDayUs : 1));
    default:
      return expr::Value::text(row.text(column));
  }
}

}  // namespace

bool is_whole(Aggregate aggregate) { return aggregate == Aggregate::count || aggregate == Aggregate::distinct_approx; }

Computed::Computed(std::vector<Column> request, const View& view, const std::vector<ComputedText>& features)
    : request_(std::move(request)), inputs_(request_), rows_(view.rows.size()) {
  inputs_.insert(inputs_.end(), view.rows.begin(), view.rows.end());
  for (std::size_t i = 0; i < view.window_names.size(); ++i)
    inputs_.push_back(
        {view.window_names[i], is_whole(view.windows.features()[i].aggregate) ? Type::int64 : Type::float64});
  std::vector<expr::Input> named;
  for (const auto& input : inputs_) named.push_back({input.name, expr_type(input.type)});
  for (const auto& feature : features) {
    try {
      auto expression = expr::Expression::compile(feature.is, named);
      auto uses = expression.inputs_used();
      features_.push_back({feature.name, std::move(expression), std::move(uses)});
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("expression '{}': {}", feature.name, e.what()));
    }
  }
}

Type Computed::type(std::size_t feature) const {
  switch (features_[feature].expression.type()) {
    case expr::Type::boolean:
      return Type::boolean;
    case expr::Type::int64:
      return Type::int64;
    case expr::Type::float64:
      return Type::float64;
    case expr::Type::timestamp:
      return Type::timestamp;
    default:
      return Type::text;
  }
}

expr::Value Computed::input(const Value& value, Type type) {
  if (const auto* flag = std::get_if<bool>(&value)) return expr::Value::boolean(*flag);
  if (const auto* real = std::get_if<double>(&value)) return expr::Value::float64(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return expr::Value::text(*text);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    if (expr_type(type) == expr::Type::int64) return expr::Value::int64(*whole);
    return expr::Value::timestamp(*whole * (type == Type::date ? kDayUs : 1));
  }
  return {};
}

void Computed::load(Inputs& into, std::span<const Value> request, const Found& found) const {
  into.assign(inputs_.size(), {});
  for (std::size_t i = 0; i < request_.size(); ++i) into[i] = input(request[i], request_[i].type);
  auto at = request_.size();
  for (std::size_t i = 0; i < rows_; ++i, ++at)
    if (found.columns) into[at] = from_row(*found.columns, i, inputs_[at].type);
  for (const auto& cell : found.windows) {
    if (cell)
      into[at] = inputs_[at].type == Type::int64 ? expr::Value::int64(static_cast<std::int64_t>(*cell))
                                                 : expr::Value::float64(*cell);
    ++at;
  }
}

Value Computed::compute(std::size_t feature, const Inputs& inputs) const {
  const auto value = features_[feature].expression.evaluate(inputs);
  if (value.is_null()) return {};
  switch (features_[feature].expression.type()) {
    case expr::Type::boolean:
      return value.as_boolean();
    case expr::Type::int64:
      return value.as_int64();
    case expr::Type::float64:
      return value.as_float64();
    case expr::Type::timestamp:
      return value.as_timestamp();
    default:
      return std::string(value.as_text());
  }
}

}  // namespace falaj::lookup
