// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "lifecycle/data/datasets.h"

namespace falaj::data {

// For reading that somebody waits for: throws deadline when it takes too long from here on, and cancelled when nobody
// does any more.
table::Workspace::Watch patience(const sys::Clock& clock, sys::Micros time_max, std::function<bool()> is_abandoned);

struct Ask {
  std::string sql;
  sys::Micros time_max = std::chrono::minutes(1);
  std::uint64_t rows_max = 100'000;
  std::uint64_t bytes_max = std::uint64_t{32} << 20;  // of the values
  std::function<bool()> is_abandoned{};               // nobody waits for the answer any more
};

// A user's SELECT over datasets of the project: "flights" is the newest version, "flights@3" (in double quotes) that
// one. `may_read` throws for a dataset that the caller may not read, and is asked for "" when the SELECT needs none;
// only what the SELECT names is there at all. Returns the columns; `each` gets at most as many rows as the limits let.
// Errors: invalid, denied, deadline, cancelled, exhausted.
struct Answered {
  table::Schema schema;
  bool whole = true;  // false: there were more rows than the limits let
};
Answered ask(Datasets& datasets, const Where& where, const Ask& question, const sys::Clock& clock,
             const std::function<void(const std::string& dataset)>& may_read,
             const std::function<void(const table::Chunk&, std::size_t rows)>& each);

}  // namespace falaj::data
