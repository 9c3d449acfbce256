// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lifecycle/flow/life.h"
#include "lifecycle/flow/work.h"
#include "storage/sql/database.h"

namespace falaj::flow {

// A run: what was asked for, which never changes, and its life.
struct Run {
  RunFacts facts;
  Where where;
  std::string owner;          // in whose name it acts
  json::value cause;          // what began it: {"by": "user/ada"}, {"trigger": "cron", ...}
  std::int64_t revision = 0;  // of the pipeline
  std::int64_t created_us = 0;
  std::shared_ptr<const Plan> plan;
  RunLife life;

  std::int64_t version = 0;  // of the life, as it is stored
  iam::Scope scope() const;  // of the run
};

// What a person asked of a run, until it was seen to.
struct Wish {
  std::int64_t number = 0;
  std::string what, step, by, why;  // cancel, approve, reject
};

struct Kept {
  json::value outputs;
  std::string from;  // "RUN/step"
  std::int64_t at_us = 0;
};

struct ListRuns {
  std::string pipeline, phase;  // "" = any
  std::string after;            // the id that the page before ended with
  std::size_t limit = 100;
};

// The rows of pipelines' runs. Thread-safe, as the database is.
class Store {
 public:
  static std::span<const sql::Migration> migrations();
  explicit Store(sql::Database& database) : database_(database) {}

  // ---- inside a write
  // With a key that a run of the pipeline has already, that one's id, and nothing is written. Gives the run its number.
  // Throws conflict when that run is forgotten.
  std::optional<std::string> insert(sql::Writer& writer, Run& run, const std::string& key) const;
  // Throws conflict when somebody else wrote it since it was read.
  void write(sql::Writer& writer, Run& run) const;
  void wish(sql::Writer& writer, const Run& run, const Wish& wish) const;  // throws exhausted; of one under way
  void forget_wishes(sql::Writer& writer, const std::string& run, std::int64_t up_to) const;
  void keep(sql::Writer& writer, const Where& where, const std::string& key, const Kept& kept) const;
  void set_cursor(sql::Writer& writer, const Where& where, const std::string& pipeline, const std::string& trigger,
                  std::int64_t seen) const;

  // Runs of a pipeline that ended before then, at most `most` of them; the newest stays, whose number the next one goes
  // on from. What a signed call began stays known, so that nobody can send it again. How many went.
  std::size_t forget(sql::Writer& writer, const Where& where, const std::string& pipeline, std::int64_t before_us,
                     std::size_t most) const;
  std::size_t forget_kept(sql::Writer& writer, std::int64_t before_us) const;  // what was made before then

  // ---- looking
  std::vector<std::pair<Where, std::string>> with_old(std::int64_t before_us) const;  // pipelines with such runs
  // Whether forget() would find something.
  bool has_old(const Where& where, const std::string& pipeline, std::int64_t before_us) const;
  bool has_old_kept(std::int64_t before_us) const;
  struct Live {
    std::string id;
    std::int64_t version = 0;
  };
  std::vector<Live> live() const;         // oldest first
  Run find(const std::string& id) const;  // throws not_found
  Run find(const Where& where, const std::string& id) const;
  // By its number, or the newest: 0. Throws not_found.
  Run numbered(const Where& where, const std::string& pipeline, std::int64_t number) const;
  std::vector<Run> list(const Where& where, const ListRuns& which) const;  // newest first
  std::map<std::string, std::vector<Wish>> all_wishes() const;             // by run
  std::optional<Kept> kept(const Where& where, const std::string& key) const;
  std::optional<std::int64_t> cursor(const Where& where, const std::string& pipeline, const std::string& trigger) const;
  // Runs of a pipeline that have not ended: waiting, under way.
  std::pair<std::int64_t, std::int64_t> under_way(sql::Reader& reader, const Where& where,
                                                  const std::string& pipeline) const;

 private:
  sql::Database& database_;
};

inline constexpr std::string_view kPushKey = "push ";  // how keys of signed calls begin
inline constexpr std::size_t kWishesMax = 100, kQueuedMax = 1'000;

}  // namespace falaj::flow
