// SPDX-License-Identifier: Apache-2.0
#pragma once

// Features of a view one by one, as of a moment: the one piece of code for every program that reads the online store.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lifecycle/lookup/computed.h"
#include "lifecycle/lookup/view.h"

namespace falaj::lookup {

// Where a feature is found in what a view says of an entity.
struct Place {
  enum class In { row, window, computed } in = In::row;
  std::size_t index = 0;
  Type type = Type::float64;
};
std::optional<Place> find_place(const View& view, const Computed& computed, std::string_view feature);
bool computes(std::span<const Place> places);  // whether fields of the request are needed

// One feature of one entity. Text lies in the store's memory.
struct FeatureCell {
  Status status = Status::missing;  // the value is one only when present
  std::int64_t event_us = 0;        // of the newest row; 0 for windows, which have no such moment
  std::int64_t whole = 0;           // also of booleans, dates and timestamps
  double real = 0;
  std::string_view text;  // also of bytes
};
// Who is told what was found. Features are numbered through all views that were asked for.
class FeatureSink {
 public:
  virtual ~FeatureSink() = default;
  virtual void begin() = 0;  // forget what was told: something came in between, and all is told anew
  virtual void add(std::size_t feature, std::size_t entity, const FeatureCell& cell) = 0;  // valid during the call
};

// Which features of a view are wanted, and of whom. Nothing is owned.
struct Reading {
  const View& view;
  const Computed& computed;
  std::span<const Place> places;
  const online::Space* space = nullptr;  // null: everything comes of the request
  std::span<const BytesView> keys;       // one for each entity, unless there is no space
  std::size_t entities = 0;
  std::span<const std::vector<Value>* const> request;  // by field of `computed`, when some of the places need them
};
// Tells all of it as of then, features numbered from `first` on; `snapshot` may be null where there is no space. Errors
// as of read().
void read_features(online::Snapshot* snapshot, const Reading& reading, std::int64_t as_of_us, std::size_t first,
                   FeatureSink& into);

// A space that programs elsewhere read has a row under this key, which is no entity's, from before they are told of it
// until before the first of its rows is erased. Whoever sees it after having read has read what was whole.
inline constexpr BytesView kWholeMark{};
bool has_mark(online::Snapshot& snapshot, const online::Space& space);

}  // namespace falaj::lookup
