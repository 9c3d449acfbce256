// SPDX-License-Identifier: Apache-2.0
#pragma once

// The documentation half of shape.h, which includes it: include that.

#include "foundation/base/shape.h"

namespace falaj {
namespace shape {

// JSON Schema 2020-12, as OpenAPI 3.1 uses it. Described structs land in `definitions` and are referred to.
json::object bounded(json::object schema, const Bounds& bounds, std::string_view help, std::string_view type);

template <class T>
struct SchemaOf;
template <>
struct SchemaOf<bool> {
  static json::object make(const Bounds& b, std::string_view help, json::object&) {
    return bounded({}, b, help, "boolean");
  }
};
template <>
struct SchemaOf<std::int64_t> {
  static json::object make(const Bounds& b, std::string_view help, json::object&) {
    return bounded({}, b, help, "integer");
  }
};
template <>
struct SchemaOf<double> {
  static json::object make(const Bounds& b, std::string_view help, json::object&) {
    return bounded({}, b, help, "number");
  }
};
template <>
struct SchemaOf<std::string> {
  static json::object make(const Bounds& b, std::string_view help, json::object&) {
    return bounded({}, b, help, "string");
  }
};
template <>
struct SchemaOf<json::value> {
  static json::object make(const Bounds& b, std::string_view help, json::object&) { return bounded({}, b, help, ""); }
};
template <class T>
struct SchemaOf<std::optional<T>> {
  static json::object make(const Bounds& b, std::string_view help, json::object& defs) {
    return SchemaOf<T>::make(b, help, defs);
  }
};
template <class T>
struct SchemaOf<std::vector<T>> {
  static json::object make(const Bounds& b, std::string_view help, json::object& defs) {
    return bounded({{"items", SchemaOf<T>::make(of_entries(b), "", defs)}}, b, help, "array");
  }
};
template <class T>
struct SchemaOf<std::map<std::string, T>> {
  static json::object make(const Bounds& b, std::string_view help, json::object& defs) {
    return bounded({{"additionalProperties", SchemaOf<T>::make(of_entries(b), "", defs)}}, b, help, "object");
  }
};
template <Described T>
struct SchemaOf<T> {
  static json::object make(const Bounds&, std::string_view help, json::object& defs) {
    if (!defs.contains(Shape<T>::name)) {
      defs[Shape<T>::name] = nullptr;  // a struct that holds itself refers to what is being made
      json::object properties;
      json::array required;
      [[maybe_unused]] const auto add = [&](const auto& f) {
        using Member = std::remove_cvref_t<decltype(std::declval<T>().*f.member)>;
        properties[f.name] = SchemaOf<Member>::make(f.bounds, f.help, defs);
        if (f.bounds.required) required.emplace_back(f.name);
      };
      std::apply([&](const auto&... fields) { (add(fields), ...); }, Shape<T>::fields);
      json::object schema{{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
      if (!required.empty()) schema["required"] = std::move(required);
      defs[Shape<T>::name] = std::move(schema);
    }
    json::object out{{"$ref", "#/components/schemas/" + std::string(Shape<T>::name)}};
    if (!help.empty()) out["description"] = help;
    return out;
  }
};

}  // namespace shape

// The schema of T; structs it is made of are added to `definitions` by name.
template <class T>
json::object schema_of(json::object& definitions) {
  return shape::SchemaOf<T>::make(Bounds{}, "", definitions);
}

}  // namespace falaj
