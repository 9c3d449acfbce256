// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/lookup/values.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::lookup {
namespace {

std::optional<std::int64_t> time_of(std::string_view text) {
  constexpr std::size_t kDate = 10, kSeconds = 19;
  std::string whole(text);
  if (text.size() == kDate) whole += "T00:00:00";
  // A zone begins with Z, + or a '-' after the date.
  if (whole.size() >= kSeconds && whole.find_first_of("Zz+-", kSeconds) == std::string::npos) whole += 'Z';
  return parse_time(whole);
}

// The last `width` digits, or more where there are more.
void append_digits(std::string& out, std::uint64_t value, std::size_t width) {
  const fmt::format_int digits(value);
  if (digits.size() < width) out.append(width - digits.size(), '0');
  out.append(digits.data(), digits.size());
}

std::string date_text(std::int64_t days) {
  std::string out;
  append_date(out, days);
  return out;
}

std::string time_text(std::int64_t us) {
  std::string out;
  append_time(out, us);
  return out;
}

std::optional<std::int64_t> whole_of(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  // Some clients know only one kind of number.
  if (value.is_double() && std::nearbyint(value.get_double()) == value.get_double() &&
      std::abs(value.get_double()) < 9e15)
    return static_cast<std::int64_t>(value.get_double());
  return std::nullopt;
}

std::optional<Value> bytes_of(const json::value& value) {
  if (!value.is_string()) return std::nullopt;
  try {
    return Value(std::string(as_text(from_base64(value.get_string()))));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

// Answers hold thousands of these: written without a format to be read each time.
void append_date(std::string& out, std::int64_t days) {
  const std::chrono::year_month_day d{std::chrono::sys_days(std::chrono::days(days))};
  const auto year = static_cast<int>(d.year());
  if (year < 0) out += '-';
  append_digits(out, static_cast<std::uint64_t>(std::abs(year)), year < 0 ? 3 : 4);
  out += '-';
  append_digits(out, static_cast<unsigned>(d.month()), 2);
  out += '-';
  append_digits(out, static_cast<unsigned>(d.day()), 2);
}

void append_time(std::string& out, std::int64_t us) {
  auto days = us / kDayUs;
  if (us % kDayUs < 0) --days;
  const auto left = static_cast<std::uint64_t>(us - days * kDayUs), seconds = left / 1'000'000,
             micros = left % 1'000'000;
  append_date(out, days);
  out += 'T';
  append_digits(out, seconds / 3600, 2);
  out += ':';
  append_digits(out, seconds / 60 % 60, 2);
  out += ':';
  append_digits(out, seconds % 60, 2);
  if (micros != 0) {
    out += '.';
    if (micros % 1000 == 0)
      append_digits(out, micros / 1000, 3);
    else
      append_digits(out, micros, 6);
  }
  out += 'Z';
}

namespace {

constexpr std::string_view kTypeNames[] = {"boolean", "int32", "int64", "float32",  "float64",
                                           "text",    "bytes", "date",  "timestamp"};  // in the order of Type

}  // namespace

std::string_view name(Type type) { return kTypeNames[static_cast<std::size_t>(type)]; }

std::optional<Type> parse_type(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kTypeNames); ++i)
    if (kTypeNames[i] == name) return static_cast<Type>(i);
  return std::nullopt;
}

std::string_view what_is_expected(Type type) {
  switch (type) {
    case Type::boolean:
      return "true or false";
    case Type::int32:
      return "a whole number of 32 bits";
    case Type::int64:
      return "a whole number";
    case Type::float32:
    case Type::float64:
      return "a number";
    case Type::text:
      return "text";
    case Type::bytes:
      return "bytes in base64";
    case Type::date:
      return "a date such as 2001-01-31";
    case Type::timestamp:
      return "a time such as 2001-01-31T10:00:00Z";
  }
  return "";
}

std::optional<Value> from_json(const json::value& value, Type type) {
  if (value.is_null()) return Value();
  switch (type) {
    case Type::boolean:
      return value.is_bool() ? std::optional(Value(value.get_bool())) : std::nullopt;
    case Type::int32:
    case Type::int64: {
      const auto whole = whole_of(value);
      if (!whole) return std::nullopt;
      const auto fits =
          *whole >= std::numeric_limits<std::int32_t>::min() && *whole <= std::numeric_limits<std::int32_t>::max();
      return type == Type::int64 || fits ? std::optional(Value(*whole)) : std::nullopt;
    }
    case Type::float32:
    case Type::float64:
      if (value.is_double()) return Value(value.get_double());
      if (value.is_int64()) return Value(static_cast<double>(value.get_int64()));
      if (value.is_uint64()) return Value(static_cast<double>(value.get_uint64()));
      return std::nullopt;
    case Type::text:
      return value.is_string() ? std::optional(Value(std::string(value.get_string()))) : std::nullopt;
    case Type::bytes:
      return bytes_of(value);
    case Type::date:
    case Type::timestamp: {
      if (!value.is_string()) return std::nullopt;
      const auto us = time_of(value.get_string());
      if (!us) return std::nullopt;
      if (type == Type::timestamp) return Value(*us);
      return *us % kDayUs == 0 ? std::optional(Value(*us / kDayUs)) : std::nullopt;
    }
  }
  return std::nullopt;
}

json::value to_json(const Value& value, Type type) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* real = std::get_if<double>(&value))
    return std::isfinite(*real) ? json::value(*real) : json::value(nullptr);
  if (const auto* text = std::get_if<std::string>(&value))
    return type == Type::bytes ? json::value(to_base64(as_bytes(*text))) : json::value(*text);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    if (type == Type::date) return json::value(date_text(*whole));
    if (type == Type::timestamp) return json::value(time_text(*whole));
    return *whole;
  }
  return nullptr;
}

Value value_of(const online::RowView& row, std::size_t column, Type type) {
  if (row.is_null(column)) return {};
  switch (type) {
    case Type::boolean:
      return row.boolean(column);
    case Type::float32:
    case Type::float64:
      return row.real(column);
    case Type::text:
    case Type::bytes:
      return std::string(row.text(column));
    default:
      return row.integer(column);
  }
}

}  // namespace falaj::lookup
