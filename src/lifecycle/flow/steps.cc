// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/steps.h"

#include <fmt/format.h>

#include "foundation/base/error.h"

namespace falaj::flow {

iam::Identity Steps::identity_of(const Task& task) const {
  const auto snapshot = parts_.directory.snapshot();
  iam::Identity out;
  out.principal = snapshot->with_groups(iam::Principal::parse(task.owner));
  if (!snapshot->active(out.principal))
    throw Error(Code::denied, fmt::format("{} is no more, or disabled", task.owner));
  return out;
}

void Steps::require(const Task& task, std::string_view action, const iam::Scope& scope) const {
  if (!parts_.directory.allows(identity_of(task), action, scope))
    throw Error(Code::denied,
                fmt::format("{}, in whose name it runs, lacks {} on {}", task.owner, action, scope.str()));
}

resource::Authorise Steps::authorise(const Task& task) const {
  return [this, identity = identity_of(task)](std::string_view action,
                                              const iam::Scope& scope) -> std::optional<std::string> {
    if (parts_.directory.allows(identity, action, scope)) return std::nullopt;
    return fmt::format("{} on {} is not allowed to {}", action, scope.str(), identity.principal.str());
  };
}

sql::Act Steps::act_of(const Task& task, std::string_view verb) {
  return {task.owner,
          std::string(verb),
          task.where.scope().str(),
          "",
          "ok",
          json::serialize(json::object{{"pipeline", task.pipeline}, {"pipeline_step", task.id()}})};
}

iam::Scope Steps::scope_of(const Task& task, std::string_view kind, const std::string& name) {
  return iam::Scope::of(task.where.tenant.str(), task.where.project.str(), std::string(kind), name);
}

Settled Steps::settle(const Task& task) {
  if (is_job(task.kind)) return settle_job(task);
  if (task.kind == "sql") return settle_sql(task);
  if (task.kind == "trainSet") return settle_train_set(task);
  if (task.kind == "ingest") return settle_ingest(task);
  if (task.kind == "check") return settle_check(task);
  if (task.kind == "gate") return settle_gate(task);
  if (task.kind == "promote") return settle_promote(task);
  if (task.kind == "deploy") return settle_deploy(task);
  CHECK(task.kind == "approve", "a kind of step");
  decode<ApproveBody>(task.body, "approve");
  return {task.body, json::object{}, std::nullopt};
}

Work::Acted Steps::act(const Task& task) {
  if (task.kind == "sql") return {run_sql(task), {}};
  if (task.kind == "trainSet") return {make_train_set(task), {}};
  if (task.kind == "ingest") return {ingest(task), {}};
  if (task.kind == "check") return {check(task), {}};
  if (task.kind == "promote") return promote(task);
  if (task.kind == "deploy") return {deploy(task), {}};
  CHECK(task.kind == "gate", "a kind of step that we do ourselves");
  const auto judged = evidence(task);
  const auto verdict = judge(judged.gate, judged.versions, judged.against ? &*judged.against : nullptr);
  json::object outputs{{"model", judged.gate.model},
                       {"version", verdict.version},
                       {"passed", verdict.passed},
                       {"evidence", json::value_from(verdict.evidence)}};
  if (judged.against) outputs["against"] = judged.against->version;
  const auto why = fmt::format("version {}: {}", verdict.version, fmt::join(verdict.evidence, "; "));
  const auto how = verdict.passed                    ? Done::How::succeeded
                   : judged.gate.otherwise == "skip" ? Done::How::refused
                                                     : Done::How::failed;
  return {{how, why, std::move(outputs), "", false}, {}};
}

bool Steps::is_there(const Where& where, std::string_view, const json::value& outputs) {
  const auto* object = outputs.if_object();
  if (!object) return true;
  const auto text = [&](std::string_view key) -> std::string {
    const auto* found = object->if_contains(key);
    return found && found->is_string() ? std::string(found->get_string()) : "";
  };
  try {
    const auto* version = object->if_contains("version");
    if (const auto dataset = text("dataset"); !dataset.empty()) {
      const auto named = data::parse_version_name(dataset);
      if (parts_.datasets.version(where, named.name, named.number).erased) return false;
    }
    if (const auto model = text("model"); !model.empty() && version && version->is_int64())
      parts_.models.version(where, model, version->get_int64());
    if (const auto run = text("run"); !run.empty())
      return parts_.track.run_info(where, run).stage == track::Stage::active;
    return true;
  } catch (const Error& e) {
    if (e.retryable()) throw;
    return false;
  }
}

Spent Steps::spent(const Where& where, const std::vector<std::string>& tickets, std::int64_t since_us) {
  Spent out;
  for (const auto& usage :
       parts_.jobs.usage(where.scope(), jobs::UsageBy::job, since_us, parts_.clock.wall().count() + 1))
    for (const auto& ticket : tickets)
      if (ticket == "job/" + usage.key) {
        out.cpu_hours += usage.cpu_allocated_seconds / 3600;
        out.cost += usage.cost;
      }
  return out;
}

}  // namespace falaj::flow
