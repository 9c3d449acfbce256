// SPDX-License-Identifier: Apache-2.0
#include "foundation/base/shape.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/text.h"

namespace falaj::shape {
namespace {

std::string_view kind_name(const json::value& v) {
  switch (v.kind()) {
    case json::kind::null:
      return "nothing";
    case json::kind::bool_:
      return "true or false";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "text";
    case json::kind::array:
      return "a list";
    case json::kind::object:
      return "a map";
  }
  return "unknown";
}

void wrong_kind(std::string_view wanted, const json::value& in, const std::string& path, Faults& faults) {
  faults.push_back({path, fmt::format("must be {}, not {}", wanted, kind_name(in))});
}

// Shows a value in a message without letting it be long.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  return text.size() <= kMost ? fmt::format("'{}'", text) : fmt::format("'{}...'", text.substr(0, kMost));
}

std::optional<std::int64_t> whole_number(const json::value& in) {
  if (const auto* i = in.if_int64()) return *i;
  if (const auto* d = in.if_double(); d && std::trunc(*d) == *d && std::fabs(*d) < 9e15)
    return static_cast<std::int64_t>(*d);
  return std::nullopt;
}

std::string format_bound(std::int64_t v, Unit unit) {
  if (unit == Unit::bytes && v >= 0) return format_bytes(static_cast<std::uint64_t>(v));
  if (unit == Unit::duration) return format_duration_us(v);
  return std::to_string(v);
}

}  // namespace

std::string below(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}
std::string below(std::string_view path, std::size_t index) { return fmt::format("{}[{}]", path, index); }

void decode_one(bool& out, const json::value& in, const Bounds&, const std::string& path, Faults& faults) {
  if (const auto* v = in.if_bool())
    out = *v;
  else
    wrong_kind("true or false", in, path, faults);
}

void decode_one(std::int64_t& out, const json::value& in, const Bounds& bounds, const std::string& path,
                Faults& faults) {
  std::optional<std::int64_t> v = whole_number(in);
  if (const auto* text = in.if_string(); text && bounds.unit != Unit::none) {
    v = bounds.unit == Unit::duration ? parse_duration_us(*text) : parse_bytes(*text);
    if (!v) {
      faults.push_back(
          {path, fmt::format("must be {}, not {}",
                             bounds.unit == Unit::duration ? "a duration such as 250ms, 30s, 15m, 12h or 7d"
                                                           : "a size such as 64KiB, 10MB or 2GiB",
                             shown(*text))});
      return;
    }
  }
  if (!v) return wrong_kind("a whole number", in, path, faults);
  if ((bounds.low && *v < *bounds.low) || (bounds.high && *v > *bounds.high)) {
    faults.push_back({path, fmt::format("must be {} to {}, not {}", format_bound(*bounds.low, bounds.unit),
                                        format_bound(*bounds.high, bounds.unit), format_bound(*v, bounds.unit))});
    return;
  }
  out = *v;
}

void decode_one(double& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults) {
  json::error_code error;
  const double v = in.to_number<double>(error);
  if (error) return wrong_kind("a number", in, path, faults);
  if ((bounds.low && v < static_cast<double>(*bounds.low)) || (bounds.high && v > static_cast<double>(*bounds.high))) {
    faults.push_back({path, fmt::format("must be {} to {}, not {}", *bounds.low, *bounds.high, v)});
    return;
  }
  out = v;
}

void decode_one(std::string& out, const json::value& in, const Bounds& bounds, const std::string& path,
                Faults& faults) {
  const auto* text = in.if_string();
  if (!text) return wrong_kind("text", in, path, faults);
  const std::string_view v = *text;
  const auto low = bounds.low.value_or(0), high = bounds.high.value_or(kTextBytesMax);
  if (static_cast<std::int64_t>(v.size()) < low || static_cast<std::int64_t>(v.size()) > high) {
    faults.push_back({path, fmt::format("must have {} to {} bytes, not {}", low, high, v.size())});
  } else if (!bounds.one_of.empty() &&
             std::find(bounds.one_of.begin(), bounds.one_of.end(), v) == bounds.one_of.end()) {
    faults.push_back({path, fmt::format("must be one of {}, not {}", fmt::join(bounds.one_of, ", "), shown(v))});
  } else if (bounds.text.accepts && !bounds.text.accepts(v)) {
    faults.push_back({path, fmt::format("must be {}, not {}", bounds.text.rule, shown(v))});
  } else {
    out = std::string(v);
  }
}

const json::object* expect_object(const json::value& in, const std::string& path, Faults& faults) {
  const auto* object = in.if_object();
  if (!object) wrong_kind("a map", in, path, faults);
  return object;
}

const json::array* expect_array(const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults) {
  const auto* array = in.if_array();
  if (!array)
    wrong_kind("a list", in, path, faults);
  else
    expect_entries(array->size(), bounds, path, faults);
  return array;
}

void expect_entries(std::size_t count, const Bounds& bounds, const std::string& path, Faults& faults) {
  const auto low = bounds.low.value_or(0), high = bounds.high.value_or(kEntriesMax);
  if (static_cast<std::int64_t>(count) < low || static_cast<std::int64_t>(count) > high)
    faults.push_back({path, fmt::format("must have {} to {} entries, not {}", low, high, count)});
}

void refuse_unknown(const json::object& in, std::span<const std::string_view> known, const std::string& path,
                    Faults& faults) {
  for (const auto& member : in) {
    const std::string_view key = member.key();
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto meant = nearest(key, known);
    faults.push_back({below(path, key), meant ? fmt::format("unknown field; did you mean '{}'?", *meant)
                                              : fmt::format("unknown field; allowed: {}", fmt::join(known, ", "))});
  }
}

json::object bounded(json::object schema, const Bounds& bounds, std::string_view help, std::string_view type) {
  if (!type.empty()) schema["type"] = type;
  if (!help.empty()) schema["description"] = help;
  if (bounds.unit == Unit::duration) schema["x-unit"] = "microseconds, or text such as 30s";
  if (bounds.unit == Unit::bytes) schema["x-unit"] = "bytes, or text such as 64MiB";
  if (bounds.unit != Unit::none) schema["type"] = json::array{"integer", "string"};
  const std::string_view low = type == "string"   ? "minLength"
                               : type == "array"  ? "minItems"
                               : type == "object" ? "minProperties"
                                                  : "minimum";
  const std::string_view high = type == "string"   ? "maxLength"
                                : type == "array"  ? "maxItems"
                                : type == "object" ? "maxProperties"
                                                   : "maximum";
  if (bounds.low) schema[low] = *bounds.low;
  if (bounds.high) schema[high] = *bounds.high;
  if (!bounds.one_of.empty() && type == "string")
    schema["enum"] = json::array(bounds.one_of.begin(), bounds.one_of.end());
  return schema;
}

}  // namespace falaj::shape
