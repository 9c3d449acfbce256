// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_requests.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

// Which of a port's values.
struct ValuePlace {
  const PortShape& port;
  std::size_t row = 0;
};

[[noreturn]] void refuse_value(const ValuePlace& at, std::string_view why) {
  throw Error(Code::invalid, fmt::format("row {}, field '{}': {}", at.row + 1, at.port.name, why));
}

double real_of(const json::value& value, const ValuePlace& at) {
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (value.is_bool()) return value.get_bool() ? 1 : 0;
  if (value.is_number()) return value.to_number<double>();
  if (value.is_string() && at.port.datatype == "FP64")
    if (const auto us = parse_time(std::string_view(value.get_string()))) return static_cast<double>(*us);
  refuse_value(at, fmt::format("must be a number, not {}", json::serialize(value).substr(0, 64)));
}

template <class T>
T whole_of(const json::value& value, const ValuePlace& at) {
  if (value.is_bool()) return value.get_bool() ? 1 : 0;
  if (value.is_string())
    if (const auto us = parse_time(std::string_view(value.get_string())))
      if constexpr (std::is_same_v<T, std::int64_t>) return *us;
  boost::system::error_code failed;
  const auto out = value.is_number() ? value.to_number<T>(failed) : T{};
  if (!value.is_number() || failed)
    refuse_value(at, fmt::format("must be a whole number of type {}, not {}", at.port.datatype,
                                 json::serialize(value).substr(0, 64)));
  return out;
}

template <class T>
void put_bytes(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little, "tensors are little-endian");
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// To the nearest half-precision number, ties to even; overflow is infinity.
std::uint16_t half_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00);
  if (size >= 65520) return static_cast<std::uint16_t>(sign | 0x7C00);
  if (size < 6.103515625e-05F)  // subnormal: counts of 2^-24
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(size * 16777216.0F)));
  const std::uint32_t shifted = (bits & 0x7FFFFFFF) - 0x38000000;  // the exponent's other bias
  const std::uint32_t rounded = shifted + 0xFFF + (shifted >> 13 & 1);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

using PutValue = void (*)(std::string& out, const json::value& value, const ValuePlace& at);
template <class T>
void put_real(std::string& out, const json::value& value, const ValuePlace& at) {
  put_bytes(out, static_cast<T>(real_of(value, at)));
}
template <class T>
void put_whole(std::string& out, const json::value& value, const ValuePlace& at) {
  put_bytes(out, whole_of<T>(value, at));
}

PutValue put_for(const PortShape& port) {
  static const std::map<std::string_view, PutValue> kPuts = {
      {"FP32", put_real<float>},
      {"FP64", put_real<double>},
      {"FP16", [](std::string& out, const json::value& value,
                  const ValuePlace& at) { put_bytes(out, half_of(static_cast<float>(real_of(value, at)))); }},
      {"BF16",
       [](std::string& out, const json::value& value, const ValuePlace& at) {
         const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(real_of(value, at)));
         put_bytes(out, static_cast<std::uint16_t>(bits >> 16));
       }},
      {"INT8", put_whole<std::int8_t>},
      {"INT16", put_whole<std::int16_t>},
      {"INT32", put_whole<std::int32_t>},
      {"INT64", put_whole<std::int64_t>},
      {"UINT8", put_whole<std::uint8_t>},
      {"UINT16", put_whole<std::uint16_t>},
      {"UINT32", put_whole<std::uint32_t>},
      {"UINT64", put_whole<std::uint64_t>},
      {"BOOL",
       [](std::string& out, const json::value& value, const ValuePlace& at) {
         const auto truth = whole_of<std::int64_t>(value, at);
         if (truth != 0 && truth != 1) refuse_value(at, "must be true or false");
         out += static_cast<char>(truth);
       }},
      {"BYTES",
       [](std::string& out, const json::value& value, const ValuePlace& at) {
         if (!value.is_string() && !value.is_null()) refuse_value(at, "must be a text");
         const std::string_view text = value.is_null() ? std::string_view() : std::string_view(value.get_string());
         put_bytes(out, static_cast<std::uint32_t>(text.size()));
         out += text;
       }},
  };
  const auto found = kPuts.find(port.datatype);
  if (found == kPuts.end())
    throw Error(Code::invalid,
                fmt::format("input '{}' is of type {}, which this tool does not know", port.name, port.datatype));
  return found->second;
}

