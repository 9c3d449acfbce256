// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/life.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::flow {
namespace {

constexpr std::string_view kStepPhases[] = {"waiting", "running", "asking",  "succeeded", "kept",
                                            "skipped", "failed",  "blocked", "cancelled"};
constexpr std::string_view kRunPhases[] = {"queued", "running", "succeeded", "failed", "cancelled"};

template <class Phase>
void read_phase(Phase& out, const json::value& in, std::span<const std::string_view> names, const std::string& path,
                Faults& faults) {
  const auto* text = in.if_string();
  const auto found = text ? std::find(names.begin(), names.end(), std::string_view(*text)) : names.end();
  if (found == names.end())
    faults.push_back({path, "no such phase"});
  else
    out = static_cast<Phase>(found - names.begin());
}

void settle(StepLife& step, StepPhase phase, std::string why, std::int64_t now_us) {
  step.phase = phase;
  step.why = std::move(why);
  step.ended_us = now_us;
}

// Whether a waiting step may go on, or what becomes of it because of those before it: known once all of them have
// ended, so that it does not depend on which did first.
bool is_free(const Plan& plan, const RunLife& life, const Instance& instance, StepLife& step, std::int64_t now_us) {
  std::string failed, skipped;
  for (const auto need : instance.needs) {
    const auto& id = plan.instances[need].id;
    const auto phase = life.steps.at(id).phase;
    if (!has_ended(phase)) return false;
    if (phase == StepPhase::skipped) skipped = fmt::format("{} was skipped", id);
    if (phase == StepPhase::failed) failed = fmt::format("{} failed", id);
    if (phase == StepPhase::blocked || phase == StepPhase::cancelled) failed = fmt::format("{} did not run", id);
  }
  if (!failed.empty())
    settle(step, StepPhase::blocked, failed, now_us);
  else if (!skipped.empty())
    settle(step, StepPhase::skipped, skipped, now_us);
  return failed.empty() && skipped.empty();
}

// True when it is to begin; otherwise it was settled.
bool is_wanted(const Plan& plan, const RunFacts& facts, const RunLife& life, const Instance& instance, StepLife& step,
               std::int64_t now_us) {
  const auto& when = plan.step_of(instance).when;
  if (when.empty()) return true;
  try {
    if (holds(
            when, [&](const Reference& reference) { return type_of(plan, instance, reference); },
            lookup_in(plan, facts, life, instance)))
      return true;
    settle(step, StepPhase::skipped, "its condition does not hold", now_us);
  } catch (const Error& e) {
    settle(step, StepPhase::failed, fmt::format("when: {}", e.what()), now_us);
  }
  return false;
}

void finish(RunLife& life, RunPhase phase, std::string why, std::int64_t now_us) {
  life.phase = phase;
  life.why = std::move(why);
  life.ended_us = now_us;
}

void wind_down(Next& out, std::int64_t now_us) {
  bool over = true;
  for (auto& [id, step] : out.life.steps) {
    if (step.phase == StepPhase::running) {
      out.stop.push_back(id);
      over = false;
    } else if (!has_ended(step.phase)) {
      settle(step, StepPhase::cancelled, out.life.stop, now_us);
      out.changed = true;
    }
  }
  if (!over) return;
  finish(out.life, out.life.verdict, out.life.stop, now_us);
  out.changed = true;
}

void conclude(const Plan& plan, Next& out, std::int64_t now_us) {
  std::string failed;
  for (const auto& instance : plan.instances) {
    const auto& step = out.life.steps.at(instance.id);
    if (!has_ended(step.phase)) return;
    if (step.phase == StepPhase::failed && failed.empty()) failed = fmt::format("{}: {}", instance.id, step.why);
  }
  finish(out.life, failed.empty() ? RunPhase::succeeded : RunPhase::failed, failed, now_us);
  out.changed = true;
}

}  // namespace

