// SPDX-License-Identifier: Apache-2.0
#pragma once

// A struct described once is decoded (every fault at once, with its path), encoded and documented from that
// description. Settings, resource specs, API requests and responses all use it.
//
//   struct NewToken { std::string name; std::int64_t ttl_us = 0; };
//   template <> struct falaj::Shape<NewToken> {
//     static constexpr std::string_view name = "NewToken";
//     static Fields fields() {
//       return {field("name", &NewToken::name, "What the token is for.").required().length(1, 128),
//               field("ttl", &NewToken::ttl_us, "How long it is valid.").duration().range(60'000'000,
//               31'536'000'000'000)};
//     }
//   };
//
// Members may be bool, std::int64_t, double, std::string, json::value, a described struct, and std::optional,
// std::vector or std::map<std::string, ...> of those; or a type of one's own with decode_one, encode_one and
// shape::SchemaOf beside it.
//
// A description is a table that is read while the program runs, by functions that are compiled once: made of templates
// for every struct it took a fifth of the time that everything takes to compile.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/json.h"

namespace falaj {

template <class T>
struct Shape;

template <class T>
concept Described = requires {
  Shape<T>::fields();
};

// A check of one string: `accepts` decides, `rule` says in words what is allowed.
struct TextRule {
  bool (*accepts)(std::string_view);
  std::string_view rule;
};

enum class Unit { none, duration, bytes };

// What a value may be. For numbers `low`..`high` bound the value, for text its bytes, for lists and maps their entries.
struct Bounds {
  bool required = false;
  bool secret = false;
  Unit unit = Unit::none;
  std::optional<std::int64_t> low, high;
  std::span<const std::string_view> one_of;
  TextRule text{nullptr, {}};
};

namespace shape {
struct Type;
}

// One member of a struct.
struct Field {
  std::string_view name, help;
  const shape::Type* type;
  std::ptrdiff_t offset;        // of the member in its struct
  const std::type_info* owner;  // the struct
  Bounds bounds;

  Field&& required() && { return bounds.required = true, std::move(*this); }
  Field&& secret() && { return bounds.secret = true, std::move(*this); }
  Field&& duration() && { return bounds.unit = Unit::duration, std::move(*this); }
  Field&& bytes() && { return bounds.unit = Unit::bytes, std::move(*this); }
  Field&& range(std::int64_t low, std::int64_t high) && {
    return bounds.low = low, bounds.high = high, std::move(*this);
  }
  Field&& length(std::int64_t low, std::int64_t high) && { return std::move(*this).range(low, high); }
  Field&& one_of(std::span<const std::string_view> values) && { return bounds.one_of = values, std::move(*this); }
  Field&& text(TextRule rule) && { return bounds.text = rule, std::move(*this); }
};
using Fields = std::vector<Field>;

// Lists default to at most this many entries, text to this many bytes, unless the field says otherwise.
inline constexpr std::int64_t kEntriesMax = 10'000;
inline constexpr std::int64_t kTextBytesMax = 64 * 1024;

using Faults = std::vector<Fault>;

namespace shape {

std::string below(std::string_view path, std::string_view key);
std::string below(std::string_view path, std::size_t index);

void decode_one(bool& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults);
void decode_one(std::int64_t& out, const json::value& in, const Bounds& bounds, const std::string& path,
                Faults& faults);
void decode_one(double& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults);
void decode_one(std::string& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults);

// JSON Schema 2020-12, as OpenAPI 3.1 uses it, of a type of one's own. That of text is there to inherit.
json::object bounded(json::object schema, const Bounds& bounds, std::string_view help, std::string_view type);
template <class T>
struct SchemaOf;
template <>
struct SchemaOf<std::string> {
  static json::object make(const Bounds& b, std::string_view help, json::object&) {
    return bounded({}, b, help, "string");
  }
};

// What a value is and how to reach what is in it, when all that is known of it is where it lies.
struct Type {
  enum class Kind { boolean, whole, real, text, any, own, optional, list, map, structure };
  using Each = std::function<void(std::string_view key, const void* item)>;