// The values of a field, whether it is one, a list or lists of lists. Returns how many.
std::size_t put_all(std::string& out, const json::value& value, const ValuePlace& at, PutValue put) {
  if (!value.is_array()) return put(out, value, at), 1;
  std::size_t count = 0;
  for (const auto& one : value.get_array()) count += put_all(out, one, at, put);
  return count;
}

json::array sizes_of(const PortShape& port, std::size_t rows) {
  json::array out;
  for (std::size_t i = 0; i < port.shape.size(); ++i)
    out.push_back(port.shape[i] >= 0 ? port.shape[i] : i == 0 ? static_cast<std::int64_t>(rows) : 1);
  return out;
}

json::value made_value(const PortShape& port, std::mt19937_64& random) {
  if (port.datatype.starts_with("FP") || port.datatype == "BF16")
    return std::round(1000 * std::normal_distribution<double>()(random)) / 1000;
  const auto digit = random() % 10;
  if (port.datatype == "BOOL") return digit < 5;
  if (port.datatype == "BYTES") return json::value(std::string(1, static_cast<char>('a' + digit)));
  return digit;
}

void refuse_unknown_fields(std::span<const PortShape> inputs, std::span<const json::object> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const auto& field : rows[i])
      if (std::none_of(inputs.begin(), inputs.end(), [&](const auto& port) { return port.name == field.key(); }))
        throw Error(Code::invalid, fmt::format("row {}, field '{}': the endpoint has no such input; --json sends rows "
                                               "as they are",
                                               i + 1, std::string_view(field.key())));
}

}  // namespace

std::size_t PortShape::width() const {
  std::size_t out = 1;
  for (std::size_t i = 1; i < shape.size(); ++i)
    if (shape[i] >= 0) out *= static_cast<std::size_t>(shape[i]);
  return out;
}

std::vector<PortShape> ports_of(const json::value& metadata, std::string_view which) {
  std::vector<PortShape> out;
  for (const auto& port : metadata.at(which).as_array()) {
    auto& made = out.emplace_back();
    made.name = std::string(port.at("name").as_string());
    made.datatype = std::string(port.at("datatype").as_string());
    for (const auto& size : port.at("shape").as_array()) made.shape.push_back(size.to_number<std::int64_t>());
  }
  return out;
}

json::object made_row(std::span<const PortShape> inputs, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  json::object out;
  for (const auto& port : inputs) {
    if (port.width() == 1) {
      out[port.name] = made_value(port, random);
      continue;
    }
    json::array values;
    for (std::size_t i = 0; i < port.width(); ++i) values.push_back(made_value(port, random));
    out[port.name] = std::move(values);
  }
  return out;
}

std::string tensor_bytes(const PortShape& port, std::span<const json::object> rows) {
  static const json::value kMissing;
  const auto put = put_for(port);
  std::string out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto* value = rows[i].if_contains(port.name);
    const ValuePlace at{port, i};
    const auto count = put_all(out, value ? *value : kMissing, at, put);
    if (count != port.width()) refuse_value(at, fmt::format("must have {} values, not {}", port.width(), count));
  }
  return out;
}

std::string request_of(const RequestForm& form, std::span<const PortShape> inputs, std::span<const json::object> rows) {
  std::string json_part, data;
  if (form.as_json) {
    json::array all;
    for (const auto& row : rows) all.push_back(row);
    json_part = json::serialize(json::object{{"rows", std::move(all)}});
  } else {
    refuse_unknown_fields(inputs, rows);
    json::array tensors;
    for (const auto& port : inputs) {
      const auto bytes = tensor_bytes(port, rows);
      tensors.push_back(json::object{{"name", port.name},
                                     {"shape", sizes_of(port, rows.size())},
                                     {"datatype", port.datatype},
                                     {"parameters", {{"binary_data_size", bytes.size()}}}});
      data += bytes;
    }
    json_part =
        json::serialize(json::object{{"inputs", std::move(tensors)}, {"parameters", {{"binary_data_output", true}}}});
  }
  auto out = fmt::format("POST /v2/models/{}/{} HTTP/1.1\r\nHost: {}\r\n", form.model,
                         form.as_json ? "predict" : "infer", form.host);
  if (!form.token.empty()) out += fmt::format("Authorization: Bearer {}\r\n", form.token);
  if (form.as_json)
    out += "Content-Type: application/json\r\n";
  else
    out += fmt::format("Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {}\r\n",
                       json_part.size());
  out += fmt::format("Content-Length: {}\r\n\r\n", json_part.size() + data.size());
  return out + json_part + data;
}

}  // namespace falaj::cli
