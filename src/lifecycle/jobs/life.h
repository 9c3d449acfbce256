// SPDX-License-Identifier: Apache-2.0
#pragma once

// The life of a job: what it may become next, decided by values alone.
//
//   pending -> admitted -> starting -> running -> finishing -> succeeded | failed | cancelled
//      ^                                  |
//      +----------- checkpointing <-------+      displaced, or ended with 75: again, with the next epoch
//
// An attempt is one try of a job, named "<job>.<epoch>". The epoch counts up before anything is started, and what is
// told of an older one changes nothing: a job never runs twice at once.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "foundation/base/shape.h"
#include "lifecycle/execute/executor.h"
#include "lifecycle/jobs/spec.h"
#include "lifecycle/schedule/model.h"

namespace falaj::jobs {

using schedule::JobId;

enum class Phase {
  pending,        // waits for something else than room: a dependency, a time
  admitted,       // starts as soon as there is room
  starting,       // its place is taken; being started there
  running,        //
  checkpointing,  // told to stop for another; will be pending again
  finishing,      // has ended; what it left is being kept
  succeeded,
  failed,
  cancelled,
};
std::string_view name_of(Phase phase);
std::optional<Phase> parse_phase(std::string_view text);
inline bool has_ended(Phase phase) { return phase >= Phase::succeeded; }
// Whether it holds a place on nodes.
inline bool is_placed(Phase phase) { return phase >= Phase::starting && phase <= Phase::checkpointing; }

// So many of its tasks on one node, and the GPUs they use there.
struct Place {
  std::string node;
  std::int64_t tasks = 0;
  std::vector<std::string> gpus;
  friend bool operator==(const Place&, const Place&) = default;
};

// How its last attempt ended.
struct End {
  std::string reason;  // as execute::Reason says it, or "dependency", "deadline"
  std::int64_t exit_code = 0, signal = 0, rank = 0;
  std::string message;
  std::int64_t at_us = 0;
  std::int64_t cpu_us = 0, memory_peak_bytes = 0;
};

// Everything of a job that changes. Times are wall clock, microseconds.
struct Life {
  Phase phase = Phase::pending;
  std::int64_t epoch = 0;  // of the newest attempt; 0 = none yet
  std::string executor;
  std::vector<Place> places;
  std::string isolation, external_id;  // of the newest attempt
  std::int64_t not_before_us = 0;
  std::int64_t placed_us = 0, started_us = 0, ended_us = 0;  // of the newest attempt; ended: of the job
  std::int64_t failures = 0;                                 // attempts that count as retries
  std::int64_t losses = 0;                                   // attempts that a node took along
  std::int64_t preemptions = 0, preempted_us = 0;
  std::int64_t resizes = 0;  // how often it was stopped to go on with more tasks
  bool trial = false;        // the newest attempt is in room promised to another
  std::int64_t trials = 0;   // that had to go for it
  std::int64_t checkpointed_us = 0;
  std::int64_t idle_since_us = 0;  // it holds processors and hardly uses them since then; 0 = it does
  std::int64_t hasty = 0;          // how often in a row it asked to be started again at once
  std::string stop;                // why the attempt was told to stop; "" = it was not
  std::string verdict;             // while finishing: what it will be
  std::string why;                 // the newest change, in words
  std::optional<End> end;
  std::string run_id;
};

inline constexpr std::string_view kStopCancel = "cancel", kStopPreempt = "preempt", kStopRequeue = "requeue",
                                  kStopResize = "resize", kStopDeadline = "deadline";

// ---- what happens to it
struct Released {};  // nothing but room keeps it any more
struct Doomed {      // what it depends on will never be
  std::string message;
};
struct Placed {
  std::string executor;
  std::vector<Place> places;
  bool trial = false;
};
struct Acknowledged {  // the executor has taken the attempt
  std::string run_id;
};
struct Refused {  // the attempt can never run there
  std::string message;
};
struct Reported {
  execute::Report report;   // of the newest attempt
  std::string run_id = {};  // that it has if it is there at all, whether or not that was acknowledged
};
struct CancelAsked {
  std::string by;
};
struct RequeueAsked {
  std::string by;
};
struct Displaced {
  std::string in_favour_of;
};
struct Resized {  // there is room for more of its tasks
  std::int64_t tasks = 0;
};
struct Used {  // how far it uses what it holds was looked at
  std::int64_t idle_since_us = 0;
  std::string why;
};
struct DeadlinePassed {};
struct Kept {  // what it left is kept; or why it could not be
  std::string problem;
};
using Event = std::variant<Released, Doomed, Placed, Acknowledged, Refused, Reported, CancelAsked, RequeueAsked,
                           Displaced, Resized, Used, DeadlinePassed, Kept>;

// What must be done once the change is durable.
enum class Effect {
  start,   // the newest attempt
  stop,    // the newest attempt
  forget,  // the newest attempt has ended and is recorded
  keep,    // what it left; answered by Kept
  tidy,    // it left nothing to keep: its directories go
};

// What an attempt took, for the accounts.
struct Spent {
  std::int64_t epoch = 0, started_us = 0, ended_us = 0;
  std::vector<Place> places;
  std::string executor, reason;
  std::int64_t cpu_us = 0, memory_peak_bytes = 0;
  double cost = 0;            // by what nodes of their pools cost; known to the dispatcher
  double energy_joules = 0;   // of processors; the same; 0: nobody counts
  std::int64_t saved_us = 0;  // what it did before then is in its checkpoint; 0 = nothing is
};

// For how long it worked in vain: since its checkpoint changed, where it neither ended well nor saved all.
inline std::int64_t lost_us(std::string_view reason, std::int64_t started_us, std::int64_t ended_us,
                            std::int64_t saved_us) {
  if (reason == "finished" || reason == "checkpointed") return 0;
  return std::max<std::int64_t>(ended_us - std::max(started_us, saved_us), 0);
}

struct Next {
  Life life;
  bool changed = false;
  std::vector<Effect> effects;
  std::optional<Spent> spent;
};

// Pure. What does not concern the job as it is changes nothing.
Next next(const JobSpec& spec, const Life& life, const Event& event, std::int64_t now_us);

// How long to wait before try `failures` + 1; doubles, bounded.
std::int64_t backoff_us(const RetrySpec& retries, std::int64_t failures);
inline constexpr std::int64_t kLossesMax = 10;

// The run of a job, of all its attempts: known without having been written down, so that a kill between making it and
// writing it down loses nothing.
std::string run_id_of(JobId job);
std::string attempt_name(JobId job, std::int64_t epoch);
struct AttemptName {
  JobId job;
  std::int64_t epoch = 0;
};
std::optional<AttemptName> parse_attempt(std::string_view text);

// Lets Life hold a phase.
void decode_one(Phase& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults);
inline json::value encode_one(Phase v) { return json::value(name_of(v)); }

}  // namespace falaj::jobs

