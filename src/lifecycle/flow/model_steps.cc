// SPDX-License-Identifier: Apache-2.0
// Steps that decide about models and bring them where they are used: gate, promote, deploy.

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "lifecycle/flow/model_files.h"
#include "lifecycle/flow/steps.h"

namespace falaj::flow {
namespace {

constexpr std::size_t kHistoryLooked = 20;

std::optional<std::int64_t> pointed_at(const models::Model& model, const std::string& alias) {
  for (const auto& one : model.aliases)
    if (one.alias == alias) return one.version;
  return std::nullopt;
}

// What a canary's variant is called: after its version, so that the next one begins anew at its first step.
std::string variant_name(const DeployBody& body) {
  return body.canary ? fmt::format("{}-{}", body.variant, body.version).substr(0, 63) : body.variant;
}

bool is_canary(const serving::EndpointSpec& spec, const std::string& variant) {
  return spec.canary && spec.canary->variant == variant;
}

// A canary that was rolled back answers nobody: it may be tried again.
bool serves(const serving::EndpointSpec& spec, const DeployBody& body) {
  return std::any_of(spec.variants.begin(), spec.variants.end(), [&](const serving::VariantSpec& variant) {
    if (variant.model != body.model || variant.version != body.version || variant.shadow != body.shadow) return false;
    return body.canary ? variant.weight > 0 || is_canary(spec, variant.name) : variant.name == body.variant;
  });
}

serving::EndpointSpec with_variant(serving::EndpointSpec spec, const DeployBody& body) {
  const auto name = variant_name(body);
  serving::VariantSpec variant;
  variant.name = name;
  variant.model = body.model;
  variant.version = body.version;
  variant.shadow = body.shadow;
  auto& all = spec.variants;
  if (!body.canary || all.empty()) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const auto& v) { return v.name == name; });
    if (same == all.end()) {
      all.push_back(variant);
      return spec;
    }
    variant.weight = same->weight;
    variant.match = same->match;
    *same = std::move(variant);
    return spec;
  }
  // A canary that is under way gives way; those that answer nobody any more are not held on to.
  const auto baseline = spec.experiment ? spec.experiment->baseline : "";
  const auto before = spec.canary ? spec.canary->variant : "";
  const auto goes = [&](const serving::VariantSpec& v) {
    return !v.shadow && v.name != baseline && (v.name == before || v.name == name || v.weight == 0);
  };
  const bool some_stay = std::any_of(all.begin(), all.end(), [&](const auto& v) { return !goes(v) && !v.shadow; });
  if (some_stay) all.erase(std::remove_if(all.begin(), all.end(), goes), all.end());
  variant.weight = 0;  // its first share is given by who watches it
  all.push_back(variant);
  auto rule = body.canary->as_object();
  rule["variant"] = name;
  spec.canary = decode<traffic::CanaryRule>(rule, "canary");
  return spec;
}

Done deployed(const resource::Stored& stored, const DeployBody& body, std::string why) {
  const auto variant = variant_name(body);
  Done out{Done::How::succeeded, std::move(why),
           json::object{{"endpoint", body.endpoint},
                        {"variant", variant},
                        {"model", body.model},
                        {"version", body.version},
                        {"revision", stored.revision}},
           "", false};
  if (body.wait && is_canary(decode<serving::EndpointSpec>(stored.resource.spec, "endpoint"), variant)) {
    out.how = Done::How::goes_on;
    out.ticket = fmt::format("{}{}/{}", kCanaryTicket, body.endpoint, variant);
  }
  return out;
}

}  // namespace

// ---- gate

std::map<std::string, double> Steps::metrics_of(const Where& where, const std::string& run_id) const {
  std::map<std::string, double> out;
  if (run_id.empty()) return out;
  const auto run = parts_.track.run(where, run_id);
  for (const auto& metric : run.metrics) out[metric.key] = metric.point.value;
  return out;
}

