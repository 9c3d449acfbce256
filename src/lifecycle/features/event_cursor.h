// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/features: the events of a view as the online store takes them.
#pragma once

#include <string>
#include <vector>

#include "lifecycle/features/definitions.h"
#include "lifecycle/lookup/record.h"
#include "storage/table/workspace.h"

namespace falaj::features {

// The events of a view, out of a room that has the dataset under its name; those of an entity lie together, in the
// order of the rows. Rows whose key or time is null are no events.
class EventCursor {
 public:
  // `condition`: SQL of ours over at_us and source_row (1, 2, ...), or "".
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