std::string_view name_of(StepPhase phase) { return kStepPhases[static_cast<std::size_t>(phase)]; }
std::string_view name_of(RunPhase phase) { return kRunPhases[static_cast<std::size_t>(phase)]; }
std::optional<RunPhase> parse_run_phase(std::string_view text) {
  const auto found = std::find(std::begin(kRunPhases), std::end(kRunPhases), text);
  if (found == std::end(kRunPhases)) return std::nullopt;
  return static_cast<RunPhase>(found - std::begin(kRunPhases));
}
void decode_one(StepPhase& out, const json::value& in, const Bounds&, const std::string& path, Faults& faults) {
  read_phase(out, in, kStepPhases, path, faults);
}
void decode_one(RunPhase& out, const json::value& in, const Bounds&, const std::string& path, Faults& faults) {
  read_phase(out, in, kRunPhases, path, faults);
}

RunLife new_life(const Plan& plan) {
  RunLife out;
  for (const auto& instance : plan.instances) out.steps[instance.id];
  return out;
}

Next next(const Plan& plan, const RunFacts& facts, RunLife life, std::int64_t now_us) {
  CHECK(life.phase == RunPhase::running, "only a run under way goes on");
  Next out;
  out.life = std::move(life);
  const auto limit = plan.spec.time_limit_us;
  if (limit > 0 && out.life.stop.empty()) {
    if (now_us >= out.life.began_us + limit) {
      stop(out.life, RunPhase::failed, fmt::format("took longer than {}", format_duration_us(limit)));
      out.changed = true;
    }
    out.look_us = out.life.began_us + limit;
  }
  if (!out.life.stop.empty()) {
    wind_down(out, now_us);
    return out;
  }
  std::int64_t busy = 0;
  for (const auto& entry : out.life.steps) busy += entry.second.phase == StepPhase::running;
  // In the order of the plan: what becomes of one step is known when those behind it are looked at.
  for (const auto& instance : plan.instances) {
    auto& step = out.life.steps.at(instance.id);
    const auto patience = plan.step_of(instance).time_limit_us;
    if (step.phase == StepPhase::asking && patience > 0) {
      if (now_us >= step.began_us + patience) {
        settle(step, StepPhase::failed, fmt::format("nobody decided within {}", format_duration_us(patience)), now_us);
        out.changed = true;
        continue;
      }
      out.look_us = std::min(out.look_us, step.began_us + patience);
    }
    // A job knows its own limit.
    if (step.phase == StepPhase::running && patience > 0 && !step.ticket.empty() &&
        !is_job(doing(plan.step_of(instance))->kind)) {
      if (now_us >= step.began_us + patience)
        out.stop.push_back(instance.id);
      else
        out.look_us = std::min(out.look_us, step.began_us + patience);
    }
    if (step.phase != StepPhase::waiting) continue;
    const bool free = is_free(plan, out.life, instance, step, now_us);
    if (step.phase != StepPhase::waiting) out.changed = true;
    if (!free) continue;
    if (step.not_before_us > now_us) {
      out.look_us = std::min(out.look_us, step.not_before_us);
      continue;
    }
    if (!is_wanted(plan, facts, out.life, instance, step, now_us)) {
      out.changed = true;
      continue;
    }
    if (busy >= plan.spec.parallel) continue;
    ++busy;
    out.begin.push_back(instance.id);
  }
  conclude(plan, out, now_us);
  return out;
}

void begin(RunLife& life, const std::string& id, json::value body, std::string key, std::string ticket,
           std::int64_t now_us) {
  auto& step = life.steps.at(id);
  CHECK(step.phase == StepPhase::waiting, "a step begins once");
  step.phase = StepPhase::running;
  step.attempt += 1;
  step.body = std::move(body);
  step.key = std::move(key);
  step.ticket = std::move(ticket);
  step.why.clear();
  step.began_us = now_us;
}

void reuse(RunLife& life, const std::string& id, std::string key, json::value outputs, std::string from,
           std::int64_t now_us) {
  auto& step = life.steps.at(id);
  CHECK(step.phase == StepPhase::waiting, "a step that began is not skipped");
  settle(step, StepPhase::kept, fmt::format("nothing that it depends on has changed since {}", from), now_us);
  step.began_us = now_us;
  step.key = std::move(key);
  step.outputs = std::move(outputs);
  step.from = std::move(from);
}

