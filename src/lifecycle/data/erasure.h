// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "foundation/base/mutex.h"
#include "foundation/crypto/key.h"
#include "lifecycle/data/datasets.h"

namespace falaj::data {

// Whatever keeps rows that were made of datasets in a place of its own, as an online store does. Thread-safe.
class RowHolder {
 public:
  virtual ~RowHolder() = default;
  // Rows of that subject made from that dataset are gone when it returns. Safe to repeat.
  virtual void erase_subject(const Where& where, const std::string& dataset, const std::string& column,
                             const std::string& subject, const sql::Act& act) = 0;
  // Versions of the dataset are erased; `new_version` has what is left of the newest, 0 when that had none of the rows.
  virtual void replaced(const Where& where, const std::string& dataset, std::int64_t new_version,
                        const sql::Act& act) = 0;
  // Of the database, that may have held a value of such a row.
  virtual std::vector<std::string_view> tables() const { return {}; }
};

// What was made of versions, by the names that runs know them by.
struct Descendants {
  std::vector<std::string> runs, logged_models, models;  // ids; "NAME/VERSION"
};

struct CutDataset {
  std::string dataset;
  std::int64_t rows = 0;                // that went
  std::vector<std::int64_t> held;       // versions that had some
  std::optional<std::int64_t> version;  // made of what is left
};

struct ErasureReport {
  std::vector<CutDataset> datasets;
  std::vector<std::string> versions;  // "NAME@NUMBER" made of such versions, without such rows of their own
  std::vector<std::string> runs, logged_models, models;
  std::int64_t shared = 0;  // objects that stay as something else has the same content
};

// A record of one. It never says who: a keyed hash does, which whoever knows the subject can have made again.
struct Erasure {
  std::string id;
  std::string kind;   // "subject", or "retention" when rows went because of their age
  Digest subject;     // the hash; of the dataset's name for retention
  std::string state;  // "begun", "cleaning" (nothing of it can be read any more), "done"
  std::int64_t begun_us = 0;
  std::optional<std::int64_t> done_us;
  std::string begun_by;
  ErasureReport report;
};

// Takes a person's rows out of every dataset of a project that declares who its rows are about, and out of what was
// made of those. Thread-safe; one at a time does its work. Every step is durable and can be repeated: what a kill or an
// error ends, finish() and resume() complete.
class Erasures {
 public:
  struct Parts {
    sql::Database& database;
    resource::Resources& resources;
    Datasets& datasets;
    const sys::Clock& clock;
    sys::Random& random;
  };
  // `names`: versions as runs name them, "NAME@DIGEST".
  using Descend =
      std::function<Descendants(sql::Reader& reader, const Where& where, const std::vector<std::string>& names)>;
  // `key`: seals a subject until its erasure is done, and makes the hashes.
  Erasures(const Parts& parts, const crypto::Key& key, Descend descend);

  // Before anything is erased; it outlives this.
  void add(RowHolder& holder) { holders_.push_back(&holder); }

  // On record from here on. One of that subject that is not done yet is given back instead of a second.
  Erasure begin(const Where& where, const std::string& subject, const sql::Act& act);
  // Returns when nothing of the subject can be read any more; at once when it is done already.
  Erasure finish(const Where& where, const std::string& id, const sql::Act& act);
  // What it would do.
  ErasureReport plan(const Where& where, const std::string& subject);
  // Finishes all that is begun; returns how many. What fails does not keep the others from it.
  std::size_t resume(const std::function<bool()>& go_on);

  // Rows that are older than their dataset's spec.personal.retention go the same way; `scope` limits it to projects
  // within. Returns a report for each dataset of which some went.
  std::vector<Erasure> retain(const iam::Scope& scope, bool dry_run, const sql::Act& act,
                              const std::function<bool()>& go_on);

  Erasure get(const Where& where, const std::string& id);
  std::vector<Erasure> list(const Where& where, std::int64_t before_us, std::size_t limit);  // last begun first
  double progress(const std::string& id) const;  // of a finish() that is under way, 0 to 1
  Digest hash_of(const Where& where, const std::string& subject) const;

 private:
  struct Record;
  class Busy;
  using Targets = std::map<std::string, Going>;  // by dataset
  Targets targets(const Where& where,
                  const std::function<std::optional<Going>(const std::string& name, const DatasetSpec&)>& of);
  Targets targets_of(const Where& where, const std::string& subject);
  void cut_all(const Where& where, const std::string& id, const std::function<Targets()>& targets, const sql::Act& act);
  void describe(sql::Reader& reader, const Where& where, const std::string& id, ErasureReport& report) const;
  Erasure clean(const Where& where, const std::string& id, const sql::Act& act);
  Erasure retain_dataset(const Where& where, const std::string& name, const DatasetSpec& spec, std::int64_t before_us,
                         bool dry_run, const sql::Act& act);
  Record record(const Where& where, const std::string& id);
  void note_progress(const std::string& id, double done);

  const Parts parts_;
  const crypto::Key seal_key_, hash_key_;
  const Descend descend_;
  std::vector<RowHolder*> holders_;

  mutable Mutex mu_;
  std::condition_variable ended_;
  bool busy_ GUARDED_BY(mu_) = false;
  std::map<std::string, double> under_way_ GUARDED_BY(mu_);
};

// The last time at which a row is too old. Rows go in steps of a tenth of the retention, a day at most, so that
// versions are not made anew all the time.
std::int64_t retention_edge(std::int64_t now_us, std::int64_t retention_us);

}  // namespace falaj::data

template <>
struct falaj::Shape<falaj::data::CutDataset> {
  using S = data::CutDataset;
  static constexpr std::string_view name = "CutDataset";
  static Fields fields() {
    return {field("dataset", &S::dataset, "Its name."), field("rows", &S::rows, "Rows that go."),
            field("held", &S::held, "Versions that had some: they are erased."),
            field("version", &S::version, "What is left of the newest; absent when that had none of them.")};
  }
};
template <>
struct falaj::Shape<falaj::data::ErasureReport> {
  using S = data::ErasureReport;
  static constexpr std::string_view name = "ErasureReport";
  static Fields fields() {
    return {field("datasets", &S::datasets, "That had such rows."),
            field("versions", &S::versions, "NAME@NUMBER: made of such versions, without such rows of their own."),
            field("runs", &S::runs, "Made with one of all those."),
            field("logged_models", &S::logged_models, "Of such runs."),
            field("models", &S::models, "NAME/VERSION: registered from such runs or models."),
            field("shared", &S::shared, "Objects that stay, as something else has the same content.")};
  }
};
