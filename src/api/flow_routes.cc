// SPDX-License-Identifier: Apache-2.0
// pipelines: begin, look, stop, go on, decide

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "api/project.h"
#include "lifecycle/flow/flow.h"
#include "lifecycle/jobs/jobs.h"

namespace falaj::api {
namespace {

constexpr BodyLimit kPushBody{1 << 20};

struct PipelineOut {
  std::string name;
  std::int64_t revision = 0, steps = 0;
  std::vector<std::string> triggers;
  bool suspended = false;
  std::optional<std::int64_t> last;
  std::optional<std::string> last_phase, last_started;
};
struct PipelinesOut {
  std::vector<PipelineOut> items;
};
struct StartIn {
  json::value parameters;
  std::string key;
  bool fresh = false;
};
struct FlowStepOut {
  std::string id, name, kind, phase, why;
  std::vector<std::string> needs;
  std::int64_t attempt = 0;
  std::optional<std::string> job, run, from, began, ended;
  json::value outputs, matrix;
};
struct PipelineDetails {
  PipelineOut pipeline;
  std::map<std::string, flow::ParameterSpec> parameters;
  std::vector<FlowStepOut> steps;
};
struct FlowRunOut {
  std::string id, pipeline, phase, why, owner, created;
  std::int64_t number = 0, revision = 0, steps_done = 0, steps_all = 0;
  std::optional<std::string> began, ended, run_id;
  json::value parameters, cause;
  std::vector<FlowStepOut> steps;
};
struct ListFlowRunsIn {
  std::string pipeline, phase, cursor;
  std::int64_t limit = kPageItems;
};
struct CancelRunIn {
  std::string why;
};
struct DecideStepIn {
  bool approve = false;
  std::string why;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<PipelineOut> {
  using T = PipelineOut;
  static constexpr std::string_view name = "Pipeline";
  static Fields fields() {
    return {field("name", &T::name, "Its name."),
            field("revision", &T::revision, "Of what is declared."),
            field("steps", &T::steps, "How many."),
            field("triggers", &T::triggers, "What begins it without a person."),
            field("suspended", &T::suspended, "Triggers begin nothing."),
            field("last", &T::last, "Number of its newest run."),
            field("last_phase", &T::last_phase, "What became of it."),
            field("last_started", &T::last_started, "When.")};
  }
};
template <>
struct Shape<PipelinesOut> {
  static constexpr std::string_view name = "Pipelines";
  static Fields fields() { return {field("items", &PipelinesOut::items, "By name.")}; }
};
template <>
struct Shape<StartIn> {
  using T = StartIn;
  static constexpr std::string_view name = "StartPipeline";
  static Fields fields() {
    return {field("parameters", &T::parameters,
                  "By name; those left out have their defaults. Texts are read as their type."),
            field("key", &T::key, "The same key begins one run, however often it comes.").length(0, 200),
            field("fresh", &T::fresh, "Every step runs, whatever was made before.")};
  }
};
template <>
struct Shape<FlowStepOut> {
  using T = FlowStepOut;
  static constexpr std::string_view name = "PipelineRunStep";
  static Fields fields() {
    return {
        field("id", &T::id, "Its name, with a number where it has a matrix."),
        field("name", &T::name, "Of the step in the pipeline."),
        field("kind", &T::kind, "What it does."),
        field("phase", &T::phase,
              "waiting, running, asking, succeeded, kept, skipped, failed, blocked or cancelled. kept: made before."),
        field("why", &T::why, "In words."),
        field("needs", &T::needs, "Steps that come before it."),
        field("attempt", &T::attempt, "Tries so far."),
        field("job", &T::job, "Its newest job."),
        field("run", &T::run, "That job's run."),
        field("from", &T::from, "kept: the run and step that made it."),
        field("began", &T::began, "When."),
        field("ended", &T::ended, "When."),
        field("outputs", &T::outputs, "What it made."),
        field("matrix", &T::matrix, "Which combination it is.")};
  }
};
template <>
struct Shape<PipelineDetails> {
  using T = PipelineDetails;
  static constexpr std::string_view name = "PipelineDetails";
  static Fields fields() {
    return {field("pipeline", &T::pipeline, "What it is."),
            field("parameters", &T::parameters, "What a run is begun with."),
            field("steps", &T::steps, "Each after those it needs.")};
  }
};
template <>
struct Shape<FlowRunOut> {
  using T = FlowRunOut;
  static constexpr std::string_view name = "PipelineRun";
  static Fields fields() {
    return {field("id", &T::id, "Its id."),
            field("pipeline", &T::pipeline, "Of which pipeline."),
            field("number", &T::number, "1, 2, 3, ... of that pipeline."),
            field("phase", &T::phase, "queued, running, succeeded, failed or cancelled."),
            field("why", &T::why, "In words."),
            field("owner", &T::owner, "In whose name it acts."),
            field("cause", &T::cause, "What began it."),
            field("revision", &T::revision, "Of the pipeline as it was then."),
            field("parameters", &T::parameters, "What it was begun with."),
            field("created", &T::created, "When it was asked for."),
            field("began", &T::began, "When it began."),
            field("ended", &T::ended, "When it ended."),
            field("run_id", &T::run_id, "Its run in tracking; those of its jobs are children of it."),
            field("steps_done", &T::steps_done, "Steps that have ended."),
            field("steps_all", &T::steps_all, "Of so many."),
            field("steps", &T::steps, "Each after those it needs; none in lists.")};
  }
};
template <>
struct Shape<ListFlowRunsIn> {
  using T = ListFlowRunsIn;
  static constexpr std::string_view name = "ListPipelineRuns";
  static Fields fields() {
    return {field("pipeline", &T::pipeline, "Only of it.").length(0, 63),
            field("phase", &T::phase, "Only those in it.").length(0, 20), field("cursor", &T::cursor, "").length(0, 26),
            field("limit", &T::limit, "").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<CancelRunIn> {
  static constexpr std::string_view name = "CancelPipelineRun";
  static Fields fields() { return {field("why", &CancelRunIn::why, "For the history.").length(0, 1000)}; }
};
template <>
struct Shape<DecideStepIn> {
  using T = DecideStepIn;
  static constexpr std::string_view name = "DecideStep";
  static Fields fields() {
    return {field("approve", &T::approve, "Or else it is rejected.").required(),
            field("why", &T::why, "For the history.").length(0, 4000)};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

FlowStepOut step_out(const flow::Run& run, const flow::Instance& instance) {
  const auto& step = run.plan->step_of(instance);
  const auto& life = run.life.steps.at(instance.id);
  FlowStepOut out;
  out.id = instance.id;
  out.name = step.name;
  out.kind = flow::doing(step)->kind;
  out.phase = name_of(life.phase);
  out.why = life.why;
  for (const auto need : instance.needs) out.needs.push_back(run.plan->instances[need].id);
  out.attempt = life.attempt;
  if (life.ticket.starts_with("job/")) out.job = life.ticket.substr(4);
  const auto* object = life.outputs.if_object();
  if (const auto* id = object ? object->if_contains("run") : nullptr; id && id->is_string())
    out.run = std::string(id->get_string());
  if (!life.from.empty()) out.from = life.from;
  if (life.began_us > 0) out.began = format_time(life.began_us);
  if (life.ended_us > 0) out.ended = format_time(life.ended_us);
  out.outputs = life.outputs;
  if (!instance.matrix.empty()) {
    json::object matrix;
    for (const auto& [axis, value] : instance.matrix) matrix[axis] = value;
    out.matrix = std::move(matrix);
  }
  return out;
}

FlowRunOut run_out(const flow::Run& run, bool whole) {
  FlowRunOut out;
  out.id = run.facts.id;
  out.pipeline = run.facts.pipeline;
  out.number = run.facts.number;
  out.phase = name_of(run.life.phase);
  out.why = run.life.why;
  out.owner = run.owner;
  out.cause = run.cause;
  out.revision = run.revision;
  out.parameters = run.facts.parameters;
  out.created = format_time(run.created_us);
  if (run.life.began_us > 0) out.began = format_time(run.life.began_us);
  if (run.life.ended_us > 0) out.ended = format_time(run.life.ended_us);
  if (!run.life.run_id.empty()) out.run_id = run.life.run_id;
  out.steps_all = static_cast<std::int64_t>(run.life.steps.size());
  for (const auto& entry : run.life.steps) out.steps_done += flow::has_ended(entry.second.phase);
  if (!whole) return out;
  for (const auto& instance : run.plan->instances) out.steps.push_back(step_out(run, instance));
  return out;
}

std::string said_of(const flow::TriggerSpec& trigger) {
  if (trigger.cron) return "cron " + *trigger.cron;
  if (!trigger.dataset.empty()) return "dataset " + trigger.dataset;
  if (trigger.promotion) return fmt::format("promotion {}@{}", trigger.promotion->model, trigger.promotion->alias);
  if (trigger.alert) return "alert " + trigger.alert->rule;
  return trigger.push ? fmt::format("push {}", trigger.push->branch) : "";
}

PipelineOut pipeline_out(Platform& platform, const vault::Where& where, const resource::Stored& stored,
                         const flow::PipelineSpec& spec) {
  PipelineOut out;
  out.name = stored.resource.metadata.name;
  out.revision = stored.revision;
  out.steps = static_cast<std::int64_t>(spec.steps.size());
  out.suspended = spec.suspended;
  for (const auto& trigger : spec.triggers) out.triggers.push_back(said_of(trigger));
  const auto newest = platform.flow.runs().list(where, {out.name, "", "", 1});
  if (newest.empty()) return out;
  out.last = newest[0].facts.number;
  out.last_phase = name_of(newest[0].life.phase);
  out.last_started = newest[0].facts.started;
  return out;
}

PipelineDetails pipeline_details(Platform& platform, Call& call) {
  const auto where = project_of(call);
  const auto stored =
      platform.resources.get({"Pipeline", where.tenant.str(), where.project.str(), call.parameter("name")});
  const auto spec = decode<flow::PipelineSpec>(stored.resource.spec, "pipeline");
  flow::Run none;
  none.plan = std::make_shared<const flow::Plan>(flow::plan_of(spec));
  none.life = flow::new_life(*none.plan);
  PipelineDetails out{pipeline_out(platform, where, stored, spec), spec.parameters, {}};
  for (const auto& instance : none.plan->instances) out.steps.push_back(step_out(none, instance));
  return out;
}

PipelinesOut list_pipelines(Platform& platform, Call& call) {
  const auto where = project_of(call);
  PipelinesOut out;
  resource::ListOptions options{where.tenant.str(), where.project.str(), "", "", 1000};
  do {
    const auto page =
        platform.resources.list("Pipeline", options, [](std::string_view, const iam::Scope&) { return std::nullopt; });
    for (const auto& stored : page.items) {
      const auto spec = decode<flow::PipelineSpec>(stored.resource.spec, "pipeline");
      out.items.push_back(pipeline_out(platform, where, stored, spec));
    }
    options.cursor = page.next;
  } while (!options.cursor.empty());
  return out;
}

// A token that may do less than its owner begins nothing that does more.
void require_what_steps_do(Call& call, const vault::Where& where, const flow::PipelineSpec& spec) {
  for (const auto& step : spec.steps) {
    const auto what = flow::doing(step);
    if (!what) continue;
    if (flow::is_job(what->kind)) call.require("job.create", where.scope());
    if (what->kind == "sql" || what->kind == "trainSet" || what->kind == "ingest")
      call.require("dataset.write", where.scope());
    if (what->kind == "promote") call.require("model.write", where.scope());
    if (what->kind == "deploy") call.require("endpoint.update", where.scope());
  }
}

FlowRunOut start_run(Platform& platform, Call& call, const StartIn& in) {
  const auto where = project_of(call);
  const auto& name = call.parameter("name");
  if (!in.parameters.is_null() && !in.parameters.is_object())
    throw Error(Code::invalid, "parameters: must be an object of values by name");
  const auto stored = platform.resources.get({"Pipeline", where.tenant.str(), where.project.str(), name});
  require_what_steps_do(call, where, decode<flow::PipelineSpec>(stored.resource.spec, "pipeline"));
  flow::Begin begin;
  begin.pipeline = name;
  if (in.parameters.is_object()) begin.parameters = in.parameters.get_object();
  begin.owner = call.caller().principal.str();
  begin.cause = {{"by", begin.owner}};
  // Nobody can take the key that a trigger will use.
  const auto key = in.key.empty() ? std::string(call.head().headers.find("Idempotency-Key").value_or("")) : in.key;
  if (!key.empty()) begin.key = fmt::format("key {} {}", begin.owner, key.substr(0, 200));
  begin.cached = !in.fresh;
  begin.request_id = call.head().request_id;
  return run_out(platform.flow.start(where, begin), true);
}

// One's own run needs no more than the right to begin it; another's needs the right to cancel.
flow::Run run_to_change(Platform& platform, Call& call, const vault::Where& where) {
  const bool any = call.allows(flow::kCancelRun, where.scope());
  if (!any) call.require(flow::kStartRun, where.scope());
  auto run = platform.flow.runs().find(where, call.parameter("id"));
  if (!any && run.owner != call.caller().principal.str()) call.require(flow::kCancelRun, run.scope());
  return run;
}

FlowRunOut decide_step(Platform& platform, Call& call, const DecideStepIn& in) {
  const auto where = project_of(call);
  const auto& principal = call.caller().principal;
  std::vector<std::string> may{principal.str()};
  const auto grouped = platform.directory.snapshot()->with_groups(principal);
  may.insert(may.end(), grouped.groups.begin(), grouped.groups.end());
  const auto run = platform.flow.runs().find(where, call.parameter("id"));
  return run_out(platform.flow.decide(where, run.facts.id, call.parameter("step"), in.approve, in.why, may,
                                      call.act(run.scope().str())),
                 true);
}

Page<FlowRunOut> list_runs(Platform& platform, Call& call, const ListFlowRunsIn& in) {
  if (!in.phase.empty() && !flow::parse_run_phase(in.phase))
    throw Error(Code::invalid, fmt::format("phase: no such phase: '{}'", in.phase));
  const auto limit = static_cast<std::size_t>(in.limit);
  const auto found = platform.flow.runs().list(project_of(call), {in.pipeline, in.phase, in.cursor, limit + 1});
  Page<FlowRunOut> out;
  for (std::size_t i = 0; i < std::min(found.size(), limit); ++i) out.items.push_back(run_out(found[i], false));
  if (found.size() > limit) out.next = out.items.back().id;
  return out;
}

// The id of the run that it began; none of a branch that nobody waits for.
json::object push(Platform& platform, Call& call, net::Request& request) {
  const auto where = project_of(call);
  const auto body = request.body.read_all();
  const auto signature = std::string(call.head().headers.find("X-Hub-Signature-256").value_or(""));
  const auto run = platform.flow.pushed(where, call.parameter("name"), signature, body, [&](const std::string& name) {
    return platform.jobs.secrets().reveal(where, name);
  });
  return run ? json::object{{"id", run->facts.id}} : json::object{};
}

}  // namespace

void add_flow_routes(Routes& routes, Platform& platform) {
  const auto reads = [](std::string_view path, std::string_view action, std::string_view summary) {
    return Declaration{Method::get,   path,   Permission::of(action, "{scope}"), BodyLimit::none(), Audit::read(),
                       Place::worker, summary};
  };
  const auto changes = [](std::string_view path, Permission permission, std::string_view verb,
                          std::string_view summary) {
    return Declaration{Method::post,  path,   std::move(permission), kSmallBody, Audit::verb(verb),
                       Place::worker, summary};
  };
  routes.add<Nothing, PipelinesOut>(
      reads("/v1/pipelines", "pipeline.list", "Pipelines of a project, and how their newest runs went."),
      [&platform](Call& call, const Nothing&) { return list_pipelines(platform, call); });
  routes.add<Nothing, PipelineDetails>(
      reads("/v1/pipelines/{name}", "pipeline.read", "A pipeline, its parameters and the graph of its steps."),
      [&platform](Call& call, const Nothing&) { return pipeline_details(platform, call); });
  routes.add<StartIn, FlowRunOut>(changes("/v1/pipelines/{name}/run", Permission::of(flow::kStartRun, "{scope}"),
                                          flow::kStartRun, "Begin a run of a pipeline."),
                                  [&platform](Call& call, const StartIn& in) { return start_run(platform, call, in); });
  routes.add_stream<Nothing>(
      {Method::post, "/v1/pipelines/{name}/push", Permission::anyone(), kPushBody, Audit::verb(flow::kStartRun),
       Place::worker, "A push to a repository, signed with a secret of the project (X-Hub-Signature-256)."},
      "application/json", [&platform](Call& call, const Nothing&, net::Request& request) {
        return detail::json_response(push(platform, call, request));
      });
  routes.add<ListFlowRunsIn, Page<FlowRunOut>>(
      reads("/v1/pipeline-runs", "pipelinerun.list", "Runs of pipelines, newest first."),
      [&platform](Call& call, const ListFlowRunsIn& in) { return list_runs(platform, call, in); });
  routes.add<Nothing, FlowRunOut>(
      reads("/v1/pipelines/{name}/runs/{number}", "pipelinerun.read", "A run by its number; 0: the newest."),
      [&platform](Call& call, const Nothing&) {
        const auto number = parse_int(call.parameter("number"));
        if (!number || *number < 0) throw Error(Code::not_found, "no such run: its number is 1, 2, 3 or so");
        return run_out(platform.flow.runs().numbered(project_of(call), call.parameter("name"), *number), true);
      });
  routes.add<Nothing, FlowRunOut>(
      reads("/v1/pipeline-runs/{id}", "pipelinerun.read", "A run of a pipeline, with its steps."),
      [&platform](Call& call, const Nothing&) {
        return run_out(platform.flow.runs().find(project_of(call), call.parameter("id")), true);
      });
  routes.add<CancelRunIn, FlowRunOut>(
      changes("/v1/pipeline-runs/{id}/cancel", Permission::signed_in("{scope}"), flow::kCancelRun,
              "Stop a run, and the jobs of its steps."),
      [&platform](Call& call, const CancelRunIn& in) {
        const auto where = project_of(call);
        const auto run = run_to_change(platform, call, where);
        return run_out(platform.flow.cancel(where, run.facts.id, in.why, call.act(run.scope().str())), true);
      });
  routes.add<Nothing, FlowRunOut>(
      changes("/v1/pipeline-runs/{id}/resume", Permission::signed_in("{scope}"), "pipelinerun.resume",
              "Go on with a run that failed or was cancelled, from the steps that did not succeed."),
      [&platform](Call& call, const Nothing&) {
        const auto where = project_of(call);
        const auto run = run_to_change(platform, call, where);
        return run_out(platform.flow.resume(where, run.facts.id, call.act(run.scope().str())), true);
      });
  routes.add<DecideStepIn, FlowRunOut>(
      changes("/v1/pipeline-runs/{id}/steps/{step}/decide", Permission::of(flow::kApproveRun, "{scope}"),
              "pipelinerun.decide", "Approve or reject a step that asks."),
      [&platform](Call& call, const DecideStepIn& in) { return decide_step(platform, call, in); });
}

}  // namespace falaj::api
