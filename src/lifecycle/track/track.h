// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "foundation/base/metrics.h"
#include "foundation/base/mutex.h"
#include "foundation/sys/clock.h"
#include "foundation/sys/random.h"
#include "governance/iam/directory.h"
#include "lifecycle/track/columns.h"
#include "lifecycle/track/filter.h"
#include "lifecycle/track/images.h"
#include "lifecycle/track/types.h"
#include "storage/sql/database.h"

namespace falaj::track {

struct ExportedRun;  // export_run.h
struct RunRow;       // tables.h

// Points of one series of an exported run, packed.
struct ExportedBlock {
  std::size_t series = 0;
  Bytes points;
};
struct MergedRun {
  bool made = false, changed = false;
  std::int64_t points = 0;  // that were new
};

// What went with a run. `bytes`: that its points took.
struct RemovedRun {
  std::int64_t rows = 0, points = 0, bytes = 0;
};

struct TrackOptions {
  std::size_t search_memory_bytes = std::size_t{256} << 20;
};

// Experiments, runs and what they log. Thread-safe. Everything is found within one project: what another project has is
// not_found. A write throws conflict, not_found or invalid and then changed nothing.
class Track {
 public:
  static std::span<const sql::Migration> migrations();
  Track(sql::Database& database, const iam::Directory& directory, const sys::Clock& clock, sys::Random& random,
        Metrics& metrics, TrackOptions options = {});
  ~Track();

  // ---- experiments
  std::int64_t create_experiment(const Where& where, const std::string& name, const std::vector<KeyValue>& tags,
                                 const sql::Act& act);
  Experiment experiment(const Where& where, std::int64_t number);
  Experiment experiment_by_name(const Where& where, const std::string& name);
  void rename_experiment(const Where& where, std::int64_t number, const std::string& name, const sql::Act& act);
  // Takes its runs along, both ways.
  void set_experiment_stage(const Where& where, std::int64_t number, Stage stage, const sql::Act& act);
  void set_experiment_tag(const Where& where, std::int64_t number, const KeyValue& tag, const sql::Act& act);
  void delete_experiment_tag(const Where& where, std::int64_t number, const std::string& key, const sql::Act& act);
  // For good; only one that was deleted and has neither runs nor logged models left (else conflict). Its number is not
  // given again.
  void remove_experiment(const Where& where, std::int64_t number, const sql::Act& act);
  Found<Experiment> search_experiments(const Where& where, const SearchExperiments& search);

  // ---- runs
  Run create_run(const Where& where, const NewRun& run, const sql::Act& act);
  // What makes the run as a part of somebody else's write, unless it is there or its experiment takes no runs.
  // Requires: run.id, by which has_run tells whether it was made.
  std::function<void(sql::Writer&)> run_to_add(const Where& where, const NewRun& run);
  bool has_run(const Where& where, const std::string& run_id);
  Run run(const Where& where, const std::string& run_id);
  RunInfo run_info(const Where& where, const std::string& run_id);
  RunInfo update_run(const Where& where, const std::string& run_id, const RunChange& change, const sql::Act& act);
  void set_run_stage(const Where& where, const std::string& run_id, Stage stage, const sql::Act& act);
  // For good; only a run that was deleted (else conflict). What `check` throws keeps it. Its files are out of reach at
  // once and go with finish_removal (removal.h).
  RemovedRun remove_run(const Where& where, const std::string& run_id, const std::function<void(sql::Reader&)>& check,
                        const sql::Act& act);
  static RunInfo removable_run(sql::Reader& reader, const Where& where, const std::string& run_id);
  // Metrics are appended, an exact repetition is one; a param is written once and only repeated with the same value.
  void log(const Where& where, const std::string& run_id, const Batch& batch, const sql::Act& act);
  void delete_tag(const Where& where, const std::string& run_id, const std::string& key, const sql::Act& act);
  void log_inputs(const Where& where, const std::string& run_id, const std::vector<DatasetInput>& datasets,
                  const std::vector<std::string>& models, const sql::Act& act);
  void log_outputs(const Where& where, const std::string& run_id, const std::vector<ModelOutput>& models,
                   const sql::Act& act);
  // Makes the run, or adds what it does not have yet: points, params, inputs, models. Its tags become those of the
  // export, and its status too once it has ended there; nothing is taken away. All of it or none, and nothing is
  // written when there is nothing new. A param of another value throws conflict.
  MergedRun merge_run(const Where& where, std::int64_t experiment, const ExportedRun& run,
                      std::span<const ExportedBlock> blocks, const sql::Act& act);
  void check_merge(const Where& where, const ExportedRun& run);  // throws that conflict
  Found<Run> search_runs(const Where& where, const SearchRuns& search);
  // The same without copying; returns whether there are more.
  bool search_runs(const Where& where, const SearchRuns& search, const std::function<void(const Run&)>& each);

  // ---- metrics
  // In the order time, step, value. `after`: the last of the page before.
  HistoryPage history(const Where& where, const std::string& run_id, const std::string& key,
                      const std::optional<Point>& after, std::size_t limit);
  // All of it between the steps.
  std::vector<Point> history(const Where& where, const std::string& run_id, const std::string& key,
                             std::int64_t first_step, std::int64_t last_step);

  // A step of making what first searches read (images.h), where writes have not done it on their way: after an upgrade,
  // or when many runs were removed. Returns whether there was anything to do.
  bool make_images(const sql::Act& act);

  struct DatasetSummary {
    std::int64_t experiment = 0;
    std::string name, digest, context;
  };
  std::vector<DatasetSummary> datasets(const Where& where, const std::vector<std::int64_t>& experiments);

 private:
  void ensure_default(const Where& where);  // throws not_found unless the project exists
  RunRow add_run(sql::Writer& writer, const Where& where, std::int64_t experiment, const NewRun& run);

  sql::Database& database_;
  const iam::Directory& directory_;
  const sys::Clock& clock_;
  sys::Random& random_;
  const std::int64_t began_ms_;
  Columns columns_;
  Images images_;
  Counter& points_logged_;
  Counter& runs_created_;
  Histogram& search_seconds_;

  Mutex mu_;
  std::vector<std::string> projects_ GUARDED_BY(mu_);  // known to have their default experiment
};

}  // namespace falaj::track
