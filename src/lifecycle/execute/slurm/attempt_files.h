// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/sys/files.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/execute/slurm/ending.h"
#include "lifecycle/execute/slurm/gateway.h"

namespace falaj::execute::slurm {

// What we must know of an attempt after a restart.
struct Stored {
  int tasks = 1;
  Micros grace{0}, time_limit{0};
  SlurmId job = 0;  // 0: not known to have been submitted
  Stop stop = Stop::none;
  std::optional<Ending> ending;
};

// The directories of attempts, which this machine shares with the nodes. See script.h for what the scripts put there.
// Thread-safe for different attempts.
class AttemptFiles {
 public:
  explicit AttemptFiles(const std::string& root);

  std::string directory(std::string_view attempt) const;
  std::vector<std::string> attempts();  // with a record, that is, not forgotten

  // False: it was there already. The record is durable on return.
  bool create(const Launch& launch);
  void remove(const std::string& attempt);  // all of it
  void set_job(const std::string& attempt, SlurmId job);
  void set_stop(const std::string& attempt, Stop stop);
  void set_ending(const std::string& attempt, const Ending& ending);  // durable
  std::optional<Stored> load(const std::string& attempt);

  std::optional<Claim> claim(const std::string& attempt);
  // No job may run it any more, unless one does already: false then.
  bool close(const std::string& attempt);
  // What the scripts left; `job` and `stop` are for the caller to fill in.
  Evidence evidence(const std::string& attempt);

  // Throws not_found: no such attempt.
  LogPage read_log(const std::string& attempt, int rank, std::int64_t offset, std::int64_t bytes_max);
  // Of each rank's log at most so much stays on disk: what is older is given back, and reading begins behind it.
  void cut_logs(const std::string& attempt, std::int64_t bytes_max);
  void forget(const std::string& attempt);  // all but its logs
  void drop_logs(const std::string& attempt);

 private:
  std::string path(std::string_view attempt, std::string_view name) const;
  std::string small(const std::string& attempt, std::string_view name);  // "" when it is not there
  void put(const std::string& attempt, std::string_view name, std::string_view text, sys::NewFile::Durable durable);
  std::int64_t first_offset(const std::string& attempt, int rank);
  void remove_if(const std::string& attempt, bool (*chosen)(std::string_view name));

  const std::string root_;
  const std::unique_ptr<sys::Files> files_;
};

}  // namespace falaj::execute::slurm
