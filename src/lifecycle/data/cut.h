// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "storage/sql/database.h"

namespace falaj::data {

// Rows that must go out of a dataset, of all its versions.
struct Going {
  std::vector<std::string> keys;          // the columns that name people
  std::optional<std::string> subject;     // rows in which one of those is this
  std::string time;                       // and rows
  std::optional<std::int64_t> before_us;  // in which this column is before that
};

// What became of a dataset, or would.
struct Cut {
  std::int64_t rows = 0;                // that went
  std::vector<std::int64_t> held;       // versions that had some of them, those that were erased before too
  std::vector<std::int64_t> erased;     // of those, the ones that are erased now
  std::optional<std::int64_t> version;  // made of what is left of the newest
};

struct CutOptions {
  std::string erasure;  // in whose course
  // Runs in the write that makes it so.
  std::function<void(sql::Writer&, const Cut&)> also;
};

}  // namespace falaj::data
