// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "foundation/sys/process.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/execute/slurm/settings.h"

namespace falaj::execute::slurm {

using SlurmId = std::int64_t;

// What is handed to Slurm. Empty and 0 mean: not said, Slurm decides.
struct Submission {
  std::string name, comment;
  std::string script, script_file;  // the same text
  std::string directory, output;    // of the batch script
  std::map<std::string, std::string> environment;
  std::string partition, account, qos;
  std::int64_t tasks = 1, cpus_per_task = 1;
  std::int64_t memory_mib_per_cpu = 0;
  std::string gpus_per_task;  // "2" or "a100:2"
  std::vector<std::string> nodes;
  std::int64_t tasks_per_node = 0;
  std::int64_t time_limit_minutes = 0;
  std::optional<std::int64_t> deadline_seconds;  // from now
  std::int64_t nice = 0;
};

// A job as Slurm tells of it.
struct Job {
  SlurmId id = 0;
  std::string name, comment;
  std::string state;                    // "RUNNING", ...
  std::string reason;                   // why it is in that state
  int exit_status = 0;                  // as wait(2) gives it: exit code * 256 + signal
  std::int64_t start_s = 0, end_s = 0;  // since 1970; 0 = not yet
};

// What we ask of Slurm, by one of its two doors. Thread-safe.
// Errors: invalid (Slurm refuses it for good), unavailable (no answer, or not now).
class Gateway {
 public:
  virtual ~Gateway() = default;
  virtual SlurmId submit(const Submission& submission) = 0;
  // Every job it knows, of any user; nothing when none changed since (wall time, by Slurm's clock; 0 = ever).
  virtual std::optional<std::vector<Job>> jobs(std::int64_t since_s) = 0;
  // To the batch script alone. conflict: it waits in the queue, where there is nothing to signal. A job that has ended
  // or is unknown: nothing.
  virtual void signal(SlurmId job, int signal) = 0;
  virtual void cancel(SlurmId job) = 0;  // by Slurm's own rules: SIGTERM, KillWait, SIGKILL
  virtual std::vector<Node> nodes() = 0;
};

std::unique_ptr<Gateway> make_rest_gateway(const Settings& settings, sys::Processes& processes);
std::unique_ptr<Gateway> make_command_gateway(const Settings& settings, sys::Processes& processes);

}  // namespace falaj::execute::slurm