namespace falaj {

template <>
struct shape::SchemaOf<jobs::Phase> : shape::SchemaOf<std::string> {};

template <>
struct Shape<jobs::Place> {
  using T = jobs::Place;
  static constexpr std::string_view name = "JobPlace";
  static Fields fields() {
    return {field("node", &T::node, "The node."), field("tasks", &T::tasks, "Tasks on it."),
            field("gpus", &T::gpus, "GPUs they use.")};
  }
};
template <>
struct Shape<jobs::End> {
  using T = jobs::End;
  static constexpr std::string_view name = "JobEnd";
  static Fields fields() {
    return {
        field(
            "reason", &T::reason,
            "finished, checkpointed, signalled, out_of_memory, time_limit, stopped, node_lost, not_started, dependency "
            "or deadline."),
        field("exit_code", &T::exit_code, "Of the task that decided it."),
        field("signal", &T::signal, "That ended it; 0 = none."),
        field("rank", &T::rank, "Of that task."),
        field("message", &T::message, "In words."),
        field("at_us", &T::at_us, "When."),
        field("cpu_us", &T::cpu_us, "Processor time of all tasks."),
        field("memory_peak_bytes", &T::memory_peak_bytes, "Most memory of all tasks together.")};
  }
};
template <>
struct Shape<jobs::Life> {
  using T = jobs::Life;
  static constexpr std::string_view name = "JobLife";
  static Fields fields() {
    return {field("phase", &T::phase, "Where it is in its life."),
            field("epoch", &T::epoch, "Attempts so far."),
            field("executor", &T::executor, "Where it runs."),
            field("places", &T::places, "On which nodes."),
            field("isolation", &T::isolation, "How far it is kept apart there."),
            field("external_id", &T::external_id, "The other system's name for it."),
            field("not_before_us", &T::not_before_us, "It does not start before."),
            field("placed_us", &T::placed_us, "When its place was taken."),
            field("started_us", &T::started_us, "When the attempt began to run."),
            field("ended_us", &T::ended_us, "When the job ended."),
            field("failures", &T::failures, "Attempts that failed."),
            field("losses", &T::losses, "Attempts lost with a node."),
            field("preemptions", &T::preemptions, "How often it was stopped for another."),
            field("preempted_us", &T::preempted_us, "When last."),
            field("resizes", &T::resizes, "How often it was stopped to go on with more tasks."),
            field("trial", &T::trial, "It runs in room that is promised to another."),
            field("trials", &T::trials, "How often it had to go for that other."),
            field("checkpointed_us", &T::checkpointed_us, "What it did before then is safe."),
            field("idle_since_us", &T::idle_since_us, "It hardly uses its processors since then; 0 = it does."),
            field("hasty", &T::hasty, "How often in a row it asked at once to be started again."),
            field("stop", &T::stop, "Why it was told to stop."),
            field("verdict", &T::verdict, "What it will be."),
            field("why", &T::why, "The newest change, in words."),
            field("end", &T::end, "How its last attempt ended."),
            field("run_id", &T::run_id, "Its tracked run.")};
  }
};

}  // namespace falaj
