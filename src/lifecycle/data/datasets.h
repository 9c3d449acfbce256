// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/files.h"
#include "foundation/sys/random.h"
#include "governance/resource/resources.h"
#include "governance/vault/vault.h"
#include "lifecycle/data/checks.h"
#include "lifecycle/data/cut.h"
#include "lifecycle/data/types.h"
#include "storage/sql/database.h"
#include "storage/table/workspace.h"

namespace falaj::data {

struct DataLimits {
  table::Limits room;
  std::uint64_t part_bytes_max = std::uint64_t{256} << 20;
  std::size_t parts_max = 10'000;
  std::size_t files_max = 10'000;                       // of one version
  sys::Micros unfinished = std::chrono::hours(24 * 7);  // an upload that nobody finished is kept this long
};

struct Part {
  std::int64_t number = 0;
  std::uint64_t bytes = 0;
};

// How uploaded bytes become a version.
struct Finish {
  Format format = Format::csv;
  Mode mode = Mode::append;
  std::string source;           // in words, such as the file's name
  std::string upload;           // that becomes it; set by finish()
  std::vector<Input> inputs{};  // versions that the rows are made of; conflict when one is erased meanwhile
  std::optional<AnsweredBy> answered_by{};
  double done_before = 0;  // share of the whole work that was done when rows began to come in, for progress()
  bool promised = false;  // rows that somebody was told are taken: what expectations find refuses nothing, and is noted
};

struct Difference {
  std::vector<std::string> schema;  // in words
  std::int64_t rows_before = 0, rows_after = 0;
  std::int64_t added = 0, removed = 0;
  std::optional<std::int64_t> changed;  // rows of the same key that differ; only with a key
};

// Datasets and their versions. Thread-safe. Everything is found within one project: what another has is not_found.
// Bytes come in parts, each durable when put, so that a broken upload goes on where it stopped; finish() makes a
// version of them, all or nothing, and does nothing the second time.
class Datasets {
 public:
  static std::span<const sql::Migration> migrations();
  // All of them outlive this. `scratch`: where queries spill, sealed.
  Datasets(sql::Database& database, resource::Resources& resources, vault::Vault& vault, sys::Files& scratch,
           const sys::Clock& clock, sys::Random& random, Metrics& metrics, DataLimits limits = {});

  // ---- what there is
  std::vector<Dataset> list(const Where& where, const std::string& after, std::size_t limit);
  DatasetSpec spec(const Where& where, const std::string& name);
  Dataset dataset(const Where& where, const std::string& name);
  Version version(const Where& where, const std::string& name, std::optional<std::int64_t> number);  // or the newest
  std::vector<Version> versions(const Where& where, const std::string& name, std::int64_t below, std::size_t limit);
  std::vector<File> files(const Version& version);
  // Versions that "NAME@DIGEST", as runs name one, was made of (`upward`) or that were made of it, named likewise;
  // nothing when there is no such version.
  std::optional<std::vector<std::string>> linked(sql::Reader& reader, const Where& where, const std::string& id,
                                                 bool upward) const;
  // Of which models' answers "NAME@DIGEST" holds; and which versions, named so, hold those of one.
  std::vector<AnsweredBy> answerers(sql::Reader& reader, const Where& where, const std::string& id) const;
  std::vector<std::string> answers_of(sql::Reader& reader, const Where& where, const AnsweredBy& by) const;
  // What expectations found: of one version in order, or the last of any, refused ones too.
  std::vector<CheckResult> checks(const Where& where, const std::string& name, std::optional<std::int64_t> version,
                                  std::size_t limit);

  // ---- rows come in
  // The upload's id. With a `key` of the caller's choice the same upload each time, so that it need not be remembered.
  std::string begin(const Where& where, const std::string& name, const sql::Act& act, const std::string& key = "");
  void put_part(const Where& where, const std::string& name, const std::string& upload, std::int64_t number,
                const blob::Source& source, const sql::Act& act);
  std::vector<Part> parts(const Where& where, const std::string& name, const std::string& upload);
  // The version that an upload became, if it has. Throws not_found for one that nobody began, or gave up.
  std::optional<Version> finished(const Where& where, const std::string& name, const std::string& upload);
  // Of a finish() or store() that is under way, 0 to 1; 0 when none is. Whoever has to work before store() notes it,
  // and 0 at the end.
  double progress(const std::string& upload) const;
  void note_progress(const std::string& upload, double done);
  // The columns that the bytes seem to have: what a new dataset may declare.
  table::Schema infer(const Where& where, const std::string& name, const std::string& upload, Format format);
  Version finish(const Where& where, const std::string& name, const std::string& upload, Finish how,
                 const sql::Act& act, const table::Workspace::Watch& watch = {});
  // What is asked of rows before they are promised: rules of expectations that refuse, each about one row alone, by the
  // names of those. What was found of rows that were refused is noted; the last 1,000 are kept.
  std::vector<std::pair<std::string, RuleSpec>> rules_of_rows(const Where& where, const std::string& name);
  void note_refused(const Where& where, const std::string& name, const std::vector<CheckResult>& results,
                    const sql::Act& act);
  // A version made of the answer to a query of ours; `room` has what the query reads.
  Version store(const Where& where, const std::string& name, table::Workspace& room, const std::string& select,
                const Finish& how, const sql::Act& act, const table::Workspace::Watch& watch = {});