VersionSeen Steps::seen_of(const Task& task, const GateBody& gate, std::int64_t number) const {
  const auto version = parts_.models.version(task.where, gate.model, number);
  VersionSeen out;
  out.version = number;
  out.metrics = metrics_of(task.where, version.run_id.empty() ? version.origin_run : version.run_id);
  for (const auto& condition : gate.conditions) {
    if (!condition.run.empty()) out.metrics_of[condition.run] = metrics_of(task.where, condition.run);
    if (!condition.endpoint.empty())
      out.latency[condition.endpoint] = latency_of(task, condition.endpoint, gate.model, number);
    if (!condition.monitor.empty() && !out.drift.contains(condition.monitor))
      out.drift[condition.monitor] = asks_.drift(task.where, condition.monitor, gate.model, number);
    if (condition.safe && !out.files) out.files = look_at_files(parts_.models, parts_.vault, task.where, version);
  }
  for (const auto& entry : parts_.models.files(task.where, version.model_row, number, ""))
    out.bytes += static_cast<std::int64_t>(entry.bytes);
  return out;
}

// Of several servers the slowest counts. Servers tell of variants; the plan, of which model they are.
LatencySeen Steps::latency_of(const Task& task, const std::string& endpoint, const std::string& model,
                              std::int64_t version) const {
  LatencySeen out;
  std::set<std::string> names;
  const auto current = parts_.endpoints.current();
  for (const auto& served : current.plan->endpoints)
    if (served.tenant == task.where.tenant.str() && served.project == task.where.project.str() &&
        served.name == endpoint)
      for (const auto& variant : served.variants)
        if (variant.model == model && variant.version == version) names.insert(variant.name);
  for (const auto& report : parts_.endpoints.reports())
    for (const auto& variant : report.variants) {
      if (variant.tenant != task.where.tenant.str() || variant.project != task.where.project.str() ||
          variant.endpoint != endpoint || variant.version != version || !names.contains(variant.variant) ||
          variant.requests == 0)
        continue;
      out.p99_us = std::max(out.p99_us, variant.p99_us);
      out.requests += variant.requests;
    }
  return out;
}

Steps::Judged Steps::evidence(const Task& task) const {
  Judged out;
  out.gate = decode<GateBody>(task.body, "gate");
  std::set<std::int64_t> numbers;
  if (const auto* several = out.gate.version.if_array())
    for (const auto& one : *several) numbers.insert(one.as_int64());
  else
    numbers.insert(out.gate.version.as_int64());
  for (const auto number : numbers) out.versions.push_back(seen_of(task, out.gate, number));
  if (out.gate.against.empty()) return out;
  if (const auto champion = pointed_at(parts_.models.model(task.where, out.gate.model), out.gate.against))
    out.against = seen_of(task, out.gate, *champion);
  return out;
}

Settled Steps::settle_gate(const Task& task) const {
  require(task, "model.read");
  require(task, "run.read");
  const auto gate = decode<GateBody>(task.body, "gate");
  for (const auto& condition : gate.conditions)
    if (!condition.monitor.empty()) require(task, "monitor.read", scope_of(task, "monitor", condition.monitor));
  Faults faults;
  check_body("gate", task.body, "gate", {}, faults);
  refuse_if_any("gate", std::move(faults));
  const auto judged = evidence(task);
  Settled out{task.body, nullptr, std::nullopt};
  const auto verdict = judge(judged.gate, judged.versions, judged.against ? &*judged.against : nullptr);
  if (judged.against && verdict.passed && verdict.version == judged.against->version) {
    out.already = Done{Done::How::succeeded,
                       fmt::format("version {} is {} already", judged.against->version, judged.gate.against),
                       json::object{{"model", judged.gate.model},
                                    {"version", judged.against->version},
                                    {"against", judged.against->version},
                                    {"passed", true},
                                    {"evidence", json::value_from(verdict.evidence)}},
                       "", false};
    return out;
  }
  // The same evidence gives the same answer.
  const auto words = [](const VersionSeen& seen) {
    json::object of_runs, latency, drift;
    for (const auto& [run, metrics] : seen.metrics_of) of_runs[run] = json::value_from(metrics);
    for (const auto& [endpoint, one] : seen.latency) latency[endpoint] = json::array{one.p99_us, one.requests};
    for (const auto& [monitor, one] : seen.drift) drift[monitor] = json::array{one.column, one.psi, one.noise};
    return json::object{{"version", seen.version},
                        {"metrics", json::value_from(seen.metrics)},
                        {"runs", std::move(of_runs)},
                        {"bytes", seen.bytes},
                        {"latency", std::move(latency)},
                        {"drift", std::move(drift)},
                        {"files", seen.files ? seen.files->said : ""}};
  };
  json::array versions;
  for (const auto& version : judged.versions) versions.push_back(words(version));
  out.depends = json::object{{"versions", std::move(versions)},
                             {"against", judged.against ? json::value(words(*judged.against)) : json::value()}};
  return out;
}

