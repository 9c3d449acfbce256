// SPDX-License-Identifier: Apache-2.0
#include "compute/graph/evaluate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::graph {
namespace {

template <class T>
bool is_of(const Values& values) {
  return std::holds_alternative<std::span<const T>>(values);
}

bool fits(const Values& values, Element element) {
  switch (element) {
    case Element::float64:
      return is_of<double>(values);
    case Element::float32:
      return is_of<float>(values);
    case Element::int64:
      return is_of<std::int64_t>(values);
    case Element::boolean:
      return is_of<std::uint8_t>(values);
    default:
      return is_of<std::string_view>(values);
  }
}

}  // namespace

void check_batch(const Batch& batch, const std::vector<Column>& columns) {
  if (batch.columns.size() != columns.size())
    throw Error(Code::invalid, fmt::format("a batch of {} columns was given to a transform of {}", batch.columns.size(),
                                           columns.size()));
  for (std::size_t at = 0; at < columns.size(); ++at) {
    const auto& values = batch.columns[at];
    if (!fits(values, columns[at].element()))
      throw Error(Code::invalid,
                  fmt::format("the values of column '{}' are not {}", columns[at].name, name(columns[at].element())));
    const std::size_t rows = std::visit([](const auto& span) { return span.size(); }, values);
    if (rows != batch.rows)
      throw Error(Code::invalid,
                  fmt::format("column '{}' has {} values in a batch of {} rows", columns[at].name, rows, batch.rows));
  }
}

std::vector<Table> tables_of(const Fitted& fitted) {
  std::vector<Table> out(fitted.features.size());
  for (std::size_t feature = 0; feature < out.size(); ++feature) {
    const auto* category = std::get_if<FittedCategory>(&fitted.fits[feature]);
    if (!category) continue;
    for (std::size_t at = 0; at < category->texts.size(); ++at)
      out[feature].texts.emplace(category->texts[at], category->ids[at]);
    for (std::size_t at = 0; at < category->whole.size(); ++at)
      out[feature].whole.emplace(category->whole[at], category->ids[at]);
  }
  return out;
}

void Slabs::make_more() {
  memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(kAtOnce * each_));
  for (std::size_t k = 0; k < kAtOnce; ++k)
    free_.push_back(&all_.emplace_back(Slab{memory_.back().get() + k * each_, 0, this}));
}

// ---- Building blocks.
template <class To>
To* Evaluator::grow(Value& out) {
  static_assert(sizeof(To) <= sizeof(double));
  Slabs::Slab* slab = slabs_.take();
  out.columns.push_back({slab->bytes, Slabs::Ref(slab)});
  return reinterpret_cast<To*>(slab->bytes);
}

template <class T>
constexpr Element stored_as() {
  return std::is_same_v<T, std::uint8_t> ? Element::boolean : element_of<T>();
}

template <class From, class To, class F>
Evaluator::Value Evaluator::each(const Value& x, F f) {
  Value out{stored_as<To>(), {}};
  out.columns.reserve(x.columns.size());
  for (std::size_t c = 0; c < x.columns.size(); ++c) {
    const From* in = x.at<From>(c);
    To* to = grow<To>(out);
    for (std::size_t r = 0; r < rows_; ++r) to[r] = f(in[r]);
  }
  return out;
}

template <class From, class To, class Row, class F>
Evaluator::Value Evaluator::each_with(const Value& x, const Row& row, F f) {
  Value out{stored_as<To>(), {}};
  out.columns.reserve(x.columns.size());
  for (std::size_t c = 0; c < x.columns.size(); ++c) {
    const From* in = x.at<From>(c);
    To* to = grow<To>(out);
    const auto constant = row[c];
    for (std::size_t r = 0; r < rows_; ++r) to[r] = f(in[r], constant);
  }
  return out;
}

