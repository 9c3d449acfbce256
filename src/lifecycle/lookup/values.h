// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "foundation/base/json.h"
#include "lifecycle/lookup/view.h"

namespace falaj::lookup {

inline constexpr std::int64_t kDayUs =
    std::int64_t{86'400} * 1'000'000;  // a date counts days, a timestamp microseconds

// Values as requests and answers have them: times in RFC 3339 (without a zone: UTC), dates as "2001-01-31", bytes in
// base64, not-a-number and infinities as null. Nothing when the value is not of the type.
std::optional<Value> from_json(const json::value& value, Type type);
json::value to_json(const Value& value, Type type);
void append_time(std::string& out, std::int64_t us);  // "2001-01-31T10:00:00.500Z", with no digits, three or six
void append_date(std::string& out, std::int64_t days);
std::string_view what_is_expected(Type type);  // "a whole number", for errors

std::string_view name(Type type);  // as datasets call it: "float64"
std::optional<Type> parse_type(std::string_view name);

Value value_of(const online::RowView& row, std::size_t column, Type type);

}  // namespace falaj::lookup
