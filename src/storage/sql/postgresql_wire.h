// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to this directory: how values and statements look to PostgreSQL. No connection is needed for any of it.

#include <libpq-fe.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/error.h"
#include "storage/sql/database.h"

namespace falaj::sql {

// "... a = ? AND b = ?" as "... a = $1 AND b = $2"; question marks inside quotes and comments stay.
std::string numbered_parameters(std::string_view text);

Code code_of_sqlstate(std::string_view state);

// Types by their numbers in pg_type, which never change.
inline constexpr Oid kBool = 16, kBytea = 17, kInt8 = 20, kInt2 = 21, kInt4 = 23, kText = 25, kFloat8 = 701;

// Parameters as libpq wants them. Borrows from `params`.
class WireParams {
 public:
  explicit WireParams(Params params);
  int count() const { return static_cast<int>(values_.size()); }
  const std::vector<Oid>& types() const { return types_; }  // 0 for NULL: the server finds out
  const char* const* values() const { return values_.data(); }
  const int* lengths() const { return lengths_.data(); }
  const int* formats() const { return formats_.data(); }

 private:
  std::vector<std::array<char, 8>> numbers_;
  std::vector<Oid> types_;
  std::vector<const char*> values_;
  std::vector<int> lengths_, formats_;
};

struct ClearResult {
  void operator()(PGresult* result) const { PQclear(result); }
};
using Result = std::unique_ptr<PGresult, ClearResult>;

// One row of a result in binary format.
class PostgresqlRow final : public Row {
 public:
  PostgresqlRow(const PGresult* result, int row) : result_(result), row_(row) {}
  bool is_null(int column) const override;
  std::int64_t integer(int column) const override;
  double real(int column) const override;
  std::string_view text(int column) const override;
  BytesView bytes(int column) const override;

 private:
  std::string_view raw(int column) const;  // throws internal on NULL
  [[noreturn]] static void refuse(int column, const char* wanted);
  const PGresult* result_;
  int row_;
};

}  // namespace falaj::sql
