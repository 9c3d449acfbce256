// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the scheduler decides about and what it answers, as plain values. Nothing here knows a database, a clock or a
// process: the live server, the simulator and the tests make these and read these.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/id.h"

namespace falaj::schedule {

using Micros = std::chrono::microseconds;  // a moment is wall time since 1970, a span is a difference
using JobId = Id<struct JobTag>;

inline constexpr Micros kNever = Micros::max();

inline double in_seconds(Micros span) { return static_cast<double>(span.count()) / 1e6; }
inline Micros from_seconds(double seconds) { return Micros(static_cast<std::int64_t>(std::llround(seconds * 1e6))); }

// What one task takes, or a node has. A thousand millis are one processor or one GPU.
struct Amounts {
  std::int64_t cpu_millis = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t disk_bytes = 0;
  std::int64_t gpu_millis = 0;  // of a task: below 1000 a share of one device, otherwise whole devices
  friend bool operator==(const Amounts&, const Amounts&) = default;
};

// Of a queue's bound: however much there is of it. Sums of it do not overflow.
inline constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max() / 4;

struct Device {
  std::string id;
  std::string type;
};

struct Node {
  std::string name;
  std::string zone;
  std::string pool;
  std::map<std::string, std::string> labels;
  Amounts capacity;             // gpu_millis follows from the devices
  std::vector<Device> devices;  // at most 16
  bool up = true;               // a node that is down, or draining, gets nothing new
};

// Which nodes a job may use.
struct Where {
  std::vector<std::string> zones;                     // empty = any
  std::map<std::string, std::string> labels;          // must have all of these
  std::map<std::string, std::string> labels_refused;  // must have none of these
  std::string gpu_type;                               // "" = any
  friend bool operator==(const Where&, const Where&) = default;
};

enum class Layout {
  pack,    // as few nodes as hold it, the fullest first: leaves large holes whole
  spread,  // as many nodes as there are
};

// A queue, or a part of one. Its shares are of the whole cluster's dominant resource.
struct Queue {
  std::string name;
  std::string parent;  // "" = under the root
  double weight = 1;
  // What it gets back when it asks, whoever holds it. Of what is not bounded here its jobs may take what they need
  // beside the rest: {gpus: 4} is worth something only with processors and memory.
  std::optional<Amounts> guaranteed;
  std::optional<Amounts> limit;  // never more than this, itself and everything below it
  bool borrows = true;           // may hold more than guaranteed while others leave it unused
};

// How long something takes, believed from what happened before.
struct Guess {
  Micros p50{0};
  Micros p90{0};
  // What starting it early gains: the mean of 1 / run time over the mean run time (Smith's ratio for the mean
  // slowdown). One that often ends within seconds ranks high even when it may also run for hours.
  double haste = 0;
  friend bool operator==(const Guess&, const Guess&) = default;
};

struct Job {
  JobId id;
  std::string queue;
  std::int64_t priority = 0;  // of its class; higher goes first
  bool preempts = false;      // may displace preemptible jobs of lower priority
  bool preemptible = false;
  Micros submitted{0};
  int tasks_min = 1;  // starts with no fewer; all of them at once or none
  int tasks_max = 1;  // takes up to so many while there is room
  Amounts task;
  Where where;
  Layout layout = Layout::pack;
  Micros limit = kNever;  // it is stopped when it has run for so long
  Guess run;              // how long it probably runs
  Micros deadline = kNever;
  Micros grace{0};           // between being told to stop and being gone
  std::string held;          // why it may not start whatever is free, e.g. "waits for job X"; "" = it may
  Micros not_before{0};      // back-off after a failure, or the time it was scheduled for
  bool restartable = false;  // may be tried in room that is promised to another, and start again if it took too long
  int trials = 0;            // how often that was done
  int preemptions = 0;       // how often it was displaced
  Micros preempted{0};       // when last; 0 = never
  // Its own rules about that; the policy's when it has none.
  std::optional<Micros> preempt_cooldown;
  std::optional<int> preemptions_max;
};

// So many tasks of a job on one node, with the devices they use: `devices[i]` belongs to task i / (devices per task).
struct Part {
  int node = 0;  // index into the state's nodes
  int tasks = 0;
  std::vector<int> devices;
  friend bool operator==(const Part&, const Part&) = default;
};
using Placement = std::vector<Part>;

int tasks_of(const Placement& placement);

struct Start {
  JobId job;
  Placement placement;
  bool trial = false;  // in room promised to another: it goes when that other starts, unless it has ended by then
};
// Stop it, saving what it can: another needs what it holds.
struct Preempt {
  JobId job;
  JobId in_favour_of;
  Micros lost{0};  // work since its last checkpoint, times its tasks
};
// Change the number of tasks of a running elastic job; `placement` is the whole new one.
struct Resize {
  JobId job;
  Placement placement;
};

enum class Reason {
  held,         // `detail` says by what
  not_before,   // `until` says when it may
  limit,        // its queue, `detail`, has reached its limit
  guarantee,    // its queue may not borrow beyond what is guaranteed
  no_node,      // no node that is up is of such a shape: `detail` says which demand none meets
  zone,         // nodes of such a shape are in other zones only
  reservation,  // free now, but promised to `behind`, which it would delay
  resources,    // nodes of such a shape are in use
  displacing,   // jobs were told to stop for it
};
std::string_view name_of(Reason reason);

// Why a job does not start now.
struct Wait {
  JobId job;
  Reason reason = Reason::resources;
  std::string detail;
  JobId behind;              // the job that a reservation holds for; empty when none
  Micros reserved = kNever;  // a start promised at the latest
};

// A start that others may not delay. A firm one only ever moves earlier (unless a node is lost or something urgent
// comes): that of the job whose patience ended first. The others may still change places with it.
struct Promised {
  JobId job;
  Micros start{0};
  bool firm = false;
  bool guessed = false;  // of a firm one: it holds only if jobs without a limit end when they probably do
};

struct Plan {
  std::vector<Start> starts;  // in this order; each fits when those before it are carried out
  std::vector<Preempt> preempts;
  std::vector<Resize> resizes;
  std::vector<JobId> keeps;  // trials that now hold their place like any other
  std::vector<Promised> promised;
  std::vector<Wait> waits;     // every pending job that is in none of the above, when asked for
  Micros look_again = kNever;  // nothing changes before then unless something happens
};

// How pending jobs of one queue and one priority are ordered.
enum class Order {
  submitted,  // who came first
  hastiest,   // whose early start gains most; those whose patience ends are promised a start
};

struct Policy {
  bool backfill = true;  // jobs may start before others that come first when that breaks no promise
  // So many jobs whose patience ends soonest are promised a start. 0 = none; 1 with Order::submitted and no patience is
  // EASY backfill.
  int promises = 4;
  int trials_max = 1;      // how often a restartable job is tried in room promised to another
  bool explains = true;    // fill Plan::waits
  int looks_at = 100'000;  // pending jobs considered in one pass
  Micros preempt_cooldown = std::chrono::minutes(10);  // a job displaced is left alone for so long
  // And displaced for urgent jobs so often at most. For what a queue is guaranteed, however often, but each time beyond
  // this doubles the time for which it is left alone.
  int preemptions_max = 3;
  int preempts_per_pass = 64;
};

}  // namespace falaj::schedule
