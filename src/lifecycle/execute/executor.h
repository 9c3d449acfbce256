// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where jobs run. An executor starts *attempts*: one try of one job, named "<job>.<epoch>", all its tasks together.
// The control plane decides what may start and when; an executor starts it, follows it, stops it and keeps its logs.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/sys/clock.h"

namespace falaj::execute {

using sys::Micros;

// How far a task is kept from the rest of the machine; each level has all that the one below has.
enum class Isolation {
  none,        // a plain process (another system's own rules apply, such as Slurm's)
  restricted,  // no new privileges, seccomp, resource limits of the process, Landlock where the kernel has it
  contained,   // and a cgroup that bounds memory, processors and processes together
  isolated,    // and its own user, mount, pid, network, ipc and uts namespaces
};

std::string_view name_of(Isolation isolation);

enum class Network { none, host };  // none: only its own loopback, shared by the tasks of one attempt on one node

// What one task may take. 0 means no limit.
struct Limits {
  std::int64_t cpu_millis = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t disk_bytes = 0;  // what it may write into its work directory
  std::int64_t processes = 0;
};

// One process of a job, and where it is placed.
struct Task {
  int rank = 0;
  std::string node;
  std::vector<int> cpus;          // pinned to these; empty = any
  std::vector<std::string> gpus;  // ids the node declared; what CUDA_VISIBLE_DEVICES shows
};

// Files and directories of the host that the tasks see at the same path.
struct Mount {
  std::string path;
  bool writable = false;
};

struct Launch {
  std::string attempt;  // names it; starting the same one again changes nothing
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // the whole of it; RANK, LOCAL_RANK and the like are added per task
  std::string image;                 // directory or OCI layout used as the root file system; "" = the host's
  std::string work_directory;        // made when missing; the tasks start there and may write there
  std::string checkpoint_directory;  // the same for every attempt of a job; writable
  std::vector<Mount> mounts;
  std::vector<Task> tasks;
  int spares = 0;  // so many tasks may be killed by signals while the others go on: they know what to do then
  Limits limits;   // of each task
  Isolation isolation_min = Isolation::none;
  Network network = Network::none;
  Micros time_limit{0};  // of the whole attempt; 0 = none
  Micros grace{0};       // between SIGTERM and SIGKILL

  // For executors that queue themselves.
  std::string queue;
  std::int64_t priority = 0;
  std::optional<Micros> deadline;  // wall time
  std::string gpu_type;
  std::int64_t gpus_per_task = 0;
};

// Why an attempt ended, as precisely as the executor can tell.
enum class Reason {
  finished,      // every task ended by itself; see exit_code
  checkpointed,  // it ended with 75: start me again
  signalled,     // killed by a signal nobody of us sent
  out_of_memory,
  out_of_disk,  // wrote more into its work directory than it may
  time_limit,
  stopped,  // we were told to stop it
  node_lost,
  not_started,  // image missing, command not found, isolation not reached: `message` says which
};

std::string_view name_of(Reason reason);

// What its tasks took together.
struct Used {
  Micros cpu{0};
  std::int64_t memory_peak_bytes = 0;
};

struct Ending {
  Reason reason = Reason::finished;
  int exit_code = 0;  // of the task that decided it: the first that failed
  int signal = 0;
  int rank = 0;
  std::string message;
  Micros at{0};  // wall time
  Used used;
};

enum class Phase { starting, running, ended };

std::string_view name_of(Phase phase);

struct Report {
  std::string attempt;
  Phase phase = Phase::starting;
  Micros started{0};                      // wall time; 0 until it runs
  Isolation isolation = Isolation::none;  // what was really reached
  std::string external_id;                // the other system's own name for it
  std::optional<Ending> ending;           // present when phase is ended
};

struct Gpu {
  std::string id;    // what makes it visible to a process
  std::string type;  // "a100", or a slice's profile such as "a100-1g.5gb"
  std::int64_t memory_bytes = 0;
};

struct Node {
  std::string name;
  std::string zone;
  std::map<std::string, std::string> labels;
  std::int64_t cpu_millis = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t disk_bytes = 0;
  std::vector<Gpu> gpus;
  Isolation isolation_max = Isolation::none;
  bool up = true;
};

struct LogPage {
  std::string text;
  std::int64_t next_offset = 0;   // where to go on; offsets count all bytes ever written by that task
  std::int64_t first_offset = 0;  // older bytes were dropped
  bool ended = false;             // nothing will follow
};

// Thread-safe. What start acknowledged survives the death of this program: after a restart `poll` tells of it.
// Errors: invalid (what was asked can never run here), exhausted, unavailable (try again), not_found (no such attempt).
class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::vector<Node> nodes() = 0;
  virtual void start(const Launch& launch) = 0;  // all tasks or none
  // SIGTERM, then after `grace` SIGKILL. Stopping what has ended, or is unknown, changes nothing.
  virtual void stop(std::string_view attempt, Micros grace) = 0;
  // Every attempt that has not been forgotten, once something changed since `seen` or after `at_most`.
  virtual std::vector<Report> poll(std::uint64_t& seen, Micros at_most) = 0;
  virtual LogPage logs(std::string_view attempt, int rank, std::int64_t offset, std::int64_t bytes_max) = 0;
  // The caller has recorded its end: drops everything but its logs. Requires: it has ended.
  virtual void forget(std::string_view attempt) = 0;
  virtual void drop_logs(std::string_view attempt) = 0;
  // What an attempt that runs has taken so far; nothing where that is not known.
  virtual std::optional<Used> used(std::string_view) { return std::nullopt; }
};

}  // namespace falaj::execute