void end(const Plan& plan, RunLife& life, const std::string& id, const Done& done, std::int64_t now_us) {
  auto& step = life.steps.at(id);
  CHECK(!has_ended(step.phase), "a step ends once");
  const auto* instance = plan.find(id);
  CHECK(instance, "a step of the plan");
  const auto& spec = plan.step_of(*instance);
  if (!done.outputs.is_null()) step.outputs = done.outputs;
  switch (done.how) {
    case Done::How::succeeded:
      return settle(step, StepPhase::succeeded, done.why, now_us);
    case Done::How::refused:
      return settle(step, StepPhase::skipped, done.why, now_us);
    case Done::How::asks:
      step.phase = StepPhase::asking;
      step.why = done.why;
      step.ticket = done.ticket;
      return;
    case Done::How::goes_on:
      step.why = done.why;
      step.ticket = done.ticket;
      return;
    case Done::How::failed:
      break;
  }
  step.failures += 1;
  // Jobs are tried again by themselves, from their checkpoint.
  const bool retried = !is_job(doing(spec)->kind) && step.failures <= spec.retries.max;
  const bool passing = done.again && step.failures <= kPassingFailuresMax;
  if (life.stop.empty() && (retried || passing)) {
    step.phase = StepPhase::waiting;
    step.why = fmt::format("{}; tried again", done.why);
    step.ticket.clear();
    step.not_before_us =
        now_us + (retried ? std::min(spec.retries.backoff_us << std::min<std::int64_t>(step.failures - 1, 20),
                                     spec.retries.backoff_max_us)
                          : kPassingWaitUs * step.failures);
    return;
  }
  settle(step, life.stop.empty() ? StepPhase::failed : StepPhase::cancelled, done.why, now_us);
}

void stop(RunLife& life, RunPhase verdict, std::string why) {
  if (!life.stop.empty()) return;
  life.stop = std::move(why);
  life.verdict = verdict;
}

void resume(const Plan& plan, RunLife& life, const std::string& by) {
  const bool ended = life.phase == RunPhase::failed || life.phase == RunPhase::cancelled;
  if (!ended)
    throw Error(Code::conflict,
                fmt::format("the run is {}: only one that failed or was cancelled is resumed", name_of(life.phase)));
  for (const auto& instance : plan.instances) {
    auto& step = life.steps.at(instance.id);
    // What was skipped behind something that now runs again may be wanted after all.
    if (has_outputs(step.phase)) continue;
    const auto attempt = step.attempt;
    step = StepLife{};
    step.attempt = attempt;
  }
  life.phase = RunPhase::running;
  life.why = "resumed by " + by;
  life.stop.clear();
  life.ended_us = 0;
  life.resumed += 1;
}

Lookup lookup_in(const Plan& plan, const RunFacts& facts, const RunLife& life, const Instance& instance) {
  return [&plan, &facts, &life, &instance](const Reference& reference) -> json::value {
    const auto& path = reference.path;
    if (path[0] == "params") return facts.parameters.at(path[1]);
    if (path[0] == "matrix") return instance.matrix.at(path[1]);
    if (path[0] == "run") {
      if (path[1] == "number") return facts.number;
      return json::value(path[1] == "id" ? facts.id : path[1] == "pipeline" ? facts.pipeline : facts.started);
    }
    const auto step = plan.step_named(path[1]);
    CHECK(step < plan.spec.steps.size(), "a reference was checked");
    const auto output_of = [&](const Instance& of) -> json::value {
      const auto* at = &life.steps.at(of.id).outputs;
      std::string rest = join(std::span(path).subspan(3), ".");
      if (path.size() > 4) {  // names of metrics have dots of their own
        const auto* inner = at->is_object() ? at->get_object().if_contains(path[3]) : nullptr;
        if (inner) at = inner, rest = join(std::span(path).subspan(4), ".");
      }
      const auto* found = at->is_object() ? at->get_object().if_contains(rest) : nullptr;
      if (!found || found->is_null())
        throw Error(Code::invalid, fmt::format("step {} left no '{}'", of.id, join(std::span(path).subspan(3), ".")));
      return *found;
    };
    if (plan.spec.steps[step].matrix.empty()) return output_of(*plan.find(path[1]));
    json::array all;
    for (const auto& of : plan.instances)
      if (of.step == step) all.push_back(output_of(of));
    return all;
  };
}

}  // namespace falaj::flow
