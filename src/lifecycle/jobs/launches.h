// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "foundation/sys/clock.h"
#include "governance/iam/directory.h"
#include "governance/vault/vault.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/jobs/record.h"
#include "lifecycle/jobs/stored_checkpoints.h"
#include "lifecycle/track/track.h"
#include "storage/sql/database.h"

namespace falaj::jobs {

// Makes the model that a run left a version of a registered one, once: again it finds what it made.
using RegisterModel = std::function<void(const Where& where, const std::string& run_id, const std::string& model,
                                         const std::string& alias)>;
// A program that comes with the platform, by the first word of a command.
struct BuiltIn {
  std::string path;                // absolute
  std::vector<std::string> shown;  // files and directories that it needs, read-only
};

// Puts the rows of a dataset's version, "flights@3", as files into a directory, and says by which digest runs name it.
using StageDataset =
    std::function<std::string(const Where& where, const std::string& version, const std::string& directory)>;

// What is different for jobs of one executor.
struct ElsewhereOptions {
  std::string directory;  // absolute, and the same wherever its tasks run
  execute::Isolation isolation_min = execute::Isolation::none;
  std::function<std::string()> url;
  bool places = false;               // it finds the nodes; told which only where that matters
  std::string zone;                  // that all of them are in
  std::vector<std::string> tenants;  // whose jobs may go there; none = all
};

struct LaunchOptions {
  std::string directory;  // absolute; below it each job has its own
  execute::Isolation isolation_min = execute::Isolation::isolated;
  std::vector<std::string> images;   // directories of which jobs may use what is directly below
  std::function<std::string()> url;  // of this server, as jobs reach it
  StageDataset stage_dataset;
  std::function<std::string(const Where&, const std::string&)> reveal;  // the value of a secret
  RegisterModel register_model;
  std::map<std::string, BuiltIn> built_in;            // by name
  std::map<std::string, ElsewhereOptions> elsewhere;  // by executor
};

// What surrounds an attempt: its directories, what it reads, its token, its run; and what is kept of it afterwards.
// Thread-safe. Everything here can be done again after a kill.
//
//   <directory>/<job>/checkpoint   the same for every attempt       $FALAJ_CHECKPOINT_DIR
//                     outputs      kept as the run's files          $FALAJ_OUTPUTS
//                     told         metrics, followed meanwhile      $FALAJ_METRICS
//                     inputs       read-only                        $FALAJ_INPUTS
//                     secret       the token, read-only             $FALAJ_TOKEN_FILE
//                     work.<epoch> where it begins; goes with the attempt
class Launches {
 public:
  struct Parts {
    sql::Database& database;
    iam::Directory& directory;
    vault::Vault& vault;
    track::Track& track;
    const sys::Clock& clock;
    Metrics& metrics;
  };
  Launches(Parts parts, LaunchOptions options)
      : parts_(parts), options_(std::move(options)), checkpoints_(parts.vault, parts.metrics) {}

  struct Prepared {
    execute::Launch launch;
    std::string run_id;  // "" = it has none
  };
  // What makes its run together with its placement, so that its start need not wait for another write: nothing where it
  // has one, wants none, or it cannot be made that way; then prepare makes it.
  std::function<void(sql::Writer&)> beside_placing(const Record& record);
  Prepared prepare(const Record& record);
  // Logs what it told since `offset` into its run and returns where to go on; the same twice has no effect.
  std::int64_t follow(const Record& record, std::int64_t offset);
  // When its checkpoint directory last changed; 0: nothing is in it. Of a directory of many files only some are looked
  // at, and all that lie in it come and go with its own time.
  std::int64_t saved_us(const Record& record) const;
  // An attempt runs no more: what it could call us with is worth nothing from now on.
  void ended(const std::string& executor, const std::string& attempt);
  // Puts a copy of its checkpoint into the vault, as StoredCheckpoints::store.
  std::string store_checkpoint(const Record& record, const std::string& known);
  void keep(const Record& record);  // its files and how it ended
  void tidy(const Record& record);  // a job that succeeded leaves nothing behind, another its checkpoint
  // Drops what jobs left that are not among these and whose directories have not changed since. How many.
  std::size_t sweep(const std::function<bool(JobId)>& is_live, std::int64_t unchanged_since_us);

 private:
  const ElsewhereOptions* elsewhere(const Record& record) const;
  std::string home(const Record& record) const;
  execute::Isolation isolation_of_tenant(const Record& record) const;
  std::size_t sweep(const std::string& directory, const std::function<bool(JobId)>& is_live,
                    std::int64_t unchanged_since_us);
  track::NewRun new_run(const Record& record) const;
  std::string run_of(const Record& record);
  std::string token_of(const Record& record);
  void revoke_token(const Record& record);
  void stage(const Record& record, const InputSpec& input, const std::string& run_id);
  void stage_blobs(const Record& record, const std::string& prefix, const std::string& into);
  void add_environment(const Record& record, const Prepared& prepared, execute::Launch& launch);

  const Parts parts_;
  const LaunchOptions options_;
  StoredCheckpoints checkpoints_;
};

// The tasks of an attempt, rank by rank, as they are placed.
std::vector<execute::Task> tasks_of(const Record& record);

}  // namespace falaj::jobs