  Kind kind = Kind::own;
  // structure
  std::string_view (*name)() = nullptr;
  const Fields& (*fields)() = nullptr;
  // optional, list, map
  const Type* inner = nullptr;
  void (*clear)(void* of, std::size_t expected) = nullptr;
  void* (*add)(void* to, std::string_view key) = nullptr;  // an item as it is made; a key matters to maps
  void (*each)(const void* of, const Each& each) = nullptr;
  // own
  void (*decode)(void* out, const json::value& in, const Bounds&, const std::string& path, Faults&) = nullptr;
  json::value (*encode)(const void* of) = nullptr;
  json::object (*schema)(const Bounds&, std::string_view help, json::object& definitions) = nullptr;
};

// Throws nothing: what is wrong is added to `faults`. What is absent keeps its default.
void decode(const Type& type, void* out, const json::value& in, const Bounds& bounds, const std::string& path,
            Faults& faults);
// An optional that is not set is left out rather than written as null.
json::value encode(const Type& type, const void* value);
// Structs land in `definitions` and are referred to.
json::object schema(const Type& type, const Bounds& bounds, std::string_view help, json::object& definitions);

Fields checked(Fields fields, const std::type_info& owner);
template <class T>
const Fields& fields_of() {
  static const Fields fields = checked(Shape<T>::fields(), typeid(T));
  return fields;
}

template <class T>
struct TypeOf {
  static constexpr Type make() {
    Type out;
    if constexpr (Described<T>) {
      out.kind = Type::Kind::structure;
      out.name = []() -> std::string_view { return Shape<T>::name; };
      out.fields = fields_of<T>;
    } else {
      out.decode = [](void* to, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults) {
        decode_one(*static_cast<T*>(to), in, bounds, path, faults);
      };
      out.encode = [](const void* of) { return encode_one(*static_cast<const T*>(of)); };
      out.schema = [](const Bounds& bounds, std::string_view help, json::object& definitions) {
        return SchemaOf<T>::make(bounds, help, definitions);
      };
    }
    return out;
  }
};
template <class T>
inline constexpr Type kTypeOf = TypeOf<T>::make();

template <Type::Kind kind>
struct Plain {
  static constexpr Type make() {
    Type out;
    out.kind = kind;
    return out;
  }
};
template <>
struct TypeOf<bool> : Plain<Type::Kind::boolean> {};
template <>
struct TypeOf<std::int64_t> : Plain<Type::Kind::whole> {};
template <>
struct TypeOf<double> : Plain<Type::Kind::real> {};
template <>
struct TypeOf<std::string> : Plain<Type::Kind::text> {};
template <>
struct TypeOf<json::value> : Plain<Type::Kind::any> {};

template <class T>
struct TypeOf<std::optional<T>> {
  using Value = std::optional<T>;
  static constexpr Type make() {
    Type out;
    out.kind = Type::Kind::optional;
    out.inner = &kTypeOf<T>;
    out.clear = [](void* of, std::size_t) { static_cast<Value*>(of)->reset(); };
    out.add = [](void* to, std::string_view) -> void* { return &static_cast<Value*>(to)->emplace(); };
    out.each = [](const void* of, const Type::Each& each) {
      if (const auto& value = *static_cast<const Value*>(of)) each({}, &*value);
    };
    return out;
  }
};
template <class T>
struct TypeOf<std::vector<T>> {
  using Value = std::vector<T>;
  static constexpr Type make() {
    Type out;
    out.kind = Type::Kind::list;
    out.inner = &kTypeOf<T>;
    out.clear = [](void* of, std::size_t expected) {
      static_cast<Value*>(of)->clear();
      static_cast<Value*>(of)->reserve(expected);
    };
    out.add = [](void* to, std::string_view) -> void* { return &static_cast<Value*>(to)->emplace_back(); };
    out.each = [](const void* of, const Type::Each& each) {
      for (const auto& item : *static_cast<const Value*>(of)) each({}, &item);
    };
    return out;
  }
};
template <class T>
struct TypeOf<std::map<std::string, T>> {
  using Value = std::map<std::string, T>;
  static constexpr Type make() {
    Type out;
    out.kind = Type::Kind::map;
    out.inner = &kTypeOf<T>;
    out.clear = [](void* of, std::size_t) { static_cast<Value*>(of)->clear(); };
    out.add = [](void* to, std::string_view key) -> void* { return &(*static_cast<Value*>(to))[std::string(key)]; };
    out.each = [](const void* of, const Type::Each& each) {
      for (const auto& [key, item] : *static_cast<const Value*>(of)) each(key, &item);
    };
    return out;
  }
};

inline void* member_of(void* value, const Field& field) { return static_cast<std::byte*>(value) + field.offset; }
inline const void* member_of(const void* value, const Field& field) {
  return static_cast<const std::byte*>(value) + field.offset;
}

}  // namespace shape

// A member that T has from a base needs to be told whose it is: field<T>("name", &T::name, ...).
template <class T = void, class Owner, class Member>
Field field(std::string_view name, Member Owner::*member, std::string_view help) {
  using Of = std::conditional_t<std::is_void_v<T>, Owner, T>;
  Member Of::*in_struct = member;
  // That is what a pointer to a member is to the compilers we have: its distance from the beginning.
  return {name, help, &shape::kTypeOf<Member>, std::bit_cast<std::ptrdiff_t>(in_struct), &typeid(Of), {}};
}

// Fills `out` from `in`, keeping its defaults for what is absent, and adds every fault found.
template <class T>
void decode_into(T& out, const json::value& in, Faults& faults, const std::string& path = "") {
  shape::decode(shape::kTypeOf<T>, &out, in, Bounds{}, path, faults);
}

// Throws invalid naming every fault.
template <class T>
T decode(const json::value& in, std::string_view doing) {
  T out{};
  Faults faults;
  decode_into(out, in, faults);
  refuse_if_any(doing, std::move(faults));
  return out;
}

template <class T>
json::value encode(const T& value) {
  return shape::encode(shape::kTypeOf<T>, &value);
}

// The schema of T; structs it is made of are added to `definitions` by name.
template <class T>
json::object schema_of(json::object& definitions) {
  return shape::schema(shape::kTypeOf<T>, Bounds{}, "", definitions);
}

}  // namespace falaj
