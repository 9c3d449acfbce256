// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/bodies.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "lifecycle/flow/gate.h"
#include "lifecycle/jobs/spec.h"

namespace falaj::flow {
namespace {

using Types = std::map<std::string, expr::Type, std::less<>>;

const Types& types_of(std::string_view kind) {
  using expr::Type;
  static const Types kOfJob{{"job", Type::text}, {"run", Type::text}, {"model", Type::text}, {"version", Type::int64}};
  static const Types kOfData{{"dataset", Type::text},
                             {"name", Type::text},
                             {"digest", Type::text},
                             {"version", Type::int64},
                             {"rows", Type::int64}};
  static const Types kOfCheck{{"dataset", Type::text}, {"rules", Type::int64}, {"failed", Type::int64}};
  static const Types kOfGate{
      {"model", Type::text}, {"version", Type::int64}, {"against", Type::int64}, {"passed", Type::boolean}};
  static const Types kOfPromote{{"model", Type::text},
                                {"version", Type::int64},
                                {"alias", Type::text},
                                {"replaced", Type::int64},
                                {"promotion", Type::int64}};
  static const Types kOfDeploy{
      {"endpoint", Type::text}, {"variant", Type::text}, {"version", Type::int64}, {"revision", Type::int64}};
  static const Types kOfApprove{{"by", Type::text}, {"why", Type::text}};
  if (is_job(kind)) return kOfJob;
  if (kind == "check") return kOfCheck;
  if (kind == "gate") return kOfGate;
  if (kind == "promote") return kOfPromote;
  if (kind == "deploy") return kOfDeploy;
  if (kind == "approve") return kOfApprove;
  return kOfData;
}

template <class Body>
Body read(const json::value& body, const std::string& path, Faults& faults) {
  Body out{};
  decode_into(out, body, faults, path);
  return out;
}

void check_job(const json::value& body, const std::string& path, Faults& faults) {
  Faults own;
  const auto spec = read<jobs::JobSpec>(body, "spec", own);
  if (own.empty()) check(spec, own);
  for (const auto& [set, name] : {std::pair(spec.array.has_value(), "array"),
                                  {!spec.deadline.empty(), "deadline"},
                                  {!spec.not_before.empty(), "notBefore"},
                                  {!spec.after.ok.empty() || !spec.after.any.empty(), "after"}})
    if (set) own.push_back({fmt::format("spec.{}", name), "does not go with a step: see matrix, after and timeLimit"});
  if (spec.retries.max > 0) own.push_back({"spec.retries", "belongs to the step, not to its job"});
  if (!spec.run.make) own.push_back({"spec.run.make", "what a step leaves is in its run"});
  for (auto& fault : own) faults.push_back({path + fault.where.substr(4), std::move(fault.what)});
}

std::string untold(const ConditionBody& condition) {
  return fmt::format("higher or lower must be said: the name '{}' does not tell", condition.metric.substr(0, 80));
}

void check_condition_body(const ConditionBody& c, bool against, const std::string& at, Faults& faults) {
  const bool metric = !c.metric.empty(), latency = c.p99_at_most_us.has_value(), drift = c.psi_at_most.has_value();
  if (metric + c.bytes_at_most.has_value() + latency + c.safe + drift != 1)
    faults.push_back({at, "must have one of metric, bytesAtMost, p99AtMost, safe and psiAtMost"});
  if (metric && !c.at_least && !c.at_most && !c.better_by && !c.spread_at_most)
    faults.push_back({at, "needs atLeast, atMost, betterBy or, with slices, spreadAtMost"});
  if (!metric && (c.at_least || c.at_most || c.better_by || !c.run.empty() || !c.slices.empty()))
    faults.push_back({at, "needs a metric"});
  if (c.better_by && !told_better(c)) faults.push_back({at + ".better", untold(c)});
  if (c.spread_at_most && c.slices.empty())
    faults.push_back({at + ".spreadAtMost", "needs 'slices', a column to slice by"});
  if (c.better_by && !against) faults.push_back({at + ".betterBy", "needs 'against', an alias to compare with"});
  if (latency != !c.endpoint.empty()) faults.push_back({at + ".endpoint", "goes with p99AtMost"});
  if (drift != !c.monitor.empty()) faults.push_back({at + ".monitor", "goes with psiAtMost"});
  if (!(c.confidence >= 0.5) || !(c.confidence < 1))
    faults.push_back({at + ".confidence", "must be at least 0.5 and less than 1, such as 0.95"});
}

void check_gate(const json::value& body, const std::string& path, Faults& faults) {
  const auto gate = read<GateBody>(body, path, faults);
  const auto number = [](const json::value& v) { return v.is_int64() && v.get_int64() >= 1; };
  const auto* several = gate.version.if_array();
  if (!gate.version.is_null() && !number(gate.version) &&
      !(several && !several->empty() && std::all_of(several->begin(), several->end(), number)))
    faults.push_back({path + ".version", "must be the number of a version, or several"});
  const auto decides = decided_by(gate);
  if (several && several->size() > 1 && decides && !told_better(gate.conditions[*decides]))
    faults.push_back({fmt::format("{}.conditions[{}].better", path, *decides), untold(gate.conditions[*decides])});
  for (std::size_t i = 0; i < gate.conditions.size(); ++i)
    check_condition_body(gate.conditions[i], !gate.against.empty(), fmt::format("{}.conditions[{}]", path, i), faults);
}

void check_deploy(const json::value& body, const std::string& path, Faults& faults) {
  const auto deploy = read<DeployBody>(body, path, faults);
  if (!deploy.canary && deploy.wait) faults.push_back({path + ".wait", "needs a canary to wait for"});
  if (!deploy.canary) return;
  if (deploy.shadow) faults.push_back({path + ".shadow", "a shadow answers nobody, so it cannot take over"});
  auto rule = *deploy.canary;
  if (auto* object = rule.if_object()) (*object)["variant"] = deploy.variant;
  read<traffic::CanaryRule>(rule, path + ".canary", faults);
}

}  // namespace

void check_body(std::string_view kind, const json::value& body, const std::string& path, const CheckTraining& training,
                Faults& faults) {
  if (kind == "run" || kind == "test") return check_job(body, path, faults);
  if (kind == "train") return training(body, path, faults);
  if (kind == "gate") return check_gate(body, path, faults);
  if (kind == "deploy") return check_deploy(body, path, faults);
  if (kind == "sql") read<SqlBody>(body, path, faults);
  if (kind == "trainSet") read<TrainSetBody>(body, path, faults);
  if (kind == "check") read<CheckBody>(body, path, faults);
  if (kind == "promote") read<PromoteBody>(body, path, faults);
  if (kind == "approve") read<ApproveBody>(body, path, faults);
  if (kind == "ingest") {
    const auto ingest = read<IngestBody>(body, path, faults);
    if (ingest.artifact.empty() == ingest.blob.empty()) faults.push_back({path, "needs either artifact or blob"});
  }
}

json::value in_words(std::string_view kind, json::value body) {
  auto* object = body.if_object();
  if (!object || (kind != "run" && kind != "test")) return body;
  const auto word = [](json::value& value) {
    if (value.is_bool() || value.is_number()) value = json::value(json::serialize(value));
  };
  if (auto* command = object->if_contains("command"); command && command->is_array())
    for (auto& value : command->get_array()) word(value);
  if (auto* environment = object->if_contains("environment"); environment && environment->is_object())
    for (auto& member : environment->get_object()) word(member.value());
  return body;
}

std::optional<expr::Type> output_type(std::string_view kind, const std::vector<std::string>& path) {
  if (is_job(kind) && path.size() >= 2 && path[0] == "metrics") return expr::Type::float64;
  if (is_job(kind) && path.size() >= 2 && path[0] == "tags") return expr::Type::text;
  if (path.size() != 1) return std::nullopt;
  const auto& types = types_of(kind);
  const auto found = types.find(path[0]);
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

std::string outputs_of(std::string_view kind) {
  std::string out;
  for (const auto& entry : types_of(kind)) out += (out.empty() ? "" : ", ") + entry.first;
  return is_job(kind) ? out + ", metrics.NAME, tags.NAME" : out;
}

bool is_job(std::string_view kind) { return kind == "run" || kind == "test" || kind == "train"; }

bool keeps_by_default(std::string_view kind) { return kind != "approve"; }

}  // namespace falaj::flow
