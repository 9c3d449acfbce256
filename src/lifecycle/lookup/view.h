// SPDX-License-Identifier: Apache-2.0
#pragma once

// A feature view as whoever reads it online needs it: no resource, no SQL and no dataset, so that a program that has
// none of those can read in its own process.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "foundation/base/bytes.h"
#include "lifecycle/lookup/window.h"
#include "storage/online/row.h"
#include "storage/online/store.h"

namespace falaj::lookup {

using online::Status;
using online::Type;

struct Column {
  std::string name;
  Type type = Type::text;
};

// What one version of a view keeps of an entity: the newest row, and windows. Immutable.
struct View {
  View(std::uint32_t version, std::vector<Type> key_types, std::vector<Column> row_columns, Windows all_windows,
       std::vector<std::string> names_of_windows, std::optional<std::int64_t> time_to_live_us);

  const std::vector<Type> key;
  const std::vector<Column> rows;
  const online::RowLayout layout;  // of `rows`
  const Windows windows;
  const std::vector<std::string> window_names;  // one for each feature of `windows`
  const std::optional<std::int64_t> ttl_us;
};

// A value of an entity's key, or of a feature. Dates are days and timestamps microseconds since 1970.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

// The bytes that name an entity: the same for the same key, whoever asks. Throws invalid when a value is null or not of
// its type.
Bytes entity_key(std::span<const Type> types, std::span<const Value> values);

// What a view says of one entity. Valid during the call that gets it.
struct Found {
  Status row = Status::missing;      // of the newest row: present, missing or expired
  std::int64_t event_us = 0;         // of the newest row
  const online::RowView* columns{};  // of the newest row; null unless present
  std::span<const Cell> windows;     // one for each feature of the view's windows
};

// What was known of each entity as of then; `each` is called once for every key, in order.
// Errors: conflict when something that was known only later is already counted in (as_of_us lies before the last
// write), and those of the store.
void read(online::Snapshot& snapshot, const online::Space& space, const View& view, std::span<const BytesView> keys,
          std::int64_t as_of_us, const std::function<void(std::size_t index, const Found&)>& each);

}  // namespace falaj::lookup
