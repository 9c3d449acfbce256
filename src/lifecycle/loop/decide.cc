// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/loop/decide.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::loop {
namespace {

class Deciding {
 public:
  Deciding(const std::string& name, const PolicySpec& spec, State state, const Facts& facts)
      : name_(name), spec_(spec), facts_(facts) {
    out_.state = std::move(state);
  }

  Decision run() {
    forget_old_runs();
    see_data();
    see_run();
    if (state().run.empty() && state().key.empty()) answer();
    return std::move(out_);
  }

 private:
  State& state() { return out_.state; }

  void put_down(std::string what, std::string why, std::int64_t alert = 0, std::string run = "") {
    out_.records.push_back({std::move(what), std::move(why), alert, std::move(run)});
    state().said.clear();
  }
  // What stays so for many looks is put down at the first.
  void put_down_once(const std::string& what, const std::string& why, std::int64_t alert) {
    const auto said = fmt::format("{} {}", what, alert);
    if (state().said == said) return;
    put_down(what, why, alert);
    state().said = said;
  }
  void look_at(std::int64_t at_us) { out_.look_us = std::min(out_.look_us, at_us); }

  const Firing* first_of(const std::vector<std::string>& rules, std::int64_t after) const {
    const Firing* first = nullptr;
    for (const auto& firing : facts_.firing)
      if (firing.number > after && std::find(rules.begin(), rules.end(), firing.rule) != rules.end() &&
          (!first || firing.number < first->number))
        first = &firing;
    return first;
  }

  void forget_old_runs() {
    std::erase_if(state().begun_us, [&](std::int64_t at) { return at + spec_.budget.per_us <= facts_.now_us; });
  }

  void take_back(const std::string& why, std::int64_t alert) {
    if (!facts_.before || spec_.endpoint.empty()) return;
    if (spec_.dry_run) return put_down_once("would_roll_back", why, alert);
    state().go_back = *facts_.before;
    put_down("rolled_back",
             fmt::format("endpoint {} is what it was in state {}: {}", spec_.endpoint, *facts_.before, why), alert,
             state().run);
  }

  void see_data() {
    const auto* broken = first_of(spec_.blocked_by, 0);
    if (!broken) {
      if (state().blocked > 0) {
        put_down("unblocked", "data are as they were", state().blocked);
        state().blocked = 0;
        state().clear_us = facts_.now_us;
      }
      return;
    }
    // Asked at every look until it stops: whoever was killed in between did not ask, or was not heard.
    if (!state().run.empty() && facts_.run_phase == "running") {
      out_.cancel = state().run;
      out_.cancel_why = fmt::format("alert {}: {}", broken->number, broken->text);
    }
    const bool news = state().blocked == 0;
    state().blocked = broken->number;
    if (!news) return;
    put_down("blocked", fmt::format("data are broken, nothing is learned from them: {}", broken->text), broken->number);
    if (spec_.when_blocked != "keep") take_back(broken->text, broken->number);
  }

  void see_run() {
    if (state().run.empty() || facts_.run_phase.empty()) return;
    if (facts_.run_phase == "running" || facts_.run_phase == "stopping") return;
    const auto run = std::exchange(state().run, "");
    state().key.clear();
    state().cool_until_us = facts_.now_us + spec_.cool_down_us;
    if (facts_.run_phase == "succeeded") {
      state().failures = 0;
      state().answered = std::max(state().answered, state().cause);
      for (const auto& firing : facts_.firing) state().answered = std::max(state().answered, firing.number);
      put_down("succeeded", facts_.run_why.empty() ? "a better model is in place" : facts_.run_why, state().cause, run);
      return;
    }
    if (state().blocked > 0) return put_down("cancelled", facts_.run_why, state().cause, run);  // not its own fault
    ++state().failures;
    // What a gate found not good enough is no better model, whatever the pipeline makes of it.
    put_down(facts_.run_phase == "refused" ? "refused" : "failed", facts_.run_why, state().cause, run);
    if (spec_.when_failed == "rollback") take_back(facts_.run_why, state().cause);
    if (state().failures >= spec_.tries_max)
      stop(fmt::format("{} runs led to no better model one after the other, the last as: {}", state().failures,
                       facts_.run_why),
           state().cause);
  }

  void stop(std::string why, std::int64_t alert) {
    state().stopped = why;
    put_down("stopped", fmt::format("{}; falaj loop resume {} lets it go on", why, name_), alert);
  }

  void answer() {
    const auto* cause = first_of(spec_.on, state().answered);
    if (!cause || !state().stopped.empty()) return;
    if (state().blocked > 0)
      return put_down_once("waits", fmt::format("for data that are not broken; alert {} does", state().blocked),
                           cause->number);
    // What fires now may come from data that were broken until a moment ago.
    const auto settled = std::max(cause->fired_us, state().clear_us) + spec_.settle_us;
    if (facts_.now_us < settled) return look_at(settled);
    if (facts_.now_us < state().cool_until_us) {
      look_at(state().cool_until_us);
      return put_down_once("waits", fmt::format("until {}, to cool down", format_time(state().cool_until_us)),
                           cause->number);
    }
    if (static_cast<std::int64_t>(state().begun_us.size()) >= spec_.budget.runs)
      return stop(fmt::format("{} runs within {} were not enough: {}", spec_.budget.runs,
                              format_duration_us(spec_.budget.per_us), cause->text),
                  cause->number);
    if (spec_.dry_run) {
      put_down("would_begin", fmt::format("pipeline {}, as {}: {}", spec_.pipeline, cause->rule, cause->text),
               cause->number);
      state().answered = cause->number;
      return;
    }
    ++state().tries;
    state().cause = cause->number;
    state().key = fmt::format("policy/{}/{}", name_, state().tries);
    state().begun_us.push_back(facts_.now_us);
    put_down("begun", fmt::format("pipeline {}, as {}: {}", spec_.pipeline, cause->rule, cause->text), cause->number);
  }

  const std::string& name_;
  const PolicySpec& spec_;
  const Facts& facts_;
  Decision out_;
};

}  // namespace

Decision decide(const std::string& name, const PolicySpec& spec, State state, const Facts& facts) {
  return Deciding(name, spec, std::move(state), facts).run();
}

std::string explain(const std::string& name, const PolicySpec& spec, State state, const Facts& facts) {
  auto dry = spec;
  dry.dry_run = true;
  state.said.clear();  // what was put down before is said again
  if (!state.stopped.empty()) return fmt::format("nothing until falaj loop resume {}: {}", name, state.stopped);
  const bool under_way = !state.key.empty() || !state.run.empty();
  const auto next = decide(name, dry, std::move(state), facts);
  std::string out;
  for (const auto& record : next.records) {
    auto what = record.what;
    std::replace(what.begin(), what.end(), '_', ' ');
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", what, record.why);
  }
  if (!out.empty()) return out;
  if (next.state.blocked > 0)
    return fmt::format("nothing while alert {} says that data are broken", next.state.blocked);
  if (under_way) return "its run is under way";
  if (next.look_us != INT64_MAX)
    return fmt::format("looks again at {}: an alert must have fired for {}", format_time(next.look_us),
                       format_duration_us(spec.settle_us));
  return "nothing: no alert that it answers fires, or it was answered";
}

void let_go_on(State& state) {
  state.stopped.clear();
  state.failures = 0;
  state.begun_us.clear();
  state.cool_until_us = 0;
  state.said.clear();
}

}  // namespace falaj::loop
