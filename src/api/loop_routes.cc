// SPDX-License-Identifier: Apache-2.0
// loop: what policies did by themselves, and why

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/project.h"
#include "lifecycle/loop/loop.h"

namespace falaj::api {
namespace {

struct PolicyOut {
  std::string name, state, why, next, pipeline, endpoint, run;
  std::vector<std::string> on, blocked_by;
  std::int64_t failures = 0, runs_left = 0;
  std::optional<std::string> cool_until;
  bool dry_run = false;
};
struct PoliciesOut {
  std::vector<PolicyOut> items;
};
struct LoopRecordOut {
  std::int64_t id = 0, alert = 0;
  std::string at, policy, what, why, run;
};
struct LoopHistoryOut {
  std::vector<LoopRecordOut> items;
};
struct LoopHistoryQuery {
  std::string policy;
  std::int64_t limit = 100;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<PolicyOut> {
  using T = PolicyOut;
  static constexpr std::string_view name = "RetrainPolicyView";
  static Fields fields() {
    return {field("name", &T::name, "Its name."),
            field("state", &T::state, "idle, running, blocked, cooling, stopped or suspended."),
            field("why", &T::why, "In words."),
            field("next", &T::next, "What it would do now, or waits for, in words."),
            field("on", &T::on, "Alert rules that ask for a run."),
            field("blocked_by", &T::blocked_by, "Alert rules that forbid one."),
            field("pipeline", &T::pipeline, "What runs."),
            field("endpoint", &T::endpoint, "What is taken back."),
            field("run", &T::run, "Under way."),
            field("failures", &T::failures, "In a row."),
            field("runs_left", &T::runs_left, "Of the budget, now."),
            field("cool_until", &T::cool_until, "Nothing is begun before."),
            field("dry_run", &T::dry_run, "It only says what it would do.")};
  }
};
template <>
struct Shape<PoliciesOut> {
  static constexpr std::string_view name = "RetrainPolicyViews";
  static Fields fields() { return {field("items", &PoliciesOut::items, "Of the project.")}; }
};
template <>
struct Shape<LoopRecordOut> {
  using T = LoopRecordOut;
  static constexpr std::string_view name = "LoopRecord";
  static Fields fields() {
    return {field("id", &T::id, "Counts up in the project."),
            field("at", &T::at, "When."),
            field("policy", &T::policy, "Which policy."),
            field("what", &T::what,
                  "begun, succeeded, failed, cancelled, blocked, unblocked, waits, rolled_back, stopped, ..."),
            field("why", &T::why, "In words."),
            field("alert", &T::alert, "The alert it answers; 0 = none."),
            field("run", &T::run, "The pipeline's run.")};
  }
};
template <>
struct Shape<LoopHistoryOut> {
  static constexpr std::string_view name = "LoopHistory";
  static Fields fields() { return {field("items", &LoopHistoryOut::items, "Newest first.")}; }
};
template <>
struct Shape<LoopHistoryQuery> {
  using T = LoopHistoryQuery;
  static constexpr std::string_view name = "LoopHistoryQuery";
  static Fields fields() {
    return {field("policy", &T::policy, "Only of this one.").length(0, 63),
            field("limit", &T::limit, "Most at once.").range(1, 1000)};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

PolicyOut out_of(const loop::PolicyView& view, std::int64_t now_us) {
  const auto& spec = view.spec;
  const auto& state = view.state;
  PolicyOut out;
  out.name = view.name;
  out.on = spec.on;
  out.blocked_by = spec.blocked_by;
  out.pipeline = spec.pipeline;
  out.endpoint = spec.endpoint;
  out.run = state.run;
  out.failures = state.failures;
  out.dry_run = spec.dry_run;
  std::int64_t begun = 0;
  for (const auto at : state.begun_us) begun += at + spec.budget.per_us > now_us ? 1 : 0;
  out.runs_left = std::max<std::int64_t>(0, spec.budget.runs - begun);
  if (state.cool_until_us > now_us) out.cool_until = format_time(state.cool_until_us);
  if (spec.suspended) {
    out.state = "suspended";
  } else if (!state.stopped.empty()) {
    out.state = "stopped";
    out.why = state.stopped;
  } else if (state.blocked > 0) {
    out.state = "blocked";
    out.why = fmt::format("alert {} says that data are broken", state.blocked);
  } else if (!state.key.empty()) {
    out.state = "running";
    out.why = fmt::format("answers alert {}", state.cause);
  } else {
    out.state = out.cool_until ? "cooling" : "idle";
  }
  return out;
}

}  // namespace

void add_loop_routes(Routes& routes, Platform& platform) {
  auto& loop = platform.loop;
  const auto& clock = platform.clock;
  const auto reads = [](std::string_view path, std::string_view action, std::string_view summary) {
    return Declaration{Method::get,   path,   Permission::of(action, "{scope}"), BodyLimit::none(), Audit::read(),
                       Place::worker, summary};
  };
  routes.add<Nothing, PoliciesOut>(
      reads("/v1/loop/policies", "retrainpolicy.list", "Policies of a project, and what they are about."),
      [&loop, &clock](Call& call, const Nothing&) {
        PoliciesOut out;
        for (const auto& view : loop.policies(project_of(call)))
          out.items.push_back(out_of(view, clock.wall().count()));
        return out;
      });
  routes.add<Nothing, PolicyOut>(
      reads("/v1/loop/policies/{name}", "retrainpolicy.read", "A policy and what it is about."),
      [&loop, &clock](Call& call, const Nothing&) {
        const auto where = project_of(call);
        const std::string name(call.parameter("name"));
        auto out = out_of(loop.policy(where, name), clock.wall().count());
        out.next = loop.explain(where, name);
        return out;
      });
  routes.add<LoopHistoryQuery, LoopHistoryOut>(
      reads("/v1/loop/history", "retrainpolicy.list", "What policies did and did not do, and why, newest first."),
      [&loop](Call& call, const LoopHistoryQuery& in) {
        LoopHistoryOut out;
        for (const auto& past : loop.history(project_of(call), in.policy, static_cast<std::size_t>(in.limit)))
          out.items.push_back({past.id, past.record.alert, format_time(past.at_us), past.policy, past.record.what,
                               past.record.why, past.record.run});
        return out;
      });
  routes.add<Nothing, PolicyOut>(
      Declaration{Method::post, "/v1/loop/policies/{name}/resume", Permission::of("retrainpolicy.run", "{scope}"),
                  kSmallBody, Audit::verb("retrainpolicy.resume"), Place::worker,
                  "Let a policy that stopped go on, with its budget anew."},
      [&loop, &clock](Call& call, const Nothing&) {
        const auto where = project_of(call);
        const std::string name(call.parameter("name"));
        const auto scope = iam::Scope::of(where.tenant.str(), where.project.str(), "retrainpolicy", name).str();
        return out_of(loop.resume(where, name, call.act(scope)), clock.wall().count());
      });
}

}  // namespace falaj::api
