// SPDX-License-Identifier: Apache-2.0
#include "api/trainings.h"

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/models/source.h"

namespace falaj::api {
namespace {

constexpr std::string_view kModelFile = "model.onnx";

// "late@champion" or "late/3" as the version that it is now; none where the alias points at nothing yet.
std::optional<models::Version> compared(models::Registry& registry, const models::Where& where,
                                        const std::string& text) {
  const auto cut = text.find_last_of("@/");
  const auto model = text.substr(0, cut), which = cut == std::string::npos ? "" : text.substr(cut + 1);
  if (model.empty() || which.empty())
    throw Error(Code::invalid, fmt::format("compare: must be MODEL@ALIAS or MODEL/VERSION: '{}'", text));
  if (text[cut] == '/') {
    const auto number = parse_int(which);
    if (!number) throw Error(Code::invalid, fmt::format("compare: '{}' is no version", which));
    return registry.version(where, model, *number);
  }
  try {
    for (const auto& alias : registry.model(where, model).aliases)
      if (alias.alias == which) return registry.version(where, model, alias.version);
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;  // the first of its model
  }
  return std::nullopt;
}

// The file that a version's run left, which is what was registered.
std::string file_of(const models::Version& version) {
  const auto source = models::parse_source(version.source);
  if (source.kind != models::Source::Kind::run)
    throw Error(Code::invalid,
                fmt::format("compare: {}/{} was not left by a run of this project", version.model, version.number));
  return fmt::format("{}/{}{}{}", source.id, source.path, source.path.empty() ? "" : "/", kModelFile);
}

}  // namespace

jobs::NewJob job_of_training(models::Registry& registry, const models::Where& where, std::string name,
                             std::map<std::string, std::string> labels, recipe::Training training) {
  jobs::NewJob job;
  jobs::InputSpec against;
  if (!training.compare.empty()) {
    const auto version = compared(registry, where, training.compare);
    training.compare = version ? fmt::format("{}/{}", version->model, version->number) : "";
    if (version) against.artifact = file_of(*version);
  }
  auto& spec = job.spec;
  const auto& asked = training.resources;
  spec.command = {kTrainer};
  spec.cpus = asked.cpus;
  spec.memory_bytes = asked.memory_bytes;
  spec.tasks = asked.tasks + training.parallel.spares;
  spec.tasks_min = asked.tasks_min;
  spec.spares = training.parallel.spares;
  spec.gpus = asked.gpus;
  spec.queue = asked.queue;
  spec.priority_class = asked.priority_class;
  spec.executor = asked.executor;
  spec.time_limit_us = asked.time_limit_us;
  spec.preemptible = asked.preemptible;
  spec.grace_us = asked.grace_us;
  spec.disk_bytes = asked.disk_bytes;
  spec.checkpoint.store_us = training.checkpoints.store_us;
  // Whatever kills a task, there is a checkpoint to go on from; of a gang, one may be lost with its node. A recipe or
  // data that are refused are refused again.
  spec.retries = {asked.retries.value_or(spec.tasks > 1 ? 10 : 3), 1'000'000, 600'000'000, {kTrainerRefused}};
  jobs::InputSpec rows;
  rows.name = "data";
  rows.dataset = training.data.dataset;
  rows.service = training.data.service;
  rows.spine = training.data.spine;
  jobs::InputSpec recipe;
  recipe.name = "training";
  recipe.text = json::serialize(encode(training));
  spec.inputs = {std::move(rows), std::move(recipe)};
  against.name = "against";
  if (!against.artifact.empty()) spec.inputs.push_back(std::move(against));
  spec.run.experiment = training.experiment.empty() ? name : training.experiment;
  spec.run.model = training.registered.model.empty() ? name : training.registered.model;
  spec.run.alias = training.registered.alias;
  job.labels = std::move(labels);
  job.name = std::move(name);
  return job;
}

jobs::NewJob job_of_training_body(models::Registry& registry, const models::Where& where, const std::string& name,
                                  const json::value& body) {
  Faults faults;
  check_training_body(body, "train", faults);
  refuse_if_any("training", std::move(faults));
  return job_of_training(registry, where, name, {}, decode<recipe::Training>(body, "training"));
}

void check_training_body(const json::value& body, const std::string& path, Faults& faults) {
  Faults own;
  recipe::Training training;
  decode_into(training, body, own, "spec");
  if (own.empty()) check(training, own);
  for (auto& fault : own) faults.push_back({path + fault.where.substr(4), std::move(fault.what)});
}

void register_run_model(models::Registry& registry, const models::Where& where, const std::string& run_id,
                        const std::string& model, const std::string& alias) {
  const auto act = [&](std::string_view verb) {
    return sql::Act{"system/jobs", std::string(verb), where.scope().str(), ""};
  };
  try {
    registry.create_model(where, model, {}, "", act("model.create"));
  } catch (const Error& e) {
    if (e.code() != Code::exists) throw;
  }
  const auto source = fmt::format("runs:/{}/model", run_id);
  models::Search search;
  search.filter = fmt::format("run_id = '{}'", run_id);
  std::optional<models::Version> version;
  for (const auto& found : registry.search_versions(where, search).items)
    if (found.model == model && found.source == source) version = found;
  if (!version)
    version = registry.create_version(where, {model, source, run_id, "", "", "", {}}, act("model.version.create"));
  if (!alias.empty()) registry.set_alias(where, model, alias, version->number, act("model.alias"));
}

}  // namespace falaj::api
