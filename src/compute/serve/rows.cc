// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/rows.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::serve {
namespace {

using graph::Element;

[[noreturn]] void refuse(std::size_t row, const graph::Port& port, std::string_view why) {
  throw Error(Code::invalid, fmt::format("rows[{}].{}: {}", row, port.name, why));
}

// How many values one row has: 1 for [rows] and [rows, 1].
std::size_t width_of(const graph::Port& port) {
  std::size_t width = 1;
  for (std::size_t i = 1; i < port.shape.size(); ++i) {
    if (!std::holds_alternative<std::int64_t>(port.shape[i]))
      throw Error(Code::invalid, fmt::format("input '{}' has a free size behind its rows: ask by tensors", port.name));
    width *= static_cast<std::size_t>(std::get<std::int64_t>(port.shape[i]));
  }
  return width;
}

double number(const json::value* value, std::size_t row, const graph::Port& port, bool may_miss) {
  if (!value || value->is_null()) {
    if (may_miss) return std::numeric_limits<double>::quiet_NaN();
    refuse(row, port, "is missing");
  }
  if (value->is_bool()) return value->get_bool() ? 1 : 0;
  if (value->is_int64()) return static_cast<double>(value->get_int64());
  if (value->is_uint64()) return static_cast<double>(value->get_uint64());
  if (value->is_double()) return value->get_double();
  // A time, as the trainer's models take it: microseconds since 1970.
  const bool may_be_time = port.element == Element::float64 || port.element == Element::int64;
  if (may_be_time && value->is_string())
    if (const auto us = parse_time(std::string_view(value->get_string()))) return static_cast<double>(*us);
  refuse(row, port,
         fmt::format("must be a number{}, not {}", may_be_time ? " or a time" : "",
                     json::serialize(*value).substr(0, 64)));
}

template <class T>
void put_number(std::byte* to, double value, std::size_t row, const graph::Port& port) {
  if constexpr (std::is_integral_v<T>) {
    if (value != std::floor(value) || value < static_cast<double>(std::numeric_limits<T>::min()) ||
        value > static_cast<double>(std::numeric_limits<T>::max()))
      refuse(row, port, fmt::format("must be a whole number in range, not {}", value));
  }
  const auto typed = static_cast<T>(value);
  std::memcpy(to, &typed, sizeof typed);
}

void put(Element element, std::byte* to, const json::value* value, std::size_t row, const graph::Port& port) {
  switch (element) {
    case Element::float32:
      return put_number<float>(to, number(value, row, port, true), row, port);
    case Element::float64:
      return put_number<double>(to, number(value, row, port, true), row, port);
    case Element::int8:
      return put_number<std::int8_t>(to, number(value, row, port, false), row, port);
    case Element::int16:
      return put_number<std::int16_t>(to, number(value, row, port, false), row, port);
    case Element::int32:
      return put_number<std::int32_t>(to, number(value, row, port, false), row, port);
    case Element::int64: {
      if (value && value->is_int64()) {  // all 64 bits
        const auto exact = value->get_int64();
        std::memcpy(to, &exact, sizeof exact);
        return;
      }
      return put_number<std::int64_t>(to, number(value, row, port, false), row, port);
    }
    case Element::uint8:
      return put_number<std::uint8_t>(to, number(value, row, port, false), row, port);
    case Element::uint16:
      return put_number<std::uint16_t>(to, number(value, row, port, false), row, port);
    case Element::uint32:
      return put_number<std::uint32_t>(to, number(value, row, port, false), row, port);
    case Element::boolean: {
      const auto truth = number(value, row, port, false);
      if (truth != 0 && truth != 1) refuse(row, port, "must be true or false");
      *to = std::byte{truth == 1};
      return;
    }
    default:
      refuse(row, port, fmt::format("elements of type {} cannot be written here: ask by tensors", name(element)));
  }
}

// The `at`-th of the values that a row says for a port; null when it says none.
const json::value* part(const json::value* value, std::size_t at, std::size_t width, std::size_t row,
                        const graph::Port& port) {
  if (width == 1 && (!value || !value->is_array())) return value;
  if (!value || !value->is_array() || value->get_array().size() != width)
    refuse(row, port, fmt::format("must be a list of {}", width));
  return &value->get_array()[at];
}

// The number that people would write for it: 0.1, not 0.10000000149.
double as_written(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double out = 0;
  std::from_chars(text, end, out);
  return std::isfinite(value) ? out : static_cast<double>(value);
}

json::value value_of(const infer::TensorView& tensor, std::size_t at) {
  const auto number = [](double v) { return std::isfinite(v) ? json::value(v) : json::value(nullptr); };
  switch (tensor.element) {
    case Element::float32:
      return number(as_written(tensor.values<float>()[at]));
    case Element::float64:
      return number(tensor.values<double>()[at]);
    case Element::int8:
      return tensor.values<std::int8_t>()[at];
    case Element::int16:
      return tensor.values<std::int16_t>()[at];
    case Element::int32:
      return tensor.values<std::int32_t>()[at];
    case Element::int64:
      return tensor.values<std::int64_t>()[at];
    case Element::uint8:
      return tensor.values<std::uint8_t>()[at];
    case Element::uint16:
      return tensor.values<std::uint16_t>()[at];
    case Element::uint32:
      return tensor.values<std::uint32_t>()[at];
    case Element::uint64:
      return tensor.values<std::uint64_t>()[at];
    case Element::boolean:
      return tensor.values<std::uint8_t>()[at] != 0;
    case Element::text:
      return json::value(tensor.texts[at]);
    default:
      throw Error(Code::invalid,
                  fmt::format("an output of type {} cannot be written here: ask by tensors", name(tensor.element)));
  }
}

}  // namespace