// ---- promote

Settled Steps::settle_promote(const Task& task) const {
  const auto body = decode<PromoteBody>(task.body, "promote");
  require(task, "model.write", scope_of(task, "model", body.model));
  parts_.models.version(task.where, body.model, body.version);
  Settled out{task.body, nullptr, std::nullopt};
  if (pointed_at(parts_.models.model(task.where, body.model), body.alias) == body.version)
    out.already =
        Done{Done::How::succeeded, fmt::format("{} of {} is version {} already", body.alias, body.model, body.version),
             json::object{{"model", body.model}, {"version", body.version}, {"alias", body.alias}}, "", false};
  return out;
}

Work::Acted Steps::promote(const Task& task) const {
  const auto body = decode<PromoteBody>(task.body, "promote");
  require(task, "model.write", scope_of(task, "model", body.model));
  models::NewPromotion wanted{
      body.model, body.version, body.alias,
      body.why.empty() ? fmt::format("pipeline {}, step {}", task.pipeline, task.step) : body.why, task.evidence};
  // What it says must be right before the write: from there on it is done whole or not at all.
  if (canonical(wanted.evidence).size() > models::kEvidenceBytesMax)
    wanted.evidence = json::object{{"pipeline", task.pipeline}, {"pipeline_run", task.run}, {"run", task.parent}};
  const auto within = [this, task, wanted](sql::Writer& writer) -> Done {
    try {
      const auto made = parts_.promotions.promote(writer, task.where, wanted, task.owner);
      json::object outputs{
          {"model", made.model}, {"version", made.version}, {"alias", made.alias}, {"promotion", made.id}};
      if (made.replaced) outputs["replaced"] = *made.replaced;
      if (made.state == models::PromotionState::pending)
        return {Done::How::asks, fmt::format("promotion {} waits for somebody's consent", made.id), std::move(outputs),
                fmt::format("promotion/{}", made.id), false};
      return {Done::How::succeeded, fmt::format("{} of {} is version {}", made.alias, made.model, made.version),
              std::move(outputs), "", false};
    } catch (const Error& e) {
      if (e.retryable()) throw;
      return {Done::How::failed, e.what(), {}, "", false};  // all its checks come before what it writes
    }
  };
  return {{}, within};
}

// ---- deploy

