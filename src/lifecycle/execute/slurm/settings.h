// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "foundation/base/shape.h"

namespace falaj::execute::slurm {

// How to reach one Slurm cluster and what to ask of it: settings `slurm.*`.
struct Settings {
  std::string submit = "rest";  // or "sbatch"
  std::string directory;        // this machine and every node see it at this path
  std::string url = "http://127.0.0.1:6820";
  std::string socket;  // of slurmrestd; then only the path of `url` counts
  std::string user;    // whom the token is for
  std::string token_file;
  std::vector<std::string> token_command;
  std::vector<std::string> command_prefix;
  std::string partition, account, qos, zone;
  std::string server_url;
  std::vector<std::string> tenants;
  std::map<std::string, std::string> partitions;  // by queue
  std::string isolation = "none";
  std::int64_t priority_highest = 1000;
  std::int64_t time_limit_us = 0;
  std::int64_t poll_us = 1'000'000;
  std::int64_t log_bytes_max = std::int64_t{64} << 20;  // kept of what a task writes; set as jobs.log_bytes
};

}  // namespace falaj::execute::slurm

namespace falaj {

template <>
struct Shape<execute::slurm::Settings> {
  using T = execute::slurm::Settings;
  static constexpr std::string_view name = "SlurmSettings";
  static constexpr std::string_view kWays[] = {"rest", "sbatch"};
  static constexpr std::string_view kIsolations[] = {"none", "contained"};
  static Fields fields() {
    return {
        field("submit", &T::submit,
              "How jobs get there: through slurmrestd, or by the commands sbatch, squeue, scancel.")
            .one_of(kWays),
        field("directory", &T::directory,
              "Where scripts, records and logs of attempts are: one path, seen by this machine and every node. Empty = "
              "no "
              "jobs go to Slurm."),
        field("url", &T::url, "slurmrestd, for submit rest."),
        field("socket", &T::socket, "Unix socket of slurmrestd, instead of the host and port of url."),
        field("user", &T::user, "The Slurm user that jobs run as; slurmrestd wants it beside the token."),
        field("token_file", &T::token_file, "File that holds the token (JWT) for slurmrestd; read again when refused."),
        field("token_command", &T::token_command,
              "Command that prints a token, such as scontrol token lifespan=3600; run again when refused.")
            .length(0, 64),
        field("command_prefix", &T::command_prefix,
              "Words before sbatch, squeue, scancel and sinfo, for submit sbatch.")
            .length(0, 64),
        field("partition", &T::partition,
              "Partition of queues that partitions does not name; empty = Slurm's default."),
        field("partitions", &T::partitions, "Partition of each queue.").length(0, 1000),
        field("account", &T::account, "Account that is charged; empty = the user's default."),
        field("qos", &T::qos, "Quality of service; empty = the user's default."),
        field("zone", &T::zone, "Zone that the cluster's nodes are in."),
        field("server_url", &T::server_url,
              "Where jobs with a network reach this server; empty = where it listens, unless that is loopback."),
        field("tenants", &T::tenants, "Whose jobs may go there, which all run as one user of Slurm; none named = all.")
            .length(0, 1000),
        field("isolation", &T::isolation,
              "What the site's Slurm enforces: contained when it bounds memory and processors by cgroups, else none.")
            .one_of(kIsolations),
        field("priority_highest", &T::priority_highest,
              "Priority that is handed over with nice 0; each one below it adds one.")
            .range(0, 1'000'000),
        field("time_limit", &T::time_limit_us, "Limit of jobs that have none; 0 = the partition's default.")
            .duration()
            .range(0, std::int64_t{365} * 86'400'000'000),
        field("poll", &T::poll_us, "How often Slurm is asked what changed.").duration().range(10'000, 600'000'000)};
  }
  // Requires: directory is not empty, which is how Slurm is turned on.
  static void check(const T& s, Faults& faults) {
    if (s.directory.empty()) return;
    // Slurm writes into names of files what stands there after a '%'.
    if (s.directory.front() != '/' || s.directory.find_first_of("%\\\n") != s.directory.npos)
      faults.push_back({"directory", "must be absolute, without '%' and '\\'"});
    if (s.submit != "rest") return;
    if (s.user.empty()) faults.push_back({"user", "required for submit rest"});
    if (s.token_file.empty() == s.token_command.empty())
      faults.push_back({"token_file", "either this or token_command is required for submit rest"});
  }
};

}  // namespace falaj
