// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "foundation/base/error.h"

namespace falaj::expr {

enum class Type : std::uint8_t { boolean = 1, int64, float64, text, timestamp };
std::string_view name(Type type);

// Null, or a value of one of the types, in sixteen bytes. A text is borrowed: it is good while its bytes are. There is
// no infinity and no not-a-number here: they become null as they come in, so nothing that computes meets them.
class Value {
 public:
  constexpr Value() = default;  // null
  static Value boolean(bool v) { return of(Type::boolean, v); }
  static Value int64(std::int64_t v) { return of(Type::int64, v); }
  static Value timestamp(std::int64_t unix_us) { return of(Type::timestamp, unix_us); }
  static Value float64(double v) {
    Value out;
    if (!std::isfinite(v)) return out;
    out.type_ = static_cast<std::uint64_t>(Type::float64);
    out.real_ = v;
    return out;
  }
  static Value text(std::string_view v) {
    Value out;
    out.type_ = static_cast<std::uint64_t>(Type::text);
    out.size_ = v.size();
    out.data_ = v.data();
    return out;
  }

  bool is_null() const { return type_ == 0; }
  bool is(Type type) const { return type_ == static_cast<std::uint64_t>(type); }
  // Require: it is of that type.
  bool as_boolean() const { return checked(Type::boolean).integer_ != 0; }
  std::int64_t as_int64() const { return checked(Type::int64).integer_; }
  double as_float64() const { return checked(Type::float64).real_; }
  std::int64_t as_timestamp() const { return checked(Type::timestamp).integer_; }
  std::string_view as_text() const { return {checked(Type::text).data_, size_}; }

  // The same value of the same type; a null is the same as a null, unlike in the language.
  friend bool operator==(const Value& a, const Value& b) {
    if (a.type_ != b.type_ || a.is_null()) return a.type_ == b.type_;
    if (a.is(Type::float64)) return a.real_ == b.real_;
    return a.is(Type::text) ? a.as_text() == b.as_text() : a.integer_ == b.integer_;
  }

 private:
  friend struct Raw;  // program.cc: reads without asking for the type, which the compiler of expressions has proved

  static Value of(Type type, std::int64_t v) {
    Value out;
    out.type_ = static_cast<std::uint64_t>(type);
    out.integer_ = v;
    return out;
  }
  const Value& checked(Type type) const {
    CHECK(is(type), "a value is read as what it is");
    return *this;
  }

  union {
    std::int64_t integer_ = 0;  // boolean, int64, timestamp
    double real_;
    const char* data_;
  };
  std::uint64_t type_ : 8 = 0;  // a Type, 0 for null
  std::uint64_t size_ : 56 = 0;
};

}  // namespace falaj::expr