  // ---- rows go out
  std::unique_ptr<table::Workspace> room() const;
  // Makes a view of that name over the version's rows, or over those alone that were appended since an earlier version.
  void open(table::Workspace& room, const Where& where, const Version& version, const std::string& view,
            std::optional<std::int64_t> since = std::nullopt);
  Difference diff(const Where& where, const Version& before, const Version& after,
                  const table::Workspace::Watch& watch = {});

  // ---- the end
  // A version, or all of them when no number is given. Returns the bytes that no version has any more.
  std::uint64_t remove(const Where& where, const std::string& name, std::optional<std::int64_t> number,
                       const sql::Act& act);
  // All versions and what declares it, in one write. Conflict, with nothing removed, when another resource needs it.
  std::uint64_t remove_whole(const Where& where, const std::string& name, const resource::Authorise& authorise,
                             const sql::Act& act);
  // Takes rows out of every version: the newest is made anew without them, in files of which only those change that had
  // some; every other that had some is erased, and with it what is known of its values. All of it in one write; the
  // bytes are gone after destroy_dropped(). Uploads to the dataset that are not finished are given up.
  Cut cut(const Where& where, const std::string& name, const Going& going, const CutOptions& how, const sql::Act& act,
          const table::Workspace::Watch& watch = {});
  Cut would_cut(const Where& where, const std::string& name, const Going& going,
                const table::Workspace::Watch& watch = {});
  // Destroys the bytes of what was removed, replaced or given up here, without the vault's grace; returns how many
  // objects stay as something else has the same content. Throws conflict while a backup or a collection goes on.
  std::size_t destroy_dropped(const Where& where, const sql::Act& act);
  // Takes away what uploads that were never finished left behind, and files of batches that a kill or a refusal ended
  // before they were part of a version; returns how many of both.
  std::size_t sweep(const sql::Act& act);

 private:
  struct Batch;  // rows on their way in
  class Way;     // how far a batch is
  std::vector<vault::Entry> entries(const Where& where, const std::string& upload);
  void check_batch(const Where& where, Batch& batch);
  std::vector<std::pair<std::string, ExpectationSpec>> expectations(const Where& where, const std::string& dataset);
  void check_expectations(const Where& where, Batch& batch, const sql::Act& act);
  void write_file(const Where& where, Batch& batch, std::size_t number, const std::string& cut, File& file,
                  const sql::Act& act);
  Version take_in(const Where& where, const std::string& name, std::int64_t row, table::Workspace& room,
                  const std::string& select, const Finish& how, const sql::Act& act,
                  const table::Workspace::Watch& watch);
  std::size_t sweep_files(const sql::Act& act);
  Version write_batch(const Where& where, Batch& batch, const sql::Act& act);

  struct Removal;
  std::uint64_t give_back(const Where& where, const Removal& removal, const sql::Act& act);

  // What goes out of which files.
  struct Matched {
    File file;
    std::string condition;          // SQL; "" when no row can go
    std::int64_t rows = 0;          // that go
    std::vector<std::string> keys;  // those that it has
  };
  class Cutting;
  vault::Entry put_parquet(const Where& where, const std::string& zone, table::Workspace& room,
                           const std::string& select, const std::string& name, const sql::Act& act,
                           const table::Workspace::Watch& watch);
  std::string show_file(table::Workspace& room, const Where& where, const File& file);
  std::vector<Matched> match(const Where& where, std::int64_t row, const std::string& time, const Going& going,
                             const table::Workspace::Watch& watch);
  // Names are taken away, and noted, so that their bytes can be destroyed.
  void note_dropped(const Where& where, const std::vector<vault::Entry>& entries, const sql::Act& act);
  void drop(const Where& where, const std::vector<vault::Entry>& entries, const sql::Act& act);
  void drop_below(const Where& where, const std::string& prefix, const sql::Act& act);
  void forget_collected(std::int64_t before_us, const sql::Act& act);
  void drop_strays(const Where& where, std::int64_t row, std::int64_t before_us, const sql::Act& act,
                   std::size_t& removed);

  sql::Database& database_;
  resource::Resources& resources_;
  vault::Vault& vault_;
  sys::Files& scratch_;
  const sys::Clock& clock_;
  sys::Random& random_;
  const DataLimits limits_;
  Counter& rows_in_;
  Counter& versions_made_;

  // One batch at a time goes into a dataset: its keys are checked against the rows that are there.
  class Turn;
  mutable Mutex mu_;
  std::condition_variable turns_;
  std::set<std::int64_t> busy_ GUARDED_BY(mu_);
  std::map<std::string, double> under_way_ GUARDED_BY(mu_);  // by upload
};

// "flights" or "flights@3".
struct VersionName {
  std::string name;
  std::optional<std::int64_t> number;
};
VersionName parse_version_name(std::string_view text);  // throws invalid

}  // namespace falaj::data
