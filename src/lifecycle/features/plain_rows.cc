// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/plain_rows.h"

#include <algorithm>
#include <map>

#include "foundation/base/error.h"
#include "lifecycle/lookup/values.h"

namespace falaj::features {
namespace {

using lookup::Value;
using table::Type;

// float32 is not among them: what it holds is rounded on its way through the engine.
bool kept_as_number(Type type) { return type == Type::int32 || type == Type::int64 || type == Type::float64; }

std::optional<std::size_t> column_named(const table::Schema& columns, std::string_view name) {
  const auto found = std::find_if(columns.begin(), columns.end(), [&](const auto& c) { return c.name == name; });
  return found == columns.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - columns.begin()));
}

double as_number(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

template <class T, class Of>
std::function<bool(const Value&)> compare_plain(std::string_view is, T with, Of of) {
  const auto made = [&](auto holds) -> std::function<bool(const Value&)> {
    return [holds, of, with = std::move(with)](const Value& value) { return holds(of(value), with); };
  };
  if (is == "=") return made(std::equal_to<>());
  if (is == "!=") return made(std::not_equal_to<>());
  if (is == "<") return made(std::less<>());
  if (is == "<=") return made(std::less_equal<>());
  if (is == ">") return made(std::greater<>());
  if (is == ">=") return made(std::greater_equal<>());
  return {};
}

// As SQL compares them; nothing for pairs of types that it would convert.
std::function<bool(const Value&)> plain_comparison(const FilterSpec& filter, Type type) {
  if (type == Type::text && filter.value.is_string())
    return compare_plain(filter.is, std::string(filter.value.get_string()),
                         [](const Value& v) -> const std::string& { return std::get<std::string>(v); });
  if (!kept_as_number(type)) return {};
  if (type != Type::float64 && filter.value.is_int64())
    return compare_plain(filter.is, filter.value.get_int64(), [](const Value& v) { return std::get<std::int64_t>(v); });
  if (filter.value.is_int64())
    return compare_plain(filter.is, static_cast<double>(filter.value.get_int64()), as_number);
  if (filter.value.is_double()) return compare_plain(filter.is, filter.value.get_double(), as_number);
  return {};
}

}  // namespace

std::optional<PlainRows::Input> PlainRows::input_of(const AggregateSpec& aggregate, const table::Schema& columns) {
  Input out;
  if (!aggregate.of.empty()) {
    out.column = column_named(columns, aggregate.of);
    const bool hashed = aggregate.aggregate == "distinct_approx" || aggregate.aggregate == "count";
    if (!out.column || hashed) return std::nullopt;
    const auto type = columns[*out.column].type;
    if (!kept_as_number(type) && type != Type::boolean) return std::nullopt;
  }
  for (const auto& filter : aggregate.where) {
    const auto column = column_named(columns, filter.column);
    if (!column) return std::nullopt;
    auto holds = plain_comparison(filter, columns[*column].type);
    if (!holds) return std::nullopt;
    out.where.emplace_back(*column, std::move(holds));
  }
  return out;
}

std::optional<PlainRows> PlainRows::of(const FeatureViewSpec& spec, const ViewPlan& plan,
                                       const table::Schema& columns) {
  if (!spec.sql.empty()) return std::nullopt;
  PlainRows out;
  for (std::size_t i = 0; i < plan.key.size(); ++i) {
    const auto column = column_named(columns, plan.key[i]);
    if (!column || columns[*column].type != plan.key_types[i] || plan.key_types[i] == Type::float32)
      return std::nullopt;
    out.key_.push_back(*column);
  }
  const auto time = [&](const std::string& name) -> std::optional<Time> {
    const auto column = column_named(columns, name);
    if (!column) return std::nullopt;
    return Time{*column, columns[*column].type == Type::date ? lookup::kDayUs : 1};
  };
  const auto at = time(plan.at), available = time(plan.available.empty() ? plan.at : plan.available);
  if (!at || !available) return std::nullopt;
  out.at_ = *at;
  out.available_ = *available;
  // Aggregates that are computed of the same share an input: by its number in the plan.
  std::vector<std::optional<Input>> inputs(plan.inputs.size());
  CHECK(plan.windows.features().size() == spec.aggregates.size(), "a definition has all features of its view");
  for (std::size_t i = 0; i < spec.aggregates.size(); ++i) {
    auto& input = inputs[plan.windows.features()[i].input];
    if (!input && !(input = input_of(spec.aggregates[i], columns))) return std::nullopt;
  }
  for (auto& input : inputs) out.inputs_.push_back(std::move(*input));
  for (const auto& feature : plan.rows) {
    const auto column = column_named(columns, feature.column);
    if (!column || columns[*column].type != feature.type || feature.type == Type::float32) return std::nullopt;
    out.features_.push_back(*column);
  }
  return out;
}

std::optional<std::int64_t> PlainRows::time_of(const Row& row, const Time& time) {
  const auto* value = std::get_if<std::int64_t>(&row[time.column]);
  return value ? std::optional(*value * time.unit_us) : std::nullopt;
}

lookup::Cell PlainRows::cell(const Row& row, const Input& input) {
  for (const auto& [column, holds] : input.where)
    if (std::holds_alternative<std::monostate>(row[column]) || !holds(row[column])) return {};
  if (!input.column) return 1;
  const auto& value = row[*input.column];
  return std::holds_alternative<std::monostate>(value) ? lookup::Cell() : as_number(value);
}

EntityEvents PlainRows::events(const lookup::View& view, std::span<const Row> rows) const {
  EntityEvents out;
  std::map<Bytes, std::size_t> places;  // in `out`
  online::RowWriter writer(view.layout);
  std::vector<Value> key(key_.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto& row = rows[r];
    for (std::size_t i = 0; i < key_.size(); ++i) key[i] = row[key_[i]];
    const auto at = time_of(row, at_), available = time_of(row, available_);
    const bool nameless =
        std::any_of(key.begin(), key.end(), [](const Value& v) { return std::holds_alternative<std::monostate>(v); });
    if (nameless || !at || !available) continue;
    lookup::Happened happened{{*at, *available, r + 1, {}}, {}};
    for (const auto& input : inputs_) happened.event.cells.push_back(cell(row, input));
    for (std::size_t i = 0; i < features_.size(); ++i) {
      const auto& value = row[features_[i]];
      if (const auto* flag = std::get_if<bool>(&value))
        writer.set_bool(i, *flag);
      else if (const auto* whole = std::get_if<std::int64_t>(&value))
        writer.set_int(i, *whole);
      else if (const auto* real = std::get_if<double>(&value))
        writer.set_real(i, *real);
      else if (const auto* text = std::get_if<std::string>(&value))
        writer.set_text(i, *text);
    }
    happened.row = writer.finish();
    const auto [place, is_new] = places.try_emplace(lookup::entity_key(view.key, key), out.size());
    if (is_new) out.emplace_back(place->first, std::vector<lookup::Happened>());
    out[place->second].second.push_back(std::move(happened));
  }
  return out;
}

}  // namespace falaj::features
