// SPDX-License-Identifier: Apache-2.0
#include "storage/sql/postgresql_wire.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "storage/sql/schema.h"

namespace falaj::sql {

namespace {

template <class T>
T big_endian(std::string_view bytes) {
  T v = 0;
  for (const char c : bytes) v = static_cast<T>(v << 8 | static_cast<unsigned char>(c));
  return v;
}

std::array<char, 8> to_big_endian(std::uint64_t v) {
  std::array<char, 8> out;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(v >> (8 * (7 - i)));
  return out;
}

}  // namespace

std::string numbered_parameters(std::string_view text) {
  std::string out;
  int n = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (text[i] == '\'' || text[i] == '"') {
      end = text.find(text[i], i + 1);
      end = end == std::string_view::npos ? text.size() : end + 1;
    } else if (text.substr(i, 2) == "--") {
      end = std::min(text.find('\n', i), text.size());
    }
    if (text[i] == '?')
      out += fmt::format("${}", ++n);
    else
      out += text.substr(i, end - i);
    i = end;
  }
  return out;
}

Code code_of_sqlstate(std::string_view state) {
  const auto kind = state.substr(0, 2);
  if (state == "23505" || state == "23503" || state == "23P01" || kind == "40") return Code::conflict;
  if (kind == "23" || kind == "22" || kind == "54") return Code::invalid;
  if (kind == "53") return Code::exhausted;
  if (state == "08P01") return Code::internal;  // parameters that do not fit the statement
  if (kind == "08" || kind == "57" || kind == "58") return Code::unavailable;
  if (kind == "XX") return Code::corrupt;
  return Code::internal;
}

WireParams::WireParams(Params params) : numbers_(params.size()) {
  struct Add {
    WireParams& to;
    std::array<char, 8>& number;
    void add(Oid type, const char* value, std::size_t length, int format) const {
      to.types_.push_back(type);
      to.values_.push_back(value);
      to.lengths_.push_back(static_cast<int>(length));
      to.formats_.push_back(format);
    }
    void operator()(Null) const { add(0, nullptr, 0, 1); }
    void operator()(std::int64_t v) const {
      number = to_big_endian(static_cast<std::uint64_t>(v));
      add(kInt8, number.data(), number.size(), 1);
    }
    void operator()(double v) const {
      number = to_big_endian(std::bit_cast<std::uint64_t>(v));
      add(kFloat8, number.data(), number.size(), 1);
    }
    // An empty view may hold a null pointer, which libpq would take for NULL.
    void operator()(std::string_view v) const {
      refuse_bad_text(v);
      add(kText, v.data() ? v.data() : "", v.size(), 1);
    }
    void operator()(BytesView v) const { add(kBytea, v.data() ? as_text(v).data() : "", v.size(), 1); }
  };
  for (auto* list : {&lengths_, &formats_}) list->reserve(params.size());
  for (std::size_t i = 0; i < params.size(); ++i) std::visit(Add{*this, numbers_[i]}, params[i]);
}

void PostgresqlRow::refuse(int column, const char* wanted) {
  throw Error(Code::internal, fmt::format("column {} does not hold {}", column, wanted));
}

bool PostgresqlRow::is_null(int column) const {
  if (column < 0 || column >= PQnfields(result_))
    throw Error(Code::internal, fmt::format("no such column in this row: {}", column));
  return PQgetisnull(result_, row_, column) != 0;
}

std::string_view PostgresqlRow::raw(int column) const {
  if (is_null(column)) refuse(column, "a value: it is null");
  return {PQgetvalue(result_, row_, column), static_cast<std::size_t>(PQgetlength(result_, row_, column))};
}

std::int64_t PostgresqlRow::integer(int column) const {
  const auto bytes = raw(column);
  switch (PQftype(result_, column)) {
    case kInt8:
      return static_cast<std::int64_t>(big_endian<std::uint64_t>(bytes));
    case kInt4:
      return static_cast<std::int32_t>(big_endian<std::uint32_t>(bytes));
    case kInt2:
      return static_cast<std::int16_t>(big_endian<std::uint16_t>(bytes));
    case kBool:
      return bytes[0] != 0;  // comparisons are integers in SQLite
    default:
      refuse(column, "an integer");
  }
}

double PostgresqlRow::real(int column) const {
  if (PQftype(result_, column) != kFloat8) refuse(column, "a real number");
  return std::bit_cast<double>(big_endian<std::uint64_t>(raw(column)));
}

std::string_view PostgresqlRow::text(int column) const {
  constexpr Oid kName = 19, kVarchar = 1043, kUnknown = 705;
  const auto bytes = raw(column);
  const auto type = PQftype(result_, column);
  if (type != kText && type != kVarchar && type != kName && type != kUnknown) refuse(column, "text");
  return bytes;
}

BytesView PostgresqlRow::bytes(int column) const {
  const auto value = raw(column);
  if (PQftype(result_, column) != kBytea) refuse(column, "bytes");
  return as_bytes(value);
}

}  // namespace falaj::sql
