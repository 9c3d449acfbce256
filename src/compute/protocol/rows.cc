// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::protocol {
namespace {

using graph::Element;

json::object object_of(std::string_view body) {
  auto value = parse_json(body);
  if (!value.is_object()) throw Error(Code::invalid, "the body is no JSON object");
  return std::move(value.as_object());
}

json::array rows_of(json::object& object, std::string_view key) {
  auto* rows = object.if_contains(key);
  if (!rows || !rows->is_array()) throw Error(Code::invalid, fmt::format("'{}' is an array", key));
  if (rows->as_array().size() > kRowsMax)
    throw Error(Code::invalid, fmt::format("'{}' holds more than {} rows", key, kRowsMax));
  return std::move(rows->as_array());
}

// One value of JSON as an element of a tensor.
template <class T>
T value_of(const json::value& value, Element element) {
  boost::system::error_code failed;
  if constexpr (std::is_floating_point_v<T>) {
    if (value.is_null()) return std::numeric_limits<T>::quiet_NaN();
    const auto number = value.to_number<double>(failed);
    if (!failed && (!std::is_same_v<T, float> || std::fabs(number) <= std::numeric_limits<float>::max()))
      return static_cast<T>(number);
  } else {
    if (element == Element::boolean && value.is_bool()) return value.as_bool();
    const auto number = value.to_number<T>(failed);
    if (!failed && !value.is_double() && (element != Element::boolean || number <= T{1})) return number;
  }
  throw Error(Code::invalid, fmt::format("a value is no {}", datatype(element)));
}

// The sizes of arrays in arrays, by the first of each.
graph::Sizes sizes_of(const json::array& rows) {
  graph::Sizes sizes;
  for (const auto* array = &rows; array; array = array->empty() ? nullptr : array->front().if_array())
    sizes.push_back(static_cast<std::int64_t>(array->size()));
  return sizes;
}

// Appends the values of arrays in arrays, which are of the sizes from `depth` on.
void flatten(const json::array& rows, std::size_t depth, Input& input, Bytes& bytes) {
  const bool last = depth + 1 == input.sizes.size();
  if (static_cast<std::int64_t>(rows.size()) != input.sizes[depth])
    throw Error(Code::invalid, "the instances are not of one shape");
  for (const auto& item : rows) {
    if (item.is_array() == last) throw Error(Code::invalid, "the instances are not of one shape");
    if (!last) {
      flatten(item.as_array(), depth + 1, input, bytes);
    } else if (input.element == Element::text) {
      if (!item.is_string()) throw Error(Code::invalid, "a value is no text");
      input.texts.emplace_back(item.as_string());
    } else {
      with_type(input.element, [&](auto zero) {
        const auto value = value_of<decltype(zero)>(item, input.element);
        const auto of_value = std::as_bytes(std::span(&value, 1));
        bytes.insert(bytes.end(), of_value.begin(), of_value.end());
      });
    }
  }
}

json::value value_at(const graph::Tensor& tensor, std::size_t at) {
  if (tensor.element == Element::text) {
    if (!is_utf8(tensor.texts[at])) throw Error(Code::invalid, "an output is no UTF-8, which JSON needs");
    return json::value(tensor.texts[at]);
  }
  return with_type(tensor.element, [&](auto zero) -> json::value {
    using T = decltype(zero);
    T value{};
    std::memcpy(&value, tensor.bytes.data() + at * sizeof(T), sizeof(T));
    if (tensor.element == Element::boolean) return value != T{};
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) return nullptr;
    }
    return value;
  });
}

// The part of a tensor that begins at `at` and has the sizes from `depth` on, as arrays in arrays. Moves `at` past it.
json::value nested(const graph::Tensor& tensor, std::size_t depth, std::size_t& at) {
  if (depth == tensor.sizes.size()) return value_at(tensor, at++);
  json::array out;
  for (std::int64_t i = 0; i < tensor.sizes[depth]; ++i) out.push_back(nested(tensor, depth + 1, at));
  return out;
}

}  // namespace

Predict decode_predict(std::string_view body) {
  auto object = object_of(body);
  Predict ask;
  ask.rows = rows_of(object, "rows");
  for (const auto& row : ask.rows)
    if (!row.is_object()) throw Error(Code::invalid, "each of 'rows' is an object of fields");
  for (const auto& [key, value] : object) {
    if (key == "rows") continue;
    if (key == "explain") {
      if (!value.is_bool()) throw Error(Code::invalid, "'explain' is true or false");
      ask.explain = value.as_bool();
    } else if (key == "as_of") {
      if (value.is_string()) ask.as_of_us = parse_time(std::string_view(value.as_string()));
      if (!ask.as_of_us) throw Error(Code::invalid, "'as_of' is a time such as 2001-01-31T10:00:00Z");
    } else if (key == "timeout_us") {
      if (!value.is_int64() || value.as_int64() < 0)
        throw Error(Code::invalid, "'timeout_us' is a number of microseconds");
      ask.timeout_us = value.as_int64();
    } else {
      throw Error(Code::invalid, fmt::format("unknown field '{}'", std::string_view(key)));
    }
  }
  return ask;
}

json::value encode_predicted(Predicted predicted) {
  json::object out{{"model", predicted.model}, {"version", predicted.version}};
  out["rows"] = std::move(predicted.rows);
  for (auto& [key, value] : predicted.served) out.insert_or_assign(key, std::move(value));
  return out;
}

json::array decode_instances(std::string_view body) {
  auto object = object_of(body);
  return rows_of(object, "instances");
}

Asked tensor_of_instances(const json::array& instances, const Description& model) {
  if (model.inputs.size() != 1)
    throw Error(Code::invalid, fmt::format("the model has {} inputs: each instance is an object that names them",
                                           model.inputs.size()));
  Asked asked;
  auto& input = asked.ask.inputs.emplace_back();
  input.name = model.inputs[0].name;
  input.element = model.inputs[0].element;
  input.sizes = sizes_of(instances);
  flatten(instances, 0, input, asked.owned.emplace_back());
  input.bytes = asked.owned.back();
  return asked;
}

json::value predictions_of(const Answer& answer) {
  json::array rows;
  for (const auto& output : answer.outputs) {
    const auto count = output.tensor.sizes.empty() ? std::size_t{1} : static_cast<std::size_t>(output.tensor.sizes[0]);
    std::size_t at = 0;
    for (std::size_t row = 0; row < count; ++row) {
      auto value = nested(output.tensor, std::min<std::size_t>(1, output.tensor.sizes.size()), at);
      if (answer.outputs.size() == 1) {
        rows.push_back(std::move(value));
        continue;
      }
      if (row == rows.size()) rows.push_back(json::object());
      rows[row].as_object()[output.name] = std::move(value);
    }
  }
  return {{"predictions", std::move(rows)}};
}

void check_load(std::string_view body) {
  if (trim(body).empty()) return;
  const auto object = object_of(body);
  const auto* parameters = object.if_contains("parameters");
  if (parameters && (!parameters->is_object() || !parameters->as_object().empty()))
    throw Error(Code::invalid, "a model is loaded as it was deployed: no config and no files with the call");
}

bool decode_only_ready(std::string_view body) {
  if (trim(body).empty()) return false;
  const auto object = object_of(body);
  const auto* ready = object.if_contains("ready");
  if (ready && !ready->is_bool()) throw Error(Code::invalid, "'ready' is true or false");
  return ready && ready->as_bool();
}

}  // namespace falaj::protocol
