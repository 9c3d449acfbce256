// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a policy does next, decided by values alone: the same whether it is asked once or after every kill.
//
//   nothing fires                        nothing to do
//   data are broken                      nothing is learned from them; a run is stopped, a canary taken back
//   a model got worse                    after `settle`, when cool and within budget: one run of the pipeline
//   the run failed, or there is no more  tried again when cool; at the end it stops and a person is called
//   budget

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lifecycle/loop/kind.h"

namespace falaj::loop {

struct Firing {
  std::int64_t number = 0;  // counts up: later alerts have higher ones
  std::string rule, text;
  std::int64_t fired_us = 0;
};

// What is known of the world.
struct Facts {
  std::int64_t now_us = 0;
  std::vector<Firing> firing;
  std::string run_phase, run_why;      // of State.run: "running", "stopping", "succeeded", "refused" (by a gate),
                                       // "failed" or "cancelled"; "" = not begun
  std::optional<std::int64_t> before;  // a canary is under way: the state of the endpoint before it
};

// What is kept of a policy.
struct State {
  std::int64_t answered = 0;           // alerts up to this one were seen to
  std::int64_t cause = 0;              // the alert that the run below answers
  std::string key, run;                // what the run is begun with, and its id once it is; "" = there is none
  std::int64_t tries = 0;              // runs ever: makes keys differ
  std::int64_t failures = 0;           // in a row
  std::vector<std::int64_t> begun_us;  // of runs that count for the budget
  std::int64_t cool_until_us = 0;
  std::int64_t blocked = 0;   // the alert that says that data are broken; 0 = none does
  std::int64_t clear_us = 0;  // when the last such was over
  std::int64_t go_back = 0;   // the endpoint is to be what it was in this state; 0 = it stays
  std::string stopped;        // why nothing more is done until a person says so
  std::string said;           // the last thing that was put down, so that it is once
  friend bool operator==(const State&, const State&) = default;
};

struct Record {
  std::string
      what;  // begun, succeeded, refused, failed, blocked, unblocked, waits, stopped, rolled_back, would_begin ...
  std::string why;
  std::int64_t alert = 0;
  std::string run;
};

struct Decision {
  State state;
  std::vector<Record> records;
  std::string cancel, cancel_why;    // a run that is to be stopped
  std::int64_t look_us = INT64_MAX;  // something is due then
};

Decision decide(const std::string& name, const PolicySpec& spec, State state, const Facts& facts);

// What it would do now, or what it waits for, in words. Changes nothing.
std::string explain(const std::string& name, const PolicySpec& spec, State state, const Facts& facts);

// A person lets it go on.
void let_go_on(State& state);

}  // namespace falaj::loop

template <>
struct falaj::Shape<falaj::loop::State> {
  using T = loop::State;
  static constexpr std::string_view name = "RetrainPolicyState";
  static Fields fields() {
    return {field("answered", &T::answered, "Alerts up to this one were seen to."),
            field("cause", &T::cause, "The alert that the run answers."),
            field("key", &T::key, "Of the run."),
            field("run", &T::run, "The run under way."),
            field("tries", &T::tries, "Runs ever."),
            field("failures", &T::failures, "In a row."),
            field("begun_us", &T::begun_us, "Runs that count for the budget.").length(0, 1000),
            field("cool_until_us", &T::cool_until_us, "Nothing is begun before."),
            field("blocked", &T::blocked, "The alert that says that data are broken."),
            field("clear_us", &T::clear_us, "When the last such was over."),
            field("go_back", &T::go_back, "The state of the endpoint that it goes back to."),
            field("stopped", &T::stopped, "Why nothing is done until a person says so."),
            field("said", &T::said, "What was put down last.")};
  }
};
