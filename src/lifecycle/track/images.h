// SPDX-License-Identifier: Apache-2.0
#pragma once

// The columns that searching reads, kept in the database beside the rows they are made of, so that the first search by
// a key reads a hundred rows and not one for each run.
//
//   track_image      one column of a chunk of kImagePlaces runs (Column::image)
//   track_unimaged   runs of which images do not say the truth
//
// Rows are the truth: where there is no image, or the run is unimaged, they are read instead. Whoever writes a row of a
// run says so to Images; every so many of them, it makes new images within the same write.

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "foundation/base/mutex.h"
#include "lifecycle/track/column.h"
#include "lifecycle/track/tables.h"
#include "storage/sql/database.h"

namespace falaj::track {

Column load_column(sql::Reader& reader, std::int64_t experiment, const ColumnKey& key);

// Thread-safe.
class Images {
 public:
  // In a write that made this run, or changed what searches see of it, after all its other statements.
  void made(sql::Writer& writer, const RunRow& row);
  void changed(sql::Writer& writer, const RunRow& row);
  // All runs of the experiment have another stage.
  void stages_changed(sql::Writer& writer, std::int64_t experiment);
  // Nothing of the run stays in any image. Others of its chunk are read from their rows until new images are made.
  void removed(sql::Writer& writer, const RunRow& row);

  // Makes images of about a thousand unimaged runs; returns of how many.
  static std::int64_t make(sql::Writer& writer, std::int64_t experiment);

  // A chunk that has runs but no images: of before there were any, or because some were removed.
  struct Place {
    std::int64_t experiment = 0, chunk = 0;
  };
  static std::optional<Place> missing(sql::Reader& reader);
  static void make(sql::Writer& writer, const Place& place);

 private:
  void list(sql::Writer& writer, const RunRow& row, std::int64_t weight);

  Mutex mu_;
  std::unordered_map<std::int64_t, std::int64_t> waiting_ GUARDED_BY(mu_);  // unimaged, by experiment, roughly
};

}  // namespace falaj::track
