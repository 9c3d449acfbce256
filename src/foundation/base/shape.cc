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

namespace {

const json::object* expect_object(const json::value& in, const std::string& path, Faults& faults) {
  const auto* object = in.if_object();
  if (!object) wrong_kind("a map", in, path, faults);
  return object;
}

void expect_entries(std::size_t count, const Bounds& bounds, const std::string& path, Faults& faults) {
  const auto low = bounds.low.value_or(0), high = bounds.high.value_or(kEntriesMax);
  if (static_cast<std::int64_t>(count) < low || static_cast<std::int64_t>(count) > high)
    faults.push_back({path, fmt::format("must have {} to {} entries, not {}", low, high, count)});
}

const json::array* expect_array(const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults) {
  const auto* array = in.if_array();
  if (!array)
    wrong_kind("a list", in, path, faults);
  else
    expect_entries(array->size(), bounds, path, faults);
  return array;
}

void refuse_unknown(const json::object& in, const Fields& fields, const std::string& path, Faults& faults) {
  std::vector<std::string_view> known;
  for (const auto& field : fields) known.push_back(field.name);
  for (const auto& member : in) {
    const std::string_view key = member.key();
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto meant = nearest(key, known);
    faults.push_back({below(path, key), meant ? fmt::format("unknown field; did you mean '{}'?", *meant)
                                              : fmt::format("unknown field; allowed: {}", fmt::join(known, ", "))});
  }
}

// Bounds of a list hold for its length; its entries keep the rules about their own text.
Bounds of_entries(Bounds bounds) {
  bounds.low = bounds.high = std::nullopt;
  return bounds;
}

void decode_list(const Type& type, void* out, const json::value& in, const Bounds& bounds, const std::string& path,
                 Faults& faults) {
  const auto* array = expect_array(in, bounds, path, faults);
  if (!array) return;
  type.clear(out, array->size());
  std::size_t index = 0;
  for (const auto& item : *array)
    decode(*type.inner, type.add(out, {}), item, of_entries(bounds), below(path, index++), faults);
}

void decode_map(const Type& type, void* out, const json::value& in, const Bounds& bounds, const std::string& path,
                Faults& faults) {
  const auto* object = expect_object(in, path, faults);
  if (!object) return;
  expect_entries(object->size(), bounds, path, faults);
  type.clear(out, object->size());
  for (const auto& [key, item] : *object)
    decode(*type.inner, type.add(out, key), item, of_entries(bounds), below(path, key), faults);
}

void decode_structure(const Type& type, void* out, const json::value& in, const std::string& path, Faults& faults) {
  const auto* object = expect_object(in, path, faults);
  if (!object) return;
  const auto& fields = type.fields();
  refuse_unknown(*object, fields, path, faults);
  for (const auto& field : fields) {
    if (const auto* value = object->if_contains(field.name))
      decode(*field.type, member_of(out, field), *value, field.bounds, below(path, field.name), faults);
    else if (field.bounds.required)
      faults.push_back({below(path, field.name), "required, but missing"});
  }
}

json::object schema_of_structure(const Type& type, std::string_view help, json::object& definitions) {
  const auto name = type.name();
  if (!definitions.contains(name)) {
    definitions[name] = nullptr;  // a struct that holds itself refers to what is being made
    json::object properties;
    json::array required;
    for (const auto& field : type.fields()) {
      properties[field.name] = schema(*field.type, field.bounds, field.help, definitions);
      if (field.bounds.required) required.emplace_back(field.name);
    }
    json::object made{{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
    if (!required.empty()) made["required"] = std::move(required);
    definitions[name] = std::move(made);
  }
  json::object out{{"$ref", fmt::format("#/components/schemas/{}", name)}};
  if (!help.empty()) out["description"] = help;
  return out;
}

}  // namespace

Fields checked(Fields fields, const std::type_info& owner) {
  for (const auto& field : fields)
    CHECK(*field.owner == owner, "a field is of the struct it describes: a base's is told by field<T>()");
  return fields;
}

void decode(const Type& type, void* out, const json::value& in, const Bounds& bounds, const std::string& path,
            Faults& faults) {
  switch (type.kind) {
    case Type::Kind::boolean:
      return decode_one(*static_cast<bool*>(out), in, bounds, path, faults);
    case Type::Kind::whole:
      return decode_one(*static_cast<std::int64_t*>(out), in, bounds, path, faults);
    case Type::Kind::real:
      return decode_one(*static_cast<double*>(out), in, bounds, path, faults);
    case Type::Kind::text:
      return decode_one(*static_cast<std::string*>(out), in, bounds, path, faults);
    case Type::Kind::any:
      *static_cast<json::value*>(out) = in;
      return;
    case Type::Kind::own:
      return type.decode(out, in, bounds, path, faults);
    case Type::Kind::optional:
      type.clear(out, 0);
      if (!in.is_null()) decode(*type.inner, type.add(out, {}), in, bounds, path, faults);
      return;
    case Type::Kind::list:
      return decode_list(type, out, in, bounds, path, faults);
    case Type::Kind::map:
      return decode_map(type, out, in, bounds, path, faults);
    case Type::Kind::structure:
      return decode_structure(type, out, in, path, faults);
  }
}

json::value encode(const Type& type, const void* value) {
  switch (type.kind) {
    case Type::Kind::boolean:
      return *static_cast<const bool*>(value);
    case Type::Kind::whole:
      return *static_cast<const std::int64_t*>(value);
    case Type::Kind::real:
      return *static_cast<const double*>(value);
    case Type::Kind::text:
      return json::value(*static_cast<const std::string*>(value));
    case Type::Kind::any:
      return *static_cast<const json::value*>(value);
    case Type::Kind::own:
      return type.encode(value);
    case Type::Kind::optional: {
      json::value out;
      type.each(value, [&](std::string_view, const void* item) { out = encode(*type.inner, item); });
      return out;
    }
    case Type::Kind::list: {
      json::array out;
      type.each(value, [&](std::string_view, const void* item) { out.push_back(encode(*type.inner, item)); });
      return out;
    }
    case Type::Kind::map: {
      json::object out;
      type.each(value, [&](std::string_view key, const void* item) { out[key] = encode(*type.inner, item); });
      return out;
    }
    case Type::Kind::structure: {
      json::object out;
      for (const auto& field : type.fields()) {
        const void* member = member_of(value, field);
        if (field.type->kind == Type::Kind::optional)
          field.type->each(
              member, [&](std::string_view, const void* item) { out[field.name] = encode(*field.type->inner, item); });
        else
          out[field.name] = encode(*field.type, member);
      }
      return out;
    }
  }
  return nullptr;
}

json::object schema(const Type& type, const Bounds& bounds, std::string_view help, json::object& definitions) {
  switch (type.kind) {
    case Type::Kind::boolean:
      return bounded({}, bounds, help, "boolean");
    case Type::Kind::whole:
      return bounded({}, bounds, help, "integer");
    case Type::Kind::real:
      return bounded({}, bounds, help, "number");
    case Type::Kind::text:
      return bounded({}, bounds, help, "string");
    case Type::Kind::any:
      return bounded({}, bounds, help, "");
    case Type::Kind::own:
      return type.schema(bounds, help, definitions);
    case Type::Kind::optional:
      return schema(*type.inner, bounds, help, definitions);
    case Type::Kind::list:
      return bounded({{"items", schema(*type.inner, of_entries(bounds), "", definitions)}}, bounds, help, "array");
    case Type::Kind::map:
      return bounded({{"additionalProperties", schema(*type.inner, of_entries(bounds), "", definitions)}}, bounds, help,
                     "object");
    case Type::Kind::structure:
      return schema_of_structure(type, help, definitions);
  }
  return {};
}

}  // namespace falaj::shape
