// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/features: the events of a view as the online store takes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lifecycle/features/definitions.h"
#include "lifecycle/lookup/record.h"
#include "storage/table/workspace.h"

namespace falaj::features {

// Clocks differ: what happens this much later is taken too, and waits in its record until then.
inline constexpr std::int64_t kSkewUs = std::int64_t{300} * 1'000'000;
inline constexpr std::int64_t kPastUs = std::int64_t{3600} * 1'000'000;

// The events of a view, out of a room that has the dataset under its name; those of an entity lie together, in the
// order of the rows. Rows whose key or time is null are no events.
class EventCursor {
 public:
  // `condition`: SQL of ours over at_us, or "".
  EventCursor(table::Workspace& room, const Definition& of, const std::string& condition);

  bool at_end() const { return chunk_ == nullptr; }
  void next();
  Bytes key() const;  // of the entity
  bool same_key(BytesView key) const { return !at_end() && this->key() == Bytes(key.begin(), key.end()); }
  const lookup::Event& event() const { return event_; }
  Bytes row();  // the columns of the newest row, if this is it

 private:
  void step();
  void load();

  const Definition& of_;
  table::Workspace::Cursor cursor_;
  const table::Chunk* chunk_ = nullptr;
  std::size_t at_ = 0;
  lookup::Event event_;
  online::RowWriter writer_;
};

lookup::Value value_of(const table::Chunk& chunk, std::size_t column, std::size_t row);  // null: nothing

// A record as the store takes it; it goes by itself when all in it is too old, if it `expires`.
online::Changed changed(const lookup::View& view, const lookup::Record& record, bool expires);

}  // namespace falaj::features
