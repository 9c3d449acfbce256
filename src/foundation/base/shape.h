// SPDX-License-Identifier: Apache-2.0
#pragma once

// A struct described once is decoded (every fault at once, with its path), encoded and documented from that
// description. Settings, resource specs, API requests and responses all use it.
//
//   struct NewToken { std::string name; std::int64_t ttl_us = 0; };
//   template <> struct falaj::Shape<NewToken> {
//     static constexpr std::string_view name = "NewToken";
//     static constexpr auto fields = std::make_tuple(
//         field("name", &NewToken::name, "What the token is for.").required().length(1, 128),
//         field("ttl", &NewToken::ttl_us, "How long it is valid.").duration().range(60'000'000, 31'536'000'000'000));
//   };
//
// Members may be bool, std::int64_t, double, std::string, json::value, a described struct, and std::optional,
// std::vector or std::map<std::string, ...> of those.

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "foundation/base/error.h"
#include "foundation/base/json.h"

namespace falaj {

template <class T>
struct Shape;

template <class T>
concept Described = requires {
  Shape<T>::fields;
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

template <class Owner, class Member>
struct Field {
  std::string_view name;
  Member Owner::*member;
  std::string_view help;
  Bounds bounds;

  constexpr Field required() const {
    return with([](Bounds& b) { b.required = true; });
  }
  constexpr Field secret() const {
    return with([](Bounds& b) { b.secret = true; });
  }
  constexpr Field duration() const {
    return with([](Bounds& b) { b.unit = Unit::duration; });
  }
  constexpr Field bytes() const {
    return with([](Bounds& b) { b.unit = Unit::bytes; });
  }
  constexpr Field range(std::int64_t low, std::int64_t high) const {
    return with([=](Bounds& b) { b.low = low, b.high = high; });
  }
  constexpr Field length(std::int64_t low, std::int64_t high) const { return range(low, high); }
  constexpr Field one_of(std::span<const std::string_view> values) const {
    return with([=](Bounds& b) { b.one_of = values; });
  }
  constexpr Field text(TextRule rule) const {
    return with([=](Bounds& b) { b.text = rule; });
  }

 private:
  template <class F>
  constexpr Field with(F change) const {
    Field copy = *this;
    change(copy.bounds);
    return copy;
  }
};

template <class Owner, class Member>
constexpr Field<Owner, Member> field(std::string_view name, Member Owner::*member, std::string_view help) {
  return {name, member, help, {}};
}

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
inline void decode_one(json::value& out, const json::value& in, const Bounds&, const std::string&, Faults&) {
  out = in;
}

const json::object* expect_object(const json::value& in, const std::string& path, Faults& faults);
const json::array* expect_array(const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults);
void expect_entries(std::size_t count, const Bounds& bounds, const std::string& path, Faults& faults);
void refuse_unknown(const json::object& in, std::span<const std::string_view> known, const std::string& path,
                    Faults& faults);

// Bounds of a list hold for its length; its entries keep the rules about their own text.
inline Bounds of_entries(Bounds bounds) {
  bounds.low = bounds.high = std::nullopt;
  return bounds;
}

template <Described T>
void decode_one(T& out, const json::value& in, const Bounds&, const std::string& path, Faults& faults);

template <class T>
void decode_one(std::optional<T>& out, const json::value& in, const Bounds& bounds, const std::string& path,
                Faults& faults) {
  if (in.is_null()) {
    out.reset();
    return;
  }
  decode_one(out.emplace(), in, bounds, path, faults);
}

template <class T>
void decode_one(std::vector<T>& out, const json::value& in, const Bounds& bounds, const std::string& path,
                Faults& faults) {
  const auto* array = expect_array(in, bounds, path, faults);
  if (!array) return;
  out.clear();
  out.reserve(array->size());
  for (const auto& item : *array) {
    T value{};
    decode_one(value, item, of_entries(bounds), below(path, out.size()), faults);
    out.push_back(std::move(value));
  }
}

template <class T>
void decode_one(std::map<std::string, T>& out, const json::value& in, const Bounds& bounds, const std::string& path,
                Faults& faults) {
  const auto* object = expect_object(in, path, faults);
  if (!object) return;
  expect_entries(object->size(), bounds, path, faults);
  out.clear();
  for (const auto& [key, item] : *object)
    decode_one(out[std::string(key)], item, of_entries(bounds), below(path, key), faults);
}

template <Described T>
void decode_one(T& out, const json::value& in, const Bounds&, const std::string& path, Faults& faults) {
  const auto* object = expect_object(in, path, faults);
  if (!object) return;
  std::apply(
      [&](const auto&... fields) {
        const std::string_view known[] = {fields.name..., ""};
        refuse_unknown(*object, {known, sizeof...(fields)}, path, faults);
        [[maybe_unused]] const auto take = [&](const auto& f) {
          if (const auto* value = object->if_contains(f.name))
            decode_one(out.*f.member, *value, f.bounds, below(path, f.name), faults);
          else if (f.bounds.required)
            faults.push_back({below(path, f.name), "required, but missing"});
        };
        (take(fields), ...);
      },
      Shape<T>::fields);
}

inline json::value encode_one(bool v) { return v; }
inline json::value encode_one(std::int64_t v) { return v; }
inline json::value encode_one(double v) { return v; }
inline json::value encode_one(const std::string& v) { return json::value(v); }
inline json::value encode_one(const json::value& v) { return v; }

template <Described T>
json::value encode_one(const T& value);
template <class T>
json::value encode_one(const std::optional<T>& v) {
  return v ? encode_one(*v) : json::value(nullptr);
}
template <class T>
json::value encode_one(const std::vector<T>& v) {
  json::array out;
  out.reserve(v.size());
  for (const auto& item : v) out.push_back(encode_one(item));
  return out;
}
template <class T>
json::value encode_one(const std::map<std::string, T>& v) {
  json::object out;
  for (const auto& [key, item] : v) out[key] = encode_one(item);
  return out;
}
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// An optional that is not set is left out rather than written as null.
template <Described T>
json::value encode_one(const T& value) {
  json::object out;
  [[maybe_unused]] const auto put = [&](const auto& f) {
    const auto& member = value.*f.member;
    if constexpr (IsOptional<std::remove_cvref_t<decltype(member)>>::value) {
      if (!member) return;
    }
    out[f.name] = encode_one(member);
  };
  std::apply([&](const auto&... fields) { (put(fields), ...); }, Shape<T>::fields);
  return out;
}

}  // namespace shape

// Fills `out` from `in`, keeping its defaults for what is absent, and adds every fault found.
template <class T>
void decode_into(T& out, const json::value& in, Faults& faults, const std::string& path = "") {
  shape::decode_one(out, in, Bounds{}, path, faults);
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
  return shape::encode_one(value);
}

}  // namespace falaj

#include "foundation/base/shape_schema.h"  // IWYU pragma: export
