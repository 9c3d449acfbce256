// SPDX-License-Identifier: Apache-2.0
#include "storage/table/schema.h"

#include <algorithm>

#include "foundation/base/error.h"

namespace falaj::table {
namespace {

struct Named {
  Type type;
  std::string_view name, sql;
};
constexpr Named kNamed[] = {
    {Type::boolean, "boolean", "BOOLEAN"},
    {Type::int32, "int32", "INTEGER"},
    {Type::int64, "int64", "BIGINT"},
    {Type::float32, "float32", "FLOAT"},
    {Type::float64, "float64", "DOUBLE"},
    {Type::text, "text", "VARCHAR"},
    {Type::bytes, "bytes", "BLOB"},
    {Type::date, "date", "DATE"},
    {Type::timestamp, "timestamp", "TIMESTAMP"},
};

const Named& named(Type type) {
  const auto* found = std::find_if(std::begin(kNamed), std::end(kNamed), [&](const auto& n) { return n.type == type; });
  CHECK(found != std::end(kNamed), "every type has a name");
  return *found;
}

std::string in_quotes(std::string_view text, char quote) {
  // DuckDB reads a statement up to a zero byte: what follows would be lost, and with it the closing quote.
  if (text.find('\0') != std::string_view::npos) throw Error(Code::invalid, "a name or value holds a zero byte");
  std::string out(1, quote);
  for (const char c : text) out.append(c == quote ? 2 : 1, c);
  return out + quote;
}

}  // namespace

std::string_view name(Type type) { return named(type).name; }
std::string_view sql_name(Type type) { return named(type).sql; }

std::optional<Type> parse_type(std::string_view name) {
  for (const auto& n : kNamed)
    if (n.name == name) return n.type;
  return std::nullopt;
}

const Column* find(const Schema& schema, std::string_view name) {
  const auto found = std::find_if(schema.begin(), schema.end(), [&](const auto& c) { return c.name == name; });
  return found == schema.end() ? nullptr : &*found;
}

std::string identifier(std::string_view name) { return in_quotes(name, '"'); }

std::string identifiers(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ", ") + identifier(name);
  return out;
}

std::string literal(std::string_view text) { return in_quotes(text, '\''); }

}  // namespace falaj::table