Settled Steps::settle_deploy(const Task& task) const {
  const auto body = decode<DeployBody>(task.body, "deploy");
  parts_.models.version(task.where, body.model, body.version);
  Settled out{task.body, nullptr, std::nullopt};
  try {
    const auto stored =
        parts_.resources.get({"Endpoint", task.where.tenant.str(), task.where.project.str(), body.endpoint});
    const auto done = deployed(stored, body, fmt::format("{} has version {} already", body.endpoint, body.version));
    if (serves(decode<serving::EndpointSpec>(stored.resource.spec, "endpoint"), body) &&
        done.how == Done::How::succeeded)
      out.already = done;
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  return out;
}

// Done again after a kill it finds the variant there, and changes nothing.
Done Steps::deploy(const Task& task) const {
  const auto body = decode<DeployBody>(task.body, "deploy");
  const resource::Key key{"Endpoint", task.where.tenant.str(), task.where.project.str(), body.endpoint};
  json::object metadata{{"tenant", key.tenant}, {"project", key.project}, {"name", key.name}};
  serving::EndpointSpec spec;
  try {
    const auto stored = parts_.resources.get(key);
    spec = decode<serving::EndpointSpec>(stored.resource.spec, "endpoint");
    if (serves(spec, body)) return deployed(stored, body, fmt::format("{} has version {}", key.name, body.version));
    metadata = stored.resource.body().as_object().at("metadata").as_object();
    metadata["revision"] = stored.revision;  // what changed meanwhile must not be undone unseen
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    metadata["revision"] = std::int64_t{0};
  }
  spec = with_variant(std::move(spec), body);
  const resource::Document documents[] = {
      resource::json_document("step " + task.step, json::object{{"apiVersion", resource::kApiVersion},
                                                                {"kind", "Endpoint"},
                                                                {"metadata", std::move(metadata)},
                                                                {"spec", encode(spec)}})};
  auto act = act_of(task, "");
  act.resource = "";
  parts_.resources.apply(act, documents, authorise(task));
  return deployed(parts_.resources.get(key), body,
                  fmt::format("{} has version {}{}", key.name, body.version, spec.canary ? " as a canary" : ""));
}

// ---- a canary that a step waits for: "canary/ENDPOINT/VARIANT"

std::optional<Done> Steps::look_at_canary(const Task& task, const std::string& ticket) const {
  const auto slash = ticket.find('/', kCanaryTicket.size());
  const auto endpoint = ticket.substr(kCanaryTicket.size(), slash - kCanaryTicket.size());
  const auto variant = ticket.substr(slash + 1);
  const auto failed = [](std::string why) { return Done{Done::How::failed, std::move(why), {}, "", false}; };
  try {
    const auto stored = parts_.resources.get({"Endpoint", task.where.tenant.str(), task.where.project.str(), endpoint});
    const auto spec = decode<serving::EndpointSpec>(stored.resource.spec, "endpoint");
    if (is_canary(spec, variant)) return std::nullopt;
    const auto found = std::find_if(spec.variants.begin(), spec.variants.end(),
                                    [&](const serving::VariantSpec& v) { return v.name == variant; });
    if (found != spec.variants.end() && found->weight > 0)
      return Done{Done::How::succeeded, fmt::format("{} has taken over {}", variant, endpoint), {}, "", false};
    for (const auto& served : parts_.endpoints.history(task.where, endpoint, kHistoryLooked))
      if (served.why.find(variant) != std::string::npos)
        return failed(fmt::format("{} answers nobody any more: {}", variant, served.why));
    return failed(fmt::format("{} answers nobody any more", variant));
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    return failed(fmt::format("endpoint {} is no more", endpoint));
  }
}

// What a run that is stopped had begun to put in place goes.
void Steps::take_canary_back(const Task& task, const std::string& ticket, const std::string& why) const {
  const auto slash = ticket.find('/', kCanaryTicket.size());
  const auto endpoint = ticket.substr(kCanaryTicket.size(), slash - kCanaryTicket.size());
  const auto variant = ticket.substr(slash + 1);
  try {
    const auto stored = parts_.resources.get({"Endpoint", task.where.tenant.str(), task.where.project.str(), endpoint});
    auto spec = decode<serving::EndpointSpec>(stored.resource.spec, "endpoint");
    if (!is_canary(spec, variant)) return;
    spec.canary.reset();
    for (auto& one : spec.variants)
      if (one.name == variant) one.weight = 0;
    auto metadata = stored.resource.body().as_object().at("metadata").as_object();
    metadata["revision"] = stored.revision;
    const resource::Document documents[] = {
        resource::json_document("step " + task.step + ": " + why, json::object{{"apiVersion", resource::kApiVersion},
                                                                               {"kind", "Endpoint"},
                                                                               {"metadata", std::move(metadata)},
                                                                               {"spec", encode(spec)}})};
    auto act = act_of(task, "");
    act.resource = "";
    parts_.resources.apply(act, documents, authorise(task));
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
}

}  // namespace falaj::flow
