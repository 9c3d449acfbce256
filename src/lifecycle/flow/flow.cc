// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/flow.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/log.h"
#include "foundation/crypto/hash.h"

namespace falaj::flow {
namespace {

constexpr std::int64_t kRestAfterFailureUs = 1'000'000;
constexpr std::size_t kSaidMax = 50;  // changes that one audit record tells of
constexpr std::size_t kAlertsLooked = 1000;

track::RunStatus status_of(RunPhase phase) {
  return phase == RunPhase::succeeded ? track::RunStatus::finished
         : phase == RunPhase::failed  ? track::RunStatus::failed
                                      : track::RunStatus::killed;
}

sql::Act tracking_act(const Run& run, std::string_view verb) {
  return {"system/flow", std::string(verb), run.where.scope().str(), ""};
}

// What gates, checks, tests and people said before an alias was moved, for whoever asks later why it was.
json::value evidence_of(const Run& run) {
  json::object gates, others;
  for (const auto& instance : run.plan->instances) {
    const auto& step = run.life.steps.at(instance.id);
    const auto what = doing(run.plan->step_of(instance));
    if (!what || !has_outputs(step.phase)) continue;
    if (what->kind == "gate") gates[instance.id] = step.outputs;
    if (what->kind != "check" && what->kind != "test" && what->kind != "approve") continue;
    json::object said{{"kind", what->kind}, {"why", step.why}};
    for (const auto* name : {"dataset", "rules", "job", "run", "by"})
      if (const auto* value = step.outputs.is_object() ? step.outputs.get_object().if_contains(name) : nullptr)
        said[name] = *value;
    others[instance.id] = std::move(said);
  }
  return json::object{{"pipeline", run.facts.pipeline}, {"pipeline_run", run.facts.id},
                      {"run", run.life.run_id},         {"cause", run.cause},
                      {"gates", std::move(gates)},      {"checks", std::move(others)}};
}

}  // namespace

std::string key_of(const std::string& kind, const json::value& body, const json::value& depends) {
  return crypto::sha256(canonical(json::object{{"kind", kind}, {"body", body}, {"depends", depends}})).hex();
}

Flow::Flow(Parts parts, FlowOptions options)
    : parts_(parts),
      options_(options),
      probe_(parts.metrics),
      store_(parts.database),
      ids_(parts.clock, parts.random),
      workers_(options.workers > 0 ? std::make_unique<jobs::Workers>(options.workers) : nullptr) {}

Flow::~Flow() { stop(); }

void Flow::start() {
  thread_ = std::thread([this] { loop(); });
}

void Flow::stop() {
  {
    Lock lock(mu_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (workers_) workers_->stop();
}

void Flow::wake() {
  Lock lock(mu_);
  awake_ = true;
  changed_.notify_all();
}

void Flow::loop() {
  for (;;) {
    std::int64_t due = INT64_MAX;
    try {
      due = pass();
      if (parts_.clock.now() >= triggers_due_) {
        if (run_triggers() > 0) due = 0;
        triggers_due_ = parts_.clock.now() + options_.triggers_every;
      }
    } catch (const std::exception& e) {
      log::warn("flow_failed", {{"why", e.what()}});
      runs_.clear();  // what it believes may be more than what is stored
      due = parts_.clock.wall().count() + kRestAfterFailureUs;
    }
    Lock lock(mu_);
    if (stopping_) return;
    const auto now = parts_.clock.wall().count();
    const auto until = std::min<std::int64_t>(due <= now ? 0 : due - now, options_.triggers_every.count());
    if (!awake_ && until > 0) lock.wait_for(changed_, sys::Micros(until));
    if (stopping_) return;
    awake_ = false;
  }
}

std::int64_t Flow::pass() {
  const auto began = parts_.clock.now();
  std::map<std::string, std::vector<Result>> results;
  {
    Lock lock(mu_);
    for (auto& result : results_) {
      under_way_.erase(fmt::format("{}/{}/{}", result.run, result.step, result.attempt));
      auto& of = results[result.run];
      of.push_back(std::move(result));
    }
    results_.clear();
  }
  const auto live = store_.live();
  if (live.empty()) told_to_stop_.clear();
  const auto wishes = live.empty() ? std::map<std::string, std::vector<Wish>>() : store_.all_wishes();
  std::map<std::string, Run> kept;
  for (const auto& one : live) {
    const auto known = runs_.find(one.id);
    if (known != runs_.end() && known->second.version == one.version)
      kept.emplace(one.id, std::move(known->second));
    else
      kept.emplace(one.id, store_.find(one.id));
  }
  runs_ = std::move(kept);
  std::int64_t due = INT64_MAX;
  for (const auto& one : live) {
    auto& run = runs_.at(one.id);
    const auto asked = wishes.find(one.id);
    try {
      due = std::min(
          due, advance(run, asked == wishes.end() ? std::vector<Wish>() : asked->second, std::move(results[one.id])));
    } catch (const std::exception& e) {
      log::warn("pipeline_run_failed", {{"run", one.id}, {"why", e.what()}});
      runs_.at(one.id).version = 0;  // read anew
      due = std::min(due, parts_.clock.wall().count() + kRestAfterFailureUs);
    }
  }
  double asking = 0;
  for (const auto& entry : runs_)
    for (const auto& step : entry.second.life.steps) asking += step.second.phase == StepPhase::asking;
  probe_.live.Set(static_cast<double>(runs_.size()));
  probe_.asking.Set(asking);
  probe_.pass_seconds.Observe(std::chrono::duration<double>(parts_.clock.now() - began).count());
  return due;
}

std::int64_t Flow::advance(Run& run, const std::vector<Wish>& wishes, std::vector<Result> results) {
  Run next = run;  // what is decided counts once it is stored
  Turn turn{next, {}, {}, {}, 0, false};
  admit(turn);
  grant(turn, wishes);
  hold(turn);
  std::int64_t due = INT64_MAX;
  if (next.life.phase == RunPhase::running) {
    take(turn, results);
    look(turn);
    due = go_on(turn);
  }
  if (has_ended(next.life.phase)) {
    turn.changed = true;
    close_tracking(next);
  }
  if (turn.changed || !turn.with.empty() || turn.wishes > 0) {
    const auto before = run.life;
    commit(turn);
    run = next;
    count(before, run.life);
  }
  for (const auto& task : turn.acts) give(task);
  for (const auto& entry : run.life.steps) {
    const bool elsewhere = entry.second.phase == StepPhase::running || entry.second.phase == StepPhase::asking;
    if (elsewhere && !entry.second.ticket.empty())
      due = std::min(due, (parts_.clock.wall() + options_.look_every).count());
  }
  return due;
}

void Flow::admit(Turn& turn) {
  auto& run = turn.run;
  if (run.life.phase != RunPhase::queued) return;
  std::int64_t busy = 0;
  for (const auto& entry : runs_) {
    const auto& other = entry.second;
    busy += other.life.phase == RunPhase::running && other.facts.pipeline == run.facts.pipeline &&
            other.where.scope() == run.where.scope();
  }
  if (busy >= run.plan->spec.concurrency) return;
  if (const auto why = broken(run.where, run.plan->spec); !why.empty()) {
    turn.changed |= run.life.why.empty();
    if (run.life.why.empty()) run.life.why = "waits: " + why;
    return;
  }
  run.life.phase = RunPhase::running;
  run.life.why.clear();
  run.life.began_us = parts_.clock.wall().count();
  run.life.run_id = open_tracking(run);
  turn.said.push_back("it began");
  turn.changed = true;
}

void Flow::grant(Turn& turn, const std::vector<Wish>& wishes) {
  auto& life = turn.run.life;
  for (const auto& wish : wishes) {
    turn.wishes = wish.number;
    turn.said.push_back(fmt::format("{} by {}", wish.what, wish.by));
    if (wish.what == "cancel" && !has_ended(life.phase)) {
      if (life.phase == RunPhase::queued) life.began_us = parts_.clock.wall().count();
      life.phase = RunPhase::running;
      flow::stop(life, RunPhase::cancelled,
                 fmt::format("cancelled by {}{}", wish.by, wish.why.empty() ? "" : ": " + wish.why));
    }
    const auto step = life.steps.find(wish.step);
    if (step == life.steps.end() || step->second.phase != StepPhase::asking || !step->second.ticket.empty()) continue;
    const bool yes = wish.what == "approve";
    if (!yes && wish.what != "reject") continue;
    ended(turn, wish.step,
          {yes ? Done::How::succeeded : Done::How::failed,
           fmt::format("{} by {}{}", yes ? "approved" : "rejected", wish.by, wish.why.empty() ? "" : ": " + wish.why),
           json::object{{"by", wish.by}, {"why", wish.why}}, "", false});
  }
}

// Nothing is learned from broken data, whoever began it.
void Flow::hold(Turn& turn) {
  auto& life = turn.run.life;
  if (life.phase != RunPhase::running || !life.stop.empty()) return;
  const auto why = broken(turn.run.where, turn.run.plan->spec);
  if (why.empty()) return;
  flow::stop(life, RunPhase::cancelled, why);
  turn.said.push_back(why);
  turn.changed = true;
}

// What workers did. What must happen together with its being known happens in the write.
void Flow::take(Turn& turn, std::vector<Result>& results) {
  for (auto& result : results) {
    const auto step = turn.run.life.steps.find(result.step);
    if (step == turn.run.life.steps.end() || step->second.phase != StepPhase::running ||
        step->second.attempt != result.attempt)
      continue;
    if (!result.acted.within) {
      ended(turn, result.step, result.acted.done);
      continue;
    }
    if (!turn.run.life.stop.empty()) {  // nothing was done yet, nor is it
      ended(turn, result.step, {Done::How::failed, turn.run.life.stop, {}, "", false});
      continue;
    }
    turn.said.push_back(fmt::format("{}: done", result.step));
    turn.with.push_back([this, id = result.step, within = result.acted.within](sql::Writer& writer, Run& run) {
      flow::end(*run.plan, run.life, id, within(writer), parts_.clock.wall().count());
    });
    // Its outcome is not known before the write: the step is left alone until then.
    wake();
  }
}

void Flow::look(Turn& turn) {
  for (const auto& instance : turn.run.plan->instances) {
    const auto& step = turn.run.life.steps.at(instance.id);
    if (step.phase != StepPhase::running && step.phase != StepPhase::asking) continue;
    if (!step.ticket.empty()) {
      if (const auto done = parts_.work.look(task_of(turn.run, instance), step.ticket)) ended(turn, instance.id, *done);
    } else if (step.phase == StepPhase::running && turn.with.empty()) {
      turn.acts.push_back(task_of(turn.run, instance));  // ours, but perhaps before a kill
    }
  }
}

std::int64_t Flow::go_on(Turn& turn) {
  auto& run = turn.run;
  for (;;) {
    auto next = flow::next(*run.plan, run.facts, std::move(run.life), parts_.clock.wall().count());
    run.life = std::move(next.life);
    turn.changed |= next.changed;
    for (const auto& id : next.stop) {
      const auto& ticket = run.life.steps.at(id).ticket;
      if (!ticket.empty() && !told_to_stop_.contains(ticket)) tell_to_stop(run, id);
    }
    if (next.begin.empty() || has_ended(run.life.phase)) return next.look_us;
    for (const auto& id : next.begin) begin_step(turn, id);
  }
}

// What could not be told now is told at the next look: a canary that is not taken back takes over.
void Flow::tell_to_stop(const Run& run, const std::string& step) {
  const auto& ticket = run.life.steps.at(step).ticket;
  try {
    parts_.work.stop(task_of(run, *run.plan->find(step)), ticket, run.life.stop);
  } catch (const Error& e) {
    log::warn("step_not_stopped", {{"run", run.facts.id}, {"step", step}, {"why", e.what()}});
    if (e.code() != Code::denied && e.code() != Code::invalid) return;  // those will not go away
  }
  told_to_stop_.insert(ticket);
}

// Which alert says that data are broken, in words; "" = none does.
std::string Flow::broken(const Where& where, const PipelineSpec& spec) const {
  if (spec.blocked_by.empty()) return "";
  alerts::ListAlerts which;
  which.limit = kAlertsLooked;
  for (const auto& alert : parts_.alerts.list({where.tenant.str(), where.project.str()}, which))
    if (alert.phase == alerts::Phase::firing &&
        std::find(spec.blocked_by.begin(), spec.blocked_by.end(), alert.rule) != spec.blocked_by.end())
      return fmt::format("data are broken, by alert {} ({}): {}", alert.number, alert.rule, alert.about.text);
  return "";
}

void Flow::begin_step(Turn& turn, const std::string& id) {
  auto& run = turn.run;
  const auto& instance = *run.plan->find(id);
  const auto& spec = run.plan->step_of(instance);
  const auto now = parts_.clock.wall().count();
  turn.changed = true;
  try {
    auto task = task_of(run, instance);
    task.attempt += 1;
    task.body = in_words(task.kind, fill(*doing(spec)->body, lookup_in(*run.plan, run.facts, run.life, instance)));
    auto settled = parts_.work.settle(task);
    task.body = settled.body;
    if (settled.already) {
      flow::reuse(run.life, id, "", settled.already->outputs, "", now);
      run.life.steps.at(id).why = settled.already->why;
      turn.said.push_back(fmt::format("{}: {}", id, settled.already->why));
      return;
    }
    const bool keeps = spec.cache.value_or(keeps_by_default(task.kind)) && !settled.depends.is_null();
    const auto key = keeps ? key_of(task.kind, settled.body, settled.depends) : "";
    const auto* fresh = run.cause.is_object() ? run.cause.get_object().if_contains("fresh") : nullptr;
    if (const auto kept = key.empty() || fresh ? std::nullopt : store_.kept(run.where, key);
        kept && parts_.work.is_there(run.where, task.kind, kept->outputs)) {
      flow::reuse(run.life, id, key, kept->outputs, kept->from, now);
      turn.said.push_back(fmt::format("{}: kept from {}", id, kept->from));
      return;
    }
    turn.said.push_back(fmt::format("{}: began", id));
    if (task.kind == "approve") {
      flow::begin(run.life, id, task.body, key, "", now);
      const auto* message = task.body.get_object().if_contains("message");
      return ended(turn, id, {Done::How::asks, message ? words_of(*message) : "", {}, "", false});
    }
    if (!is_job(task.kind)) {
      flow::begin(run.life, id, task.body, key, "", now);
      turn.acts.push_back(std::move(task));
      return;
    }
    if (std::string why; over_budget(run, why)) throw Error(Code::invalid, why);
    const auto job = parts_.work.submit(task);
    flow::begin(run.life, id, task.body, key, job.ticket, now);
    turn.with.push_back([insert = job.insert](sql::Writer& writer, Run&) { insert(writer); });
  } catch (const Error& e) {
    ended(turn, id, {Done::How::failed, e.what(), {}, "", e.retryable()});
  }
}

void Flow::ended(Turn& turn, const std::string& id, const Done& done) {
  auto& run = turn.run;
  const auto now = parts_.clock.wall().count();
  flow::end(*run.plan, run.life, id, done, now);
  const auto& step = run.life.steps.at(id);
  turn.changed = true;
  turn.said.push_back(fmt::format("{}: {}{}", id, name_of(step.phase), step.why.empty() ? "" : ": " + step.why));
  if (step.phase != StepPhase::succeeded || step.key.empty()) return;
  turn.with.push_back([this, key = step.key, kept = Kept{step.outputs, fmt::format("{}/{}", run.facts.id, id), now}](
                          sql::Writer& writer, Run& of) { store_.keep(writer, of.where, key, kept); });
}

void Flow::commit(Turn& turn) {
  auto& run = turn.run;
  if (turn.said.size() > kSaidMax) turn.said.resize(kSaidMax);
  const sql::Act act{"system/flow",
                     "pipelinerun.update",
                     run.scope().str(),
                     "",
                     "ok",
                     json::serialize(json::object{{"pipeline", run.facts.pipeline},
                                                  {"phase", name_of(run.life.phase)},
                                                  {"changes", json::value_from(turn.said)}})};
  run.life = parts_.database.write(act, [&](sql::Writer& writer) {
    Run copy = run;
    for (const auto& with : turn.with) with(writer, copy);
    store_.write(writer, copy);
    // Of one that has ended nothing is wished any more.
    const auto seen_to = has_ended(copy.life.phase) ? INT64_MAX : turn.wishes;
    if (seen_to > 0) store_.forget_wishes(writer, copy.facts.id, seen_to);
    return copy.life;
  });
  run.version += 1;
}

Task Flow::task_of(const Run& run, const Instance& instance) const {
  const auto& spec = run.plan->step_of(instance);
  const auto& step = run.life.steps.at(instance.id);
  Task out;
  out.where = run.where;
  out.pipeline = run.facts.pipeline;
  out.run = run.facts.id;
  out.owner = run.owner;
  out.step = instance.id;
  out.kind = doing(spec)->kind;
  out.body = step.body;
  out.attempt = step.attempt;
  out.retries = spec.retries;
  out.time_limit_us = spec.time_limit_us;
  out.parent = run.life.run_id;
  if (out.kind == "promote") out.evidence = evidence_of(run);
  return out;
}

void Flow::give(const Task& task) {
  {
    Lock lock(mu_);
    if (stopping_ || !under_way_.insert(task.id()).second) return;
  }
  const auto work = [this, task] {
    Result result{task.run, task.step, task.attempt, {}};
    try {
      result.acted = parts_.work.act(task);
    } catch (const Error& e) {
      result.acted.done = {Done::How::failed, e.what(), {}, "", e.retryable()};
    } catch (const std::exception& e) {
      result.acted.done = {Done::How::failed, e.what(), {}, "", false};
    }
    Lock lock(mu_);
    results_.push_back(std::move(result));
    awake_ = true;
    changed_.notify_all();
  };
  if (workers_)
    workers_->give(work);
  else
    work();
}

bool Flow::over_budget(const Run& run, std::string& why) {
  const auto& budget = run.plan->spec.budget;
  if (!budget) return false;
  std::vector<std::string> tickets;
  for (const auto& entry : run.life.steps)
    if (!entry.second.ticket.empty()) tickets.push_back(entry.second.ticket);
  const auto spent = parts_.work.spent(run.where, tickets, run.created_us);
  if (budget->cpu_hours > 0 && spent.cpu_hours >= budget->cpu_hours)
    why = fmt::format("budget: {:.2f} of {:g} processor hours are used", spent.cpu_hours, budget->cpu_hours);
  if (budget->cost > 0 && spent.cost >= budget->cost)
    why = fmt::format("budget: {:.2f} of {:g} are spent", spent.cost, budget->cost);
  return !why.empty();
}

void Flow::count(const RunLife& before, const RunLife& after) {
  if (before.phase != after.phase && has_ended(after.phase))
    (after.phase == RunPhase::succeeded ? probe_.succeeded
     : after.phase == RunPhase::failed  ? probe_.failed
                                        : probe_.cancelled)
        .Increment();
  for (const auto& [id, step] : after.steps) {
    if (before.steps.at(id).phase == step.phase) continue;
    if (step.phase == StepPhase::succeeded) probe_.steps_done.Increment();
    if (step.phase == StepPhase::kept) probe_.steps_kept.Increment();
    if (step.phase == StepPhase::skipped) probe_.steps_skipped.Increment();
    if (step.phase == StepPhase::failed) probe_.steps_failed.Increment();
  }
}

// ---- the run in tracking, which its jobs' runs are children of

std::string Flow::open_tracking(const Run& run) {
  auto& track = parts_.track;
  try {
    const auto& name = run.plan->spec.experiment.empty() ? run.facts.pipeline : run.plan->spec.experiment;
    std::int64_t experiment = 0;
    try {
      experiment = track.experiment_by_name(run.where, name).number;
    } catch (const Error& e) {
      if (e.code() != Code::not_found) throw;
      experiment = track.create_experiment(run.where, name, {}, tracking_act(run, "experiment.create"));
    }
    // A kill after it was made and before that was written finds it again.
    track::SearchRuns made;
    made.experiments = {experiment};
    made.filter = fmt::format("tags.`falaj.pipeline_run` = '{}'", run.facts.id);
    made.limit = 1;
    const auto there = track.search_runs(run.where, made);
    if (!there.items.empty()) return there.items[0].info.run_id;
    track::NewRun wanted;
    wanted.experiment = experiment;
    wanted.name = fmt::format("{} {}", run.facts.pipeline, run.facts.number);
    wanted.user = run.owner.substr(run.owner.rfind('/') + 1);
    wanted.start_ms = run.created_us / 1000;
    wanted.tags = {{"falaj.pipeline", run.facts.pipeline}, {"falaj.pipeline_run", run.facts.id}};
    const auto id = track.create_run(run.where, wanted, tracking_act(run, "run.create")).info.run_id;
    track::Batch batch;
    for (const auto& parameter : run.facts.parameters)
      batch.params.push_back({std::string(parameter.key()), words_of(parameter.value()).substr(0, 6000)});
    if (!batch.params.empty()) track.log(run.where, id, batch, tracking_act(run, "run.log"));
    return id;
  } catch (const Error& e) {
    if (e.retryable()) throw;
    log::warn("pipeline_not_tracked", {{"run", run.facts.id}, {"why", e.what()}});
    return "";  // what it does matters more than its being seen there
  }
}

void Flow::close_tracking(const Run& run) {
  if (run.life.run_id.empty()) return;
  try {
    track::Batch batch;
    double kept = 0, done = 0;
    for (const auto& entry : run.life.steps) {
      kept += entry.second.phase == StepPhase::kept;
      done += entry.second.phase == StepPhase::succeeded;
    }
    batch.tags = {{"falaj.steps_done", fmt::format("{}", done)}, {"falaj.steps_kept", fmt::format("{}", kept)}};
    parts_.track.log(run.where, run.life.run_id, batch, tracking_act(run, "run.log"));
    track::RunChange change;
    change.status = status_of(run.life.phase);
    change.end_ms = run.life.ended_us / 1000;
    parts_.track.update_run(run.where, run.life.run_id, change, tracking_act(run, "run.update"));
  } catch (const Error& e) {
    if (e.retryable()) throw;
    log::warn("pipeline_not_tracked", {{"run", run.facts.id}, {"why", e.what()}});
  }
}

// ---- asking

void Flow::check_owner(const Where& where, const std::string& owner) const {
  const auto snapshot = parts_.directory.snapshot();
  iam::Identity identity;
  identity.principal = snapshot->with_groups(iam::Principal::parse(owner));
  if (!snapshot->active(identity.principal) || !parts_.directory.allows(identity, kStartRun, where.scope()))
    throw Error(Code::denied, fmt::format("{} may not run pipelines here", owner));
}

Run Flow::make_run(const Where& where, const Begin& begin, const resource::Stored& stored) {
  const auto spec = decode<PipelineSpec>(stored.resource.spec, "pipeline");
  Run run;
  run.where = where;
  run.owner = begin.owner.empty() ? stored.actor : begin.owner;
  check_owner(where, run.owner);
  run.facts.id = format_id(ids_.next());
  run.facts.pipeline = begin.pipeline;
  run.facts.parameters = parameters_of(spec, begin.parameters);
  run.cause = begin.cause;
  if (!begin.cached) run.cause.get_object()["fresh"] = true;
  run.revision = stored.revision;
  run.created_us = parts_.clock.wall().count();
  run.facts.started = format_time(run.created_us);
  run.plan = std::make_shared<const Plan>(plan_of(spec));
  run.life = new_life(*run.plan);
  return run;
}

Run Flow::start(const Where& where, const Begin& begin) {
  const auto stored = parts_.resources.get({"Pipeline", where.tenant.str(), where.project.str(), begin.pipeline});
  auto run = make_run(where, begin, stored);
  const sql::Act act{begin.owner.empty() ? "system/flow" : begin.owner,
                     std::string(kStartRun),
                     run.scope().str(),
                     begin.request_id,
                     "ok",
                     json::serialize(json::object{{"pipeline", begin.pipeline}, {"cause", run.cause}})};
  const auto id = parts_.database.write(act, [&](sql::Writer& writer) {
    auto copy = run;
    if (store_.under_way(writer, where, begin.pipeline).first >= static_cast<std::int64_t>(kQueuedMax))
      throw Error(Code::exhausted, fmt::format("{} runs of '{}' wait: try again later", kQueuedMax, begin.pipeline));
    const auto there = store_.insert(writer, copy, begin.key.empty() ? run.facts.id : begin.key);
    return there.value_or(copy.facts.id);
  });
  if (id == run.facts.id) probe_.started.Increment();
  wake();
  return store_.find(id);
}

Run Flow::cancel(const Where& where, const std::string& id, const std::string& why, const sql::Act& act) {
  const auto run = store_.find(where, id);
  if (has_ended(run.life.phase))
    throw Error(Code::conflict, fmt::format("the run is {} already", name_of(run.life.phase)));
  parts_.database.write(act, [&](sql::Writer& w) { store_.wish(w, run, {0, "cancel", "", act.actor, why}); });
  wake();
  return run;
}

Run Flow::resume(const Where& where, const std::string& id, const sql::Act& act) {
  auto run = store_.find(where, id);
  flow::resume(*run.plan, run.life, act.actor);
  run.life.began_us = parts_.clock.wall().count();  // of the time that it may take
  check_owner(where, run.owner);
  // Nobody looks at a run that has ended, so it is ours to write; whoever else wrote it meanwhile is found out.
  parts_.database.write(act, [&](sql::Writer& w) { store_.write(w, run); });
  wake();
  return run;
}

Run Flow::decide(const Where& where, const std::string& id, const std::string& step, bool approve,
                 const std::string& why, const std::vector<std::string>& may, const sql::Act& act) {
  const auto run = store_.find(where, id);
  const auto found = run.life.steps.find(step);
  if (found == run.life.steps.end())
    throw Error(Code::not_found, fmt::format("the run has no step '{}'", step.substr(0, 64)));
  const auto& asks = found->second;
  if (asks.ticket.starts_with("promotion/"))
    throw Error(Code::conflict, fmt::format("the model asks for that: falaj model approve {}", asks.ticket.substr(10)));
  if (asks.phase != StepPhase::asking)
    throw Error(Code::conflict, fmt::format("step {} is {} and asks nobody", step, name_of(asks.phase)));
  const auto body = decode<ApproveBody>(asks.body, "approval");
  const auto* by = run.cause.is_object() ? run.cause.get_object().if_contains("by") : nullptr;
  if (body.other && (act.actor == run.owner || (by && words_of(*by) == act.actor)))
    throw Error(Code::denied, "somebody else than who started the run decides about it");
  if (!body.by.empty() && std::none_of(body.by.begin(), body.by.end(), [&](const auto& name) {
        return std::find(may.begin(), may.end(), name) != may.end();
      }))
    throw Error(Code::denied, fmt::format("step {} is for {} to decide about", step, fmt::join(body.by, ", ")));
  parts_.database.write(act, [&](sql::Writer& w) {
    store_.wish(w, run, {0, approve ? "approve" : "reject", step, act.actor, why});
  });
  wake();
  return run;
}

}  // namespace falaj::flow