template <class T, class F>
Evaluator::Value Evaluator::each_pair(const Value& x, const Value& y, F f) {
  Value out{stored_as<T>(), {}};
  out.columns.reserve(x.columns.size());
  for (std::size_t c = 0; c < x.columns.size(); ++c) {
    const T *left = x.at<T>(c), *right = y.at<T>(c);
    T* to = grow<T>(out);
    for (std::size_t r = 0; r < rows_; ++r) to[r] = f(left[r], right[r]);
  }
  return out;
}

// ---- Operations.
Evaluator::Value Evaluator::input(std::size_t column) {
  const void* data =
      std::visit([&](const auto& span) -> const void* { return span.data() + first_; }, batch_.columns[column]);
  return {columns_[column].element(), {{data, {}}}};
}

template <class To>
Evaluator::Value Evaluator::cast_to(const Value& x) {
  const auto convert = [](auto v) { return static_cast<To>(v); };
  switch (x.element) {
    case Element::float64:
      return each<double, To>(x, convert);
    case Element::float32:
      return each<float, To>(x, convert);
    case Element::int64:
      return each<std::int64_t, To>(x, convert);
    default:
      return each<std::uint8_t, To>(x, convert);
  }
}

Evaluator::Value Evaluator::cast(const Value& x, Element to) {
  if (x.element == to) return x;
  if (to == Element::float64) return cast_to<double>(x);
  if (to == Element::float32) return cast_to<float>(x);
  return cast_to<std::int64_t>(x);
}

Evaluator::Value Evaluator::concat(const std::vector<Value>& matrices) {
  Value out{matrices[0].element, {}};
  for (const auto& matrix : matrices)
    out.columns.insert(out.columns.end(), matrix.columns.begin(), matrix.columns.end());
  return out;
}

Evaluator::Value Evaluator::pick(const Value& x, const Wholes& columns) {
  Value out{x.element, {}};
  out.columns.reserve(columns.size());
  for (const auto column : columns) out.columns.push_back(x.columns[static_cast<std::size_t>(column)]);
  return out;
}

Evaluator::Value Evaluator::add(const Value& x, const Reals& row) {
  return each_with<double, double>(x, row, [](double a, double b) { return a + b; });
}
Evaluator::Value Evaluator::add(const Value& x, const Wholes& row) {
  return each_with<std::int64_t, std::int64_t>(x, row, [](std::int64_t a, std::int64_t b) { return a + b; });
}
Evaluator::Value Evaluator::add(const Value& x, const Value& y) {
  return each_pair<std::int64_t>(x, y, [](std::int64_t a, std::int64_t b) { return a + b; });
}
Evaluator::Value Evaluator::subtract(const Value& x, const Reals& row) {
  return each_with<double, double>(x, row, [](double a, double b) { return a - b; });
}
Evaluator::Value Evaluator::subtract(const Value& x, const Value& y) {
  if (x.element == Element::float32) return each_pair<float>(x, y, [](float a, float b) { return a - b; });
  return each_pair<double>(x, y, [](double a, double b) { return a - b; });
}
Evaluator::Value Evaluator::multiply(const Value& x, const Reals& row) {
  return each_with<double, double>(x, row, [](double a, double b) { return a * b; });
}
Evaluator::Value Evaluator::multiply(const Value& x, const Wholes& row) {
  return each_with<std::int64_t, std::int64_t>(x, row, [](std::int64_t a, std::int64_t b) { return a * b; });
}
Evaluator::Value Evaluator::multiply(const Value& x, const Value& y) {
  return each_pair<double>(x, y, [](double a, double b) { return a * b; });
}
Evaluator::Value Evaluator::divide(const Value& x, const Reals& row) {
  return each_with<double, double>(x, row, [](double a, double b) { return a / b; });
}
// Of what is not negative, where C++ and ONNX agree.
Evaluator::Value Evaluator::modulo(const Value& x, const Wholes& row) {
  return each_with<std::int64_t, std::int64_t>(x, row, [](std::int64_t a, std::int64_t b) { return a % b; });
}
Evaluator::Value Evaluator::floor(const Value& x) {
  return each<double, double>(x, [](double v) { return std::floor(v); });
}
Evaluator::Value Evaluator::log(const Value& x) {
  return each<double, double>(x, [](double v) { return std::log(v); });
}
Evaluator::Value Evaluator::abs(const Value& x) {
  return each<double, double>(x, [](double v) { return std::fabs(v); });
}
Evaluator::Value Evaluator::sign(const Value& x) {
  return each<double, double>(x, [](double v) { return static_cast<double>((v > 0) - (v < 0)); });
}
Evaluator::Value Evaluator::sin(const Value& x) {
  return each<double, double>(x, [](double v) { return std::sin(v); });
}
Evaluator::Value Evaluator::is_nan(const Value& x) {
  return each<float, std::uint8_t>(x, [](float v) -> std::uint8_t { return v != v; });
}
Evaluator::Value Evaluator::less(const Value& x, const Reals& row) {
  return each_with<double, std::uint8_t>(x, row, [](double a, double b) -> std::uint8_t { return a < b; });
}
Evaluator::Value Evaluator::greater(const Value& x, const Reals& row) {
  return each_with<double, std::uint8_t>(x, row, [](double a, double b) -> std::uint8_t { return a > b; });
}
Evaluator::Value Evaluator::at_least(const Value& x, const Reals& row) {
  return each_with<double, std::uint8_t>(x, row, [](double a, double b) -> std::uint8_t { return a >= b; });
}
Evaluator::Value Evaluator::equal(const Value& x, const Wholes& row) {
  return each_with<std::int64_t, std::uint8_t>(x, row,
                                               [](std::int64_t a, std::int64_t b) -> std::uint8_t { return a == b; });
}

