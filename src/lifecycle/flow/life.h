// SPDX-License-Identifier: Apache-2.0
#pragma once

// The life of a run of a pipeline: what it may become next, decided by values alone. Pure.
//
//   queued -> running -> succeeded | failed | cancelled        failed or cancelled -> running: it was resumed
//
//   a step:  waiting -> running -> succeeded | failed          a failed one that is tried again waits again
//               |          +-> asking -> ...                   a person, or a promotion, has to say yes
//               +-> kept | skipped | blocked | cancelled       it never ran: made before, not wanted, could not, told
//               to

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"
#include "lifecycle/flow/plan.h"

namespace falaj::flow {

enum class StepPhase { waiting, running, asking, succeeded, kept, skipped, failed, blocked, cancelled };
enum class RunPhase { queued, running, succeeded, failed, cancelled };
std::string_view name_of(StepPhase phase);
std::string_view name_of(RunPhase phase);
std::optional<RunPhase> parse_run_phase(std::string_view text);
inline bool has_ended(RunPhase phase) { return phase >= RunPhase::succeeded; }
inline bool has_ended(StepPhase phase) { return phase >= StepPhase::succeeded; }
inline bool has_outputs(StepPhase phase) { return phase == StepPhase::succeeded || phase == StepPhase::kept; }

struct StepLife {
  StepPhase phase = StepPhase::waiting;
  std::int64_t attempt = 0;   // tries so far, and its own name for what it does: an effect of one is done once
  std::int64_t failures = 0;  // since it was last begun by a person
  std::string ticket;         // what does it: "job/ID", "promotion/12", "canary/late/new-3"; "" = we ourselves
  std::string key;            // of what it depends on, where what it makes is kept; "" = it is not
  std::string from;           // kept: "RUN/step" that made it
  std::string why;
  json::value body;  // with references filled in and names pinned, since it began
  json::value outputs;
  std::int64_t not_before_us = 0, began_us = 0, ended_us = 0;
};

struct RunLife {
  RunPhase phase = RunPhase::queued;
  std::string why;
  std::string stop;                        // why it was told to stop; "" = it goes on
  RunPhase verdict = RunPhase::cancelled;  // what it then becomes
  std::string run_id;                      // in tracking
  std::int64_t began_us = 0, ended_us = 0, resumed = 0;
  std::map<std::string, StepLife> steps;  // by instance
};

// What a run is, besides its life: it never changes.
struct RunFacts {
  std::string id, pipeline, started;
  std::int64_t number = 0;
  json::object parameters;
};

// How a step ended, or what it waits for.
struct Done {
  // refused: a gate that says no without failing; goes_on: what its ticket names does the rest
  enum class How { succeeded, failed, refused, asks, goes_on };
  How how = How::succeeded;
  std::string why;
  json::value outputs;
  std::string ticket;  // of what it asks, or of what goes on
  bool again = false;  // failed for a reason that may go away: tried again even when nobody said so
};

RunLife new_life(const Plan& plan);

struct Next {
  RunLife life;                      // with all that needs no effect
  bool changed = false;              // it is another than before
  std::vector<std::string> begin;    // waiting instances whose turn it is
  std::vector<std::string> stop;     // running ones that are to be stopped
  std::int64_t look_us = INT64_MAX;  // something is due then
};
// Requires: it is running.
Next next(const Plan& plan, const RunFacts& facts, RunLife life, std::int64_t now_us);

// ---- what happened to one step; Requires: the step is in a phase in which it can
void begin(RunLife& life, const std::string& id, json::value body, std::string key, std::string ticket,
           std::int64_t now_us);
void reuse(RunLife& life, const std::string& id, std::string key, json::value outputs, std::string from,
           std::int64_t now_us);
void end(const Plan& plan, RunLife& life, const std::string& id, const Done& done, std::int64_t now_us);

// ---- what a person wants
void stop(RunLife& life, RunPhase verdict, std::string why);
// Lets what failed, was blocked or cancelled be tried again. Throws conflict when there is nothing of the kind.
void resume(const Plan& plan, RunLife& life, const std::string& by);

// What the references of an instance stand for now. Throws invalid when an output is not there.
Lookup lookup_in(const Plan& plan, const RunFacts& facts, const RunLife& life, const Instance& instance);

// How long to wait before the next try after so many failures.
inline constexpr std::int64_t kPassingFailuresMax = 10, kPassingWaitUs = 1'000'000;

void decode_one(StepPhase& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults);
void decode_one(RunPhase& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults);
inline json::value encode_one(StepPhase v) { return json::value(name_of(v)); }
inline json::value encode_one(RunPhase v) { return json::value(name_of(v)); }

}  // namespace falaj::flow

namespace falaj {

template <>
struct shape::SchemaOf<flow::StepPhase> : shape::SchemaOf<std::string> {};
template <>
struct shape::SchemaOf<flow::RunPhase> : shape::SchemaOf<std::string> {};

template <>
struct Shape<flow::StepLife> {
  using T = flow::StepLife;
  static constexpr std::string_view name = "PipelineStepLife";
  static Fields fields() {
    return {field("phase", &T::phase, "Where it is."),
            field("attempt", &T::attempt, "Tries so far."),
            field("failures", &T::failures, "Of those that failed since it was begun."),
            field("ticket", &T::ticket, "What does it."),
            field("key", &T::key, "Of all that it depends on."),
            field("from", &T::from, "Where what is used again was made."),
            field("why", &T::why, "In words."),
            field("body", &T::body, "What it does, with nothing left open."),
            field("outputs", &T::outputs, "What it made."),
            field("not_before_us", &T::not_before_us, "It is not tried again before."),
            field("began_us", &T::began_us, "When it began."),
            field("ended_us", &T::ended_us, "When it ended.")};
  }
};
template <>
struct Shape<flow::RunLife> {
  using T = flow::RunLife;
  static constexpr std::string_view name = "PipelineRunLife";
  static Fields fields() {
    return {field("phase", &T::phase, "Where it is."),
            field("why", &T::why, "In words."),
            field("stop", &T::stop, "Why it was told to stop."),
            field("verdict", &T::verdict, "What it then becomes."),
            field("run_id", &T::run_id, "Its run in tracking."),
            field("began_us", &T::began_us, "When it began."),
            field("ended_us", &T::ended_us, "When it ended."),
            field("resumed", &T::resumed, "How often it was resumed."),
            field("steps", &T::steps, "Its steps.").length(0, static_cast<std::int64_t>(flow::kInstancesMax))};
  }
};

}  // namespace falaj
