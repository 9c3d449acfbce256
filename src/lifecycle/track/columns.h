// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "foundation/base/mutex.h"
#include "lifecycle/track/column.h"
#include "lifecycle/track/filter.h"
#include "lifecycle/track/run_cache.h"
#include "storage/sql/database.h"

namespace falaj::track {

// A run, by its experiment's row and its place in it.
struct RunPlace {
  std::int64_t experiment = 0, place = 0;
};

// What searching looks at, kept in memory by columns: a filter reads only the columns it names, each loaded when first
// asked for and then kept up to date by the writes themselves. An experiment that nobody searches costs nothing; past
// the limit the ones unused for longest are dropped and load again.
class Columns {
 public:
  Columns(sql::Database& database, std::size_t bytes_max) : database_(database), bytes_max_(bytes_max) {}

  using Key = ColumnKey;
  // What a committed write did to one value; `text` and `number` both unset: it is gone.
  struct Change {
    std::int64_t experiment = 0, place = 0;
    Key key;
    std::optional<std::string> text;
    std::optional<double> number;
  };
  // Cheap, for the writer's thread: applied before the next search.
  void note(std::vector<Change> changes);
  void touch(std::int64_t experiment, std::int64_t place);  // something of the run changed that is not searched by
  RunCache& runs() { return runs_; }
  void drop(std::int64_t experiment);  // what is known of it; it loads again

  struct Asked {
    std::vector<Comparison> filter;
    std::vector<Order> order;
    bool active = true, deleted = false;
    std::size_t offset = 0, limit = 0;
  };
  // Places in order, at most `limit`, and whether there are more.
  struct Answer {
    std::vector<RunPlace> runs;
    bool more = false;
  };
  Answer search(std::span<const std::int64_t> experiments, const Asked& asked);
  std::size_t bytes() const;

 private:
  struct Loaded {
    std::map<Key, Column> columns;
    std::uint64_t used = 0;
    std::size_t bytes() const;
  };
  const Column& column(std::int64_t experiment, const Key& key) REQUIRES(mu_);
  void apply_noted() REQUIRES(mu_);
  void shrink(std::span<const std::int64_t> keep) REQUIRES(mu_);
  std::vector<bool> of_datasets(std::int64_t experiment, const Comparison& comparison, std::size_t size);

  sql::Database& database_;
  const std::size_t bytes_max_;
  RunCache runs_;

  mutable Mutex mu_;
  std::unordered_map<std::int64_t, Loaded> loaded_ GUARDED_BY(mu_);
  std::uint64_t searches_ GUARDED_BY(mu_) = 0;

  mutable Mutex noted_mu_;  // taken after mu_, held for moments only
  std::vector<Change> noted_ GUARDED_BY(noted_mu_);
  std::unordered_set<std::int64_t> followed_ GUARDED_BY(noted_mu_);  // experiments whose changes matter
  std::vector<std::int64_t> dropped_ GUARDED_BY(noted_mu_);
};

}  // namespace falaj::track
