// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "foundation/base/mutex.h"
#include "lifecycle/track/filter.h"
#include "lifecycle/track/run_cache.h"
#include "storage/sql/database.h"

namespace falaj::track {

// One value of every run of an experiment, by the run's place in it. Text is kept once for each distinct value.
class Column {
 public:
  enum class Type { number, text };
  explicit Column(Type type) : type_(type) {}

  void set(std::size_t place, double value);
  void set(std::size_t place, std::string_view value);
  void clear(std::size_t place);

  bool has(std::size_t place) const {
    return place < size() && (type_ == Type::text ? codes_[place] != 0 : has_[place]);
  }
  double number(std::size_t place) const { return numbers_[place]; }
  const std::string& text(std::size_t place) const { return texts_[codes_[place]]; }
  std::size_t size() const { return type_ == Type::text ? codes_.size() : numbers_.size(); }
  std::size_t bytes() const { return bytes_; }

  // Clears in `keep` every place whose value does not match.
  void filter(const Comparison& comparison, std::vector<bool>& keep) const;
  // By value, missing last and NaN before it, whichever the direction. <0, 0, >0.
  int compare(std::size_t a, const Column& other, std::size_t b, bool ascending) const;

 private:
  const Type type_;
  std::vector<double> numbers_;
  std::vector<bool> has_;
  std::vector<std::uint32_t> codes_;  // into texts_; 0 = no value
  std::vector<std::string> texts_{""};
  std::unordered_map<std::string, std::uint32_t> code_of_;
  std::size_t bytes_ = 0;
};

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

  struct Key {
    Entity entity = Entity::attribute;
    std::string key;  // of an attribute: its name in the filter language; "stage" too
    friend auto operator<=>(const Key&, const Key&) = default;
  };
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
  Column load(std::int64_t experiment, const Key& key);
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
