// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "foundation/sys/clock.h"
#include "foundation/sys/process.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/execute/local/gpus.h"
#include "lifecycle/execute/local/wire.h"

namespace falaj::execute {

namespace local {
class KeeperLink;
}

struct LocalSettings {
  std::string directory;            // of the keeper: its socket, journal and logs; only this user can enter it
  std::vector<std::string> keeper;  // the program that becomes one, without --dir; empty = default_keeper()

  // The node as jobs are placed on it. 0 = what the machine has.
  std::string node = "local";
  std::string zone;
  std::map<std::string, std::string> labels;
  std::int64_t cpu_millis = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t disk_bytes = 0;
  std::vector<Gpu> gpus;       // declared, for machines that do not tell
  bool discovers_gpus = true;  // asks the driver when none is declared

  Isolation isolation_max = Isolation::isolated;
  std::int64_t log_bytes_max = std::int64_t{64} << 20;  // of each task; older output is dropped
  std::vector<std::string> hidden;  // paths of the server: no job is given them, or a directory that holds them
};

// falaj-keeper beside this program, else this program's own hidden command "keeper". Throws unavailable in a program
// that has none.
std::vector<std::string> default_keeper();

// Runs attempts on this machine, through a keeper (local/keeper.h) that outlives this object and this program. Paths of
// a launch must be real ones: a symbolic link on the way is refused.
class LocalExecutor final : public Executor {
 public:
  // Re-attaches to a keeper that lives, or starts one. Throws unavailable.
  LocalExecutor(LocalSettings settings, const sys::Clock& clock, sys::Processes& processes);
  ~LocalExecutor() override;

  std::vector<Node> nodes() override;
  void start(const Launch& launch) override;
  void stop(std::string_view attempt, Micros grace) override;
  std::vector<Report> poll(std::uint64_t& seen, Micros at_most) override;
  LogPage logs(std::string_view attempt, int rank, std::int64_t offset, std::int64_t bytes_max) override;
  void forget(std::string_view attempt) override;
  void drop_logs(std::string_view attempt) override;
  std::optional<Used> used(std::string_view attempt) override;

  local::Abilities abilities();

 private:
  std::string log_directory(std::string_view attempt) const;

  const LocalSettings settings_;
  const std::vector<local::FoundGpu> gpus_;
  std::unique_ptr<local::KeeperLink> link_;
};

}  // namespace falaj::execute
