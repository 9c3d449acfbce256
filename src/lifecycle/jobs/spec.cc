// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/jobs/spec.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/id.h"

namespace falaj::jobs {
namespace {

constexpr std::size_t kCommandBytesMax = 128 * 1024, kEnvironmentBytesMax = 256 * 1024;
// What we set ourselves, so that a job can rely on it.
constexpr std::string_view kOurs[] = {"FALAJ_", "MLFLOW_TRACKING_"};
constexpr std::string_view kOfTasks[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

void check_command(const JobSpec& spec, Faults& faults) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < spec.command.size(); ++i) {
    bytes += spec.command[i].size() + 1;
    if (!is_command_word(spec.command[i]))
      faults.push_back({fmt::format("spec.command[{}]", i), "must not hold a zero byte"});
  }
  if (!spec.command.empty() && spec.command[0].empty()) faults.push_back({"spec.command[0]", "must name a program"});
  if (bytes > kCommandBytesMax)
    faults.push_back({"spec.command", fmt::format("has {} bytes; at most {}", bytes, kCommandBytesMax)});
}

bool is_ours(std::string_view key) {
  return std::any_of(std::begin(kOurs), std::end(kOurs), [&](std::string_view p) { return key.starts_with(p); }) ||
         std::find(std::begin(kOfTasks), std::end(kOfTasks), key) != std::end(kOfTasks);
}

void check_environment(const JobSpec& spec, Faults& faults) {
  std::size_t bytes = 0;
  for (const auto& [key, value] : spec.environment) {
    bytes += key.size() + value.size() + 2;
    const auto at = fmt::format("spec.environment.{}", key.substr(0, 64));
    if (!is_variable(key)) faults.push_back({at, "must be letters, digits and '_', not beginning with a digit"});
    if (!is_command_word(value)) faults.push_back({at, "must not hold a zero byte"});
    if (is_ours(key)) faults.push_back({at, "is set by the platform"});
  }
  for (const auto& [key, name] : spec.secrets) {
    const auto at = fmt::format("spec.secrets.{}", key.substr(0, 64));
    if (!is_variable(key)) faults.push_back({at, "must be letters, digits and '_', not beginning with a digit"});
    if (!is_name(name)) faults.push_back({at, fmt::format("must name a secret: {}", kNameRule)});
    if (spec.environment.contains(key)) faults.push_back({at, "is in spec.environment too"});
    if (is_ours(key)) faults.push_back({at, "is set by the platform"});
  }
  if (bytes > kEnvironmentBytesMax)
    faults.push_back({"spec.environment", fmt::format("has {} bytes; at most {}", bytes, kEnvironmentBytesMax)});
}

void check_amounts(const JobSpec& spec, Faults& faults) {
  if (spec.cpus < 0.01) faults.push_back({"spec.cpus", fmt::format("must be at least 0.01, not {}", spec.cpus)});
  if (spec.gpus > 1 && spec.gpus != std::floor(spec.gpus))
    faults.push_back({"spec.gpus", fmt::format("must be whole, or a share below 1, not {}", spec.gpus)});
  if (spec.gpus > 0 && spec.gpus < 0.01) faults.push_back({"spec.gpus", "a share must be at least 0.01"});
  if (spec.gpus == 0 && !spec.gpu_type.empty()) faults.push_back({"spec.gpuType", "needs spec.gpus"});
  if (spec.tasks_min && *spec.tasks_min > spec.tasks)
    faults.push_back({"spec.tasksMin", fmt::format("must be at most spec.tasks, {}", spec.tasks)});
  if (spec.spares >= spec.tasks)
    faults.push_back({"spec.spares", fmt::format("must be below spec.tasks, {}", spec.tasks)});
  if (spec.spares > 0 && spec.tasks_min && *spec.tasks_min < spec.tasks)
    faults.push_back({"spec.spares", "does not go with tasksMin: an elastic job goes on with what is left"});
}

void check_times(const JobSpec& spec, Faults& faults) {
  for (const auto& [text, at] : {std::pair(&spec.deadline, "spec.deadline"), {&spec.not_before, "spec.notBefore"}})
    if (!text->empty() && !parse_time(*text))
      faults.push_back({at, fmt::format("must be a time such as 2026-01-31T12:00:00Z, not '{}'", text->substr(0, 40))});
  for (std::size_t i = 0; i < spec.retries.not_codes.size(); ++i)
    if (const auto code = spec.retries.not_codes[i]; code < 1 || code > 255)
      faults.push_back({fmt::format("spec.retries.not[{}]", i), fmt::format("must be 1 to 255, not {}", code)});
  if (spec.time_limit_us > 0 && spec.expected_us > spec.time_limit_us)
    faults.push_back({"spec.expected", "is longer than spec.timeLimit"});
}

void check_inputs(const JobSpec& spec, Faults& faults) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    const auto& input = spec.inputs[i];
    const auto at = fmt::format("spec.inputs[{}]", i);
    if (!seen.insert(input.name).second)
      faults.push_back({at + ".name", fmt::format("'{}' is there twice", input.name)});
    const int given = !input.dataset.empty() + !input.artifact.empty() + !input.blob.empty() + !input.text.empty() +
                      !input.service.empty();
    if (given != 1) faults.push_back({at, "must have one of dataset, artifact, blob, text and service"});
    if (input.service.empty() != input.spine.empty()) faults.push_back({at + ".spine", "goes with service"});
  }
}

void check_after(const JobSpec& spec, Faults& faults) {
  for (const auto& [list, at] : {std::pair(&spec.after.ok, "spec.after.ok"), {&spec.after.any, "spec.after.any"}})
    for (std::size_t i = 0; i < list->size(); ++i) {
      try {
        parse_id((*list)[i]);
      } catch (const Error&) {
        faults.push_back({fmt::format("{}[{}]", at, i),
                          fmt::format("must be the id of a job, or the name of one submitted with it, not '{}'",
                                      (*list)[i].substr(0, 40))});
      }
    }
}

}  // namespace

bool is_command_word(std::string_view text) { return text.find('\0') == std::string_view::npos; }

bool is_variable(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && text.size() <= 256 && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

void check(const JobSpec& spec, Faults& faults) {
  check_command(spec, faults);
  check_environment(spec, faults);
  check_amounts(spec, faults);
  check_times(spec, faults);
  check_inputs(spec, faults);
  check_after(spec, faults);
  if (!spec.run.make && !spec.run.model.empty())
    faults.push_back({"spec.run.model", "needs a run: the model is one of its files"});
  if (spec.run.model.empty() && !spec.run.alias.empty()) faults.push_back({"spec.run.alias", "needs spec.run.model"});
}

}  // namespace falaj::jobs
