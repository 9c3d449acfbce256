// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace falaj::table {

// What a stored column can hold. Other types of files and queries become one of these: small integers int32, decimals
// float64, times with a zone timestamp; what has no place here (lists, structs, intervals) becomes text in the answer
// of a query and is refused in a dataset.
enum class Type {
  boolean,
  int32,
  int64,
  float32,
  float64,
  text,
  bytes,
  date,       // days since 1970-01-01
  timestamp,  // microseconds since 1970-01-01T00:00:00Z
};
inline constexpr Type kTypes[] = {Type::boolean, Type::int32, Type::int64, Type::float32,  Type::float64,
                                  Type::text,    Type::bytes, Type::date,  Type::timestamp};
std::string_view name(Type type);
std::optional<Type> parse_type(std::string_view name);

struct Column {
  std::string name;
  Type type = Type::text;
  bool nullable = true;
  friend bool operator==(const Column&, const Column&) = default;
};
using Schema = std::vector<Column>;
const Column* find(const Schema& schema, std::string_view name);  // null when there is none

// ---- SQL text. The only ways a name or a value of somebody else becomes a part of a statement.
std::string identifier(std::string_view name);                   // "a ""b"""
std::string identifiers(const std::vector<std::string>& names);  // "a", "b"
std::string literal(std::string_view text);                      // 'it''s'
std::string_view sql_name(Type type);                            // BIGINT, ...

}  // namespace falaj::table
