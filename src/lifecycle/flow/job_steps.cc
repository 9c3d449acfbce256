// SPDX-License-Identifier: Apache-2.0
// Steps that are jobs: run, test, train.

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/crypto/hash.h"
#include "lifecycle/flow/steps.h"
#include "lifecycle/track/artifacts.h"

namespace falaj::flow {
namespace {

constexpr std::string_view kJobTicket = "job/";
constexpr std::size_t kFilesLooked = 10'000, kAdoptedMax = 10'000;

jobs::JobId job_of_ticket(const std::string& ticket) { return jobs::JobId::parse(ticket.substr(kJobTicket.size())); }

// "retrain-train.2" as far as it is a name.
std::string job_name(const Task& task) {
  auto out = lower(fmt::format("{}-{}", task.pipeline, task.step)).substr(0, 63);
  while (!out.empty() && !is_name(out)) out.pop_back();
  return out.empty() ? "step" : out;
}

// Of all files below a name, as the vault knows them: nothing is read.
json::value digest_below(vault::Vault& vault, const Where& where, const std::string& name) {
  crypto::Sha256 all;
  std::size_t found = 0;
  for (const auto& entry : vault.list(where, name, "", kFilesLooked)) {
    const std::string_view rest = std::string_view(entry.name).substr(name.size());
    if (!name.empty() && name.back() != '/' && !rest.empty() && rest[0] != '/') continue;  // of another name
    all.update(as_bytes(fmt::format("{} {}\n", rest, entry.content.hex())));
    ++found;
  }
  if (found == 0) throw Error(Code::not_found, "inputs: there is no such file");
  return json::value(all.finish().hex());
}

}  // namespace

jobs::NewJob Steps::job_of(const Task& task) const {
  jobs::NewJob job;
  if (task.kind == "train")
    job = asks_.training(task.where, task.pipeline, task.body);
  else
    job.spec = decode<jobs::JobSpec>(task.body, task.kind);
  job.name = job_name(task);
  job.labels = {{"pipeline", task.pipeline}, {"pipeline-run", task.run}, {"step", task.step}};
  if (task.retries.max > 0) {
    auto never = std::move(job.spec.retries.not_codes);  // of a training: what is no use is so in a pipeline, too
    job.spec.retries = task.retries;
    if (job.spec.retries.not_codes.empty()) job.spec.retries.not_codes = std::move(never);
  }
  if (task.time_limit_us > 0)
    job.spec.time_limit_us =
        job.spec.time_limit_us > 0 ? std::min(job.spec.time_limit_us, task.time_limit_us) : task.time_limit_us;
  if (job.spec.run.experiment.empty()) job.spec.run.experiment = task.pipeline;
  for (const auto& input : job.spec.inputs)
    if (!input.service.empty())
      throw Error(Code::invalid,
                  "inputs: features of a service are made by a trainSet step, whose outputs.dataset it takes");
  return job;
}

json::value Steps::digest_of_input(const Task& task, const jobs::InputSpec& input) const {
  if (!input.dataset.empty()) {
    const auto named = data::parse_version_name(input.dataset);
    return json::value(parts_.datasets.version(task.where, named.name, named.number).id.hex());
  }
  if (!input.artifact.empty()) {
    const auto slash = input.artifact.find('/');
    const auto path = slash == std::string::npos ? "" : track::checked_artifact_path(input.artifact.substr(slash + 1));
    return digest_below(parts_.vault, task.where, track::run_artifact(input.artifact.substr(0, slash), path));
  }
  if (!input.blob.empty()) return digest_below(parts_.vault, task.where, input.blob);
  return nullptr;  // a text is in the body
}

// Whoever runs something with an input must be allowed to read it, as when a job is submitted.
Settled Steps::settle_job(const Task& task) const {
  require(task, "job.create");
  const auto job = job_of(task);
  const auto& spec = job.spec;
  if (spec.network == "host") require(task, jobs::kUseNetwork);
  if (!spec.run.model.empty()) require(task, "model.write");
  for (const auto& entry : spec.secrets) require(task, "secret.read", scope_of(task, "secret", entry.second));
  Settled out{task.body, nullptr, std::nullopt};
  json::object inputs;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    auto input = spec.inputs[i];
    if (!input.dataset.empty()) {
      const auto version = pinned(task, input.dataset);
      input.dataset = fmt::format("{}@{}", version.dataset, version.number);
      auto& body = out.body.as_object();
      if (task.kind == "train")
        body["data"].as_object()["dataset"] = input.dataset;
      else
        body["inputs"].as_array()[i].as_object()["dataset"] = input.dataset;
    }
    if (!input.artifact.empty()) require(task, "run.read");
    if (!input.blob.empty()) require(task, "blob.read");
    inputs[input.name] = digest_of_input(task, input);
  }
  json::object depends{{"inputs", std::move(inputs)}, {"model", spec.run.model}};
  if (task.kind == "train") depends["program"] = version_;
  out.depends = std::move(depends);
  return out;
}

