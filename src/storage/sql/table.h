// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "storage/sql/value.h"

namespace falaj::sql {

enum class Kind { integer, real, text, bytes };

struct Column {
  std::string name;
  Kind kind = Kind::text;
  friend bool operator==(const Column&, const Column&) = default;
};
struct Table {
  std::string name;
  std::vector<Column> columns;
  friend bool operator==(const Table&, const Table&) = default;
};

// Takes a whole database: a table, then its rows in the order of its columns, then the next. What one engine gives the
// other takes.
class TableSink {
 public:
  virtual ~TableSink() = default;
  virtual void table(const Table& table) = 0;
  virtual void row(std::span<const Value> values) = 0;
};

}  // namespace falaj::sql