Evaluator::Value Evaluator::choose(const Value& when, const Reals& row, const Value& x) {
  Value out{Element::float64, {}};
  out.columns.reserve(x.columns.size());
  for (std::size_t c = 0; c < x.columns.size(); ++c) {
    const std::uint8_t* chosen = when.at<std::uint8_t>(c);
    const double *in = x.at<double>(c), constant = row[c];
    double* to = grow<double>(out);
    for (std::size_t r = 0; r < rows_; ++r) to[r] = chosen[r] ? constant : in[r];
  }
  return out;
}

Evaluator::Value Evaluator::select(const std::vector<std::uint8_t>& when, const Value& x, const Value& y) {
  Value out{x.element, {}};
  out.columns.reserve(x.columns.size());
  for (std::size_t c = 0; c < x.columns.size(); ++c) out.columns.push_back(when[c] ? x.columns[c] : y.columns[c]);
  return out;
}

Evaluator::Value Evaluator::count(const Value& x, const std::vector<std::size_t>& owner, std::size_t owners) {
  Value out{Element::int64, {}};
  for (std::size_t k = 0; k < owners; ++k) std::fill_n(grow<std::int64_t>(out), rows_, 0);
  for (std::size_t c = 0; c < owner.size(); ++c) {
    const std::uint8_t* in = x.at<std::uint8_t>(c);
    auto* to = static_cast<std::int64_t*>(const_cast<void*>(out.columns[owner[c]].data));
    for (std::size_t r = 0; r < rows_; ++r) to[r] += in[r];
  }
  return out;
}

Evaluator::Value Evaluator::look_up(const Value& x, std::size_t feature, const FittedCategory&) {
  Value out{Element::int64, {}};
  std::int64_t* to = grow<std::int64_t>(out);
  const auto find = [&](const auto& table, const auto* keys) {
    for (std::size_t r = 0; r < rows_; ++r) {
      const auto found = table.find(keys[r]);
      to[r] = found == table.end() ? 0 : found->second;
    }
  };
  const auto& table = tables_[feature];
  if (x.element == Element::text)
    find(table.texts, x.at<std::string_view>(0));
  else
    find(table.whole, x.at<std::int64_t>(0));
  return out;
}

}  // namespace falaj::graph