Work::Job Steps::submit(const Task& task) {
  auto records = parts_.jobs.prepare(task.where, task.owner, {job_of(task)}, [&](std::size_t, const std::string& path) {
    return fmt::format("{}{}", task.kind, path.starts_with("spec") ? path.substr(4) : "." + path);
  });
  const auto ticket = std::string(kJobTicket) + records.at(0).id.str();
  return {ticket, [this, records = std::move(records)](sql::Writer& writer) { parts_.jobs.insert(writer, records); }};
}

// The run of a step's job is a child of the pipeline's. Said once; again after a restart, which changes nothing.
void Steps::adopt(const Task& task, const std::string& run_id) {
  if (run_id.empty() || task.parent.empty()) return;
  {
    Lock lock(mu_);
    if (adopted_.contains(run_id)) return;
  }
  track::Batch batch;
  batch.tags = {{"mlflow.parentRunId", task.parent},
                {"falaj.pipeline", task.pipeline},
                {"falaj.pipeline_run", task.run},
                {"falaj.pipeline_step", task.step}};
  parts_.track.log(task.where, run_id, batch, act_of(task, "run.log"));
  Lock lock(mu_);
  if (adopted_.size() >= kAdoptedMax) adopted_.clear();
  adopted_.insert(run_id);
}

Done Steps::ended(const Task& task, const jobs::Record& record) {
  const auto& life = record.life;
  json::object outputs{{"job", record.id.str()}};
  if (!life.run_id.empty()) {
    const auto run = parts_.track.run(task.where, life.run_id);
    json::object metrics, tags;
    for (const auto& metric : run.metrics) metrics[metric.key] = metric.point.value;
    for (const auto& tag : run.tags)
      if (!tag.key.starts_with("falaj.") && !tag.key.starts_with("mlflow.")) tags[tag.key] = tag.value;
    outputs["run"] = life.run_id;
    outputs["metrics"] = std::move(metrics);
    outputs["tags"] = std::move(tags);
  }
  if (life.phase != jobs::Phase::succeeded) return {Done::How::failed, life.why, std::move(outputs), "", false};
  const auto& model = record.spec->run.model;
  if (model.empty()) return {Done::How::succeeded, "", std::move(outputs), "", false};
  models::Search search;
  search.filter = fmt::format("run_id = '{}'", life.run_id);
  for (const auto& version : parts_.models.search_versions(task.where, search).items)
    if (version.model == model) {
      outputs["model"] = model;
      outputs["version"] = version.number;
    }
  // The job's own words say why there is none.
  if (!outputs.contains("version")) return {Done::How::failed, life.why, std::move(outputs), "", false};
  return {Done::How::succeeded, fmt::format("{} {}", model, outputs.at("version").get_int64()), std::move(outputs), "",
          false};
}

std::optional<Done> Steps::look(const Task& task, const std::string& ticket) {
  if (ticket.starts_with(kCanaryTicket)) return look_at_canary(task, ticket);
  if (ticket.starts_with("promotion/")) {
    const auto promotion = parts_.promotions.get(task.where, parse_int(ticket.substr(10)).value_or(0));
    if (promotion.state == models::PromotionState::pending) return std::nullopt;
    const bool done = promotion.state == models::PromotionState::done;
    json::object outputs{{"model", promotion.model},
                         {"version", promotion.version},
                         {"alias", promotion.alias},
                         {"promotion", promotion.id}};
    if (promotion.replaced) outputs["replaced"] = *promotion.replaced;
    return Done{done ? Done::How::succeeded : Done::How::failed,
                fmt::format("{} by {}{}", done ? "approved" : "rejected", promotion.decided_by,
                            promotion.decision.empty() ? "" : ": " + promotion.decision),
                std::move(outputs), "", false};
  }
  try {
    const auto record = parts_.jobs.job(task.where, job_of_ticket(ticket));
    adopt(task, record.life.run_id);
    if (!jobs::has_ended(record.life.phase)) return std::nullopt;
    return ended(task, record);
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    return Done{Done::How::failed, fmt::format("{} is no more", ticket), {}, "", false};
  }
}

void Steps::stop(const Task& task, const std::string& ticket, const std::string& why) {
  if (ticket.starts_with(kCanaryTicket)) return take_canary_back(task, ticket, why);
  if (!ticket.starts_with(kJobTicket)) return;
  try {
    parts_.database.write(act_of(task, "job.cancel"), [&](sql::Writer& writer) {
      parts_.jobs.wish(writer, task.where, {job_of_ticket(ticket), "cancel", "system/flow"});
    });
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
}

}  // namespace falaj::flow