std::vector<graph::Tensor> columns_of(const json::array& rows, std::span<const graph::Port> inputs,
                                      std::span<const graph::Tensor> known) {
  if (rows.empty()) throw Error(Code::invalid, "rows: at least one is needed");
  std::set<std::string_view> names;
  for (const auto& port : inputs) names.insert(port.name);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].is_object()) throw Error(Code::invalid, fmt::format("rows[{}]: must be an object", row));
    for (const auto& field : rows[row].get_object())
      if (!names.contains(field.key()))
        throw Error(Code::invalid,
                    fmt::format("rows[{}].{}: the model has no such input", row, std::string_view(field.key())));
  }
  std::vector<graph::Tensor> out;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& port = inputs[i];
    if (!known.empty() && !known[i].sizes.empty()) {
      out.push_back(known[i]);
      continue;
    }
    const auto width = width_of(port);
    graph::Sizes sizes{static_cast<std::int64_t>(rows.size())};
    for (std::size_t d = 1; d < port.shape.size(); ++d) sizes.push_back(std::get<std::int64_t>(port.shape[d]));
    auto tensor = graph::Tensor::empty(port.element, std::move(sizes));
    const auto bytes = graph::bytes_of(port.element);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto* value = rows[row].get_object().if_contains(port.name);
      for (std::size_t at = 0; at < width; ++at) {
        const auto* one = part(value, at, width, row, port);
        const auto place = row * width + at;
        if (port.element != Element::text) {
          put(port.element, tensor.bytes.data() + place * bytes, one, row, port);
        } else if (one && !one->is_null()) {
          if (!one->is_string()) refuse(row, port, "must be a text");
          tensor.texts[place] = std::string(one->get_string());
        }
      }
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

json::array rows_of(std::size_t rows, std::span<const graph::Port> outputs,
                    std::span<const infer::TensorView> tensors) {
  json::array out;
  for (std::size_t row = 0; row < rows; ++row) {
    json::object fields;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto& tensor = tensors[i];
      const auto count = graph::count_of(tensor.shape.sizes());
      const auto width = rows == 0 ? 0 : count / rows;
      if (width == 1) {
        fields[outputs[i].name] = value_of(tensor, row);
        continue;
      }
      json::array values;
      for (std::size_t at = 0; at < width; ++at) values.push_back(value_of(tensor, row * width + at));
      fields[outputs[i].name] = std::move(values);
    }
    out.push_back(std::move(fields));
  }
  return out;
}

}  // namespace falaj::serve
