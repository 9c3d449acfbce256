// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/features: events of a view that takes the rows of its dataset as they are.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lifecycle/features/as_of.h"
#include "lifecycle/features/types.h"
#include "lifecycle/lookup/record.h"

namespace falaj::features {

// Events of an entity, by its key.
using EntityEvents = std::vector<std::pair<Bytes, std::vector<lookup::Happened>>>;

// Which column goes where, for views whose columns need no conversion: their events are read off the rows, and are
// those that the engine would give. The engine takes milliseconds for any number of rows.
class PlainRows {
 public:
  using Row = std::vector<lookup::Value>;  // by the columns of the dataset

  // Nothing when only the engine can tell: there is SQL, a type that is not the one that is kept, a hash.
  static std::optional<PlainRows> of(const FeatureViewSpec& spec, const ViewPlan& plan, const table::Schema& columns);

  // Rows are numbered from 1. Those without a key or a time are no events.
  EntityEvents events(const lookup::View& view, std::span<const Row> rows) const;

 private:
  using Holds = std::function<bool(const lookup::Value&)>;  // of a value that is not null
  struct Time {
    std::size_t column = 0;
    std::int64_t unit_us = 1;  // of a date: a day
  };
  struct Input {
    std::optional<std::size_t> column;  // without: 1
    std::vector<std::pair<std::size_t, Holds>> where;
  };
  static std::optional<Input> input_of(const AggregateSpec& aggregate, const table::Schema& columns);
  static std::optional<std::int64_t> time_of(const Row& row, const Time& time);
  static lookup::Cell cell(const Row& row, const Input& input);

  std::vector<std::size_t> key_;
  Time at_, available_;
  std::vector<Input> inputs_;
  std::vector<std::size_t> features_;  // of the newest row
};

}  // namespace falaj::features
