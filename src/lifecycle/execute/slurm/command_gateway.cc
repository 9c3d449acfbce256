// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/execute/slurm/command.h"
#include "lifecycle/execute/slurm/gateway.h"
#include "lifecycle/execute/slurm/wire.h"

namespace falaj::execute::slurm {
namespace {

std::vector<std::string> sbatch_words(const Submission& s) {
  std::vector<std::string> words{"sbatch", "--parsable", "--no-requeue"};
  const auto say = [&](std::string_view option, const auto& value) {
    words.push_back(fmt::format("--{}={}", option, value));
  };
  const auto say_text = [&](std::string_view option, const std::string& value) {
    if (!value.empty()) say(option, value);
  };
  say("job-name", s.name);
  say("comment", s.comment);
  say("chdir", s.directory);
  say("output", s.output);
  say("ntasks", s.tasks);
  say("cpus-per-task", s.cpus_per_task);
  say("nice", s.nice);
  say_text("partition", s.partition);
  say_text("account", s.account);
  say_text("qos", s.qos);
  say_text("gpus-per-task", s.gpus_per_task);
  if (s.memory_mib_per_cpu > 0) say("mem-per-cpu", fmt::format("{}M", s.memory_mib_per_cpu));
  if (s.tasks_per_node > 0) say("ntasks-per-node", s.tasks_per_node);
  if (s.time_limit_minutes > 0) say("time", s.time_limit_minutes);
  if (s.deadline_seconds) say("deadline", fmt::format("now+{}seconds", *s.deadline_seconds));
  if (!s.nodes.empty()) {
    say("nodes", s.nodes.size());
    say("nodelist", join(s.nodes, ","));
  }
  words.push_back(s.script_file);
  return words;
}

// Commands say what is wrong only in words.
bool may_succeed_later(std::string_view errors) {
  for (const auto* text : {"Unable to contact", "timed out", "try again", "Try again", "standby", "Connection refused",
                           "temporarily", "Unspecified error", "Zero Bytes were transmitted"})
    if (errors.find(text) != errors.npos) return true;
  return false;
}

class CommandGateway final : public Gateway {
 public:
  CommandGateway(const Settings& settings, sys::Processes& processes) : settings_(settings), processes_(processes) {}

  // Slurm hands our environment on; it is the least there is, and the task script takes the rest away. --export=NONE
  // would give the job that of a login instead.
  SlurmId submit(const Submission& submission) override {
    const auto result = run(sbatch_words(submission), "submitting a job");
    if (result.status != 0) throw failure("submitting a job", result);
    const auto id = parse_int(trim(split(result.output, ';')[0]));  // "id" or "id;cluster"
    if (!id) throw Error(Code::unavailable, "submitting a job: sbatch printed no job id");
    return *id;
  }

  std::optional<std::vector<Job>> jobs(std::int64_t) override {
    return jobs_of(listed({"squeue", "--json", "--states=all"}, "listing jobs"));
  }

  void signal(SlurmId job, int signal) override {
    // Told to signal a job that waits, scancel itself waits, for minutes.
    const auto state =
        run({"squeue", "--noheader", "--format=%T", "--jobs=" + std::to_string(job)}, "signalling a job");
    if (const auto word = trim(state.output); word == "PENDING" || word == "CONFIGURING")
      throw Error(Code::conflict, "the job waits in Slurm's queue");
    const auto result =
        run({"scancel", "--batch", fmt::format("--signal={}", signal), std::to_string(job)}, "signalling a job");
    if (result.errors.find("can not be altered now") != std::string::npos)
      throw Error(Code::conflict, "the job waits in Slurm's queue");
    require_done("signalling a job", result);
  }

  void cancel(SlurmId job) override {
    require_done("cancelling a job", run({"scancel", std::to_string(job)}, "cancelling a job"));
  }

  std::vector<Node> nodes() override {
    return nodes_of(listed({"sinfo", "--json"}, "listing nodes"), settings_.zone,
                    settings_.isolation == "contained" ? Isolation::contained : Isolation::none);
  }

 private:
  CommandResult run(const std::vector<std::string>& words, std::string_view doing) {
    auto argv = settings_.command_prefix;
    argv.insert(argv.end(), words.begin(), words.end());
    return run_command(processes_, argv, doing, true);
  }

  // squeue and sinfo succeed with an empty list when the controller is away; only `errors` tells.
  json::value listed(const std::vector<std::string>& words, std::string_view doing) {
    const auto result = run(words, doing);
    if (result.status != 0) throw Error(Code::unavailable, failure(doing, result).what());
    json::value answer;
    try {
      answer = parse_json(result.output);
    } catch (const Error& error) {
      throw Error(Code::unavailable, fmt::format("{}: {}", doing, error.what()));
    }
    if (const auto refusal = refusal_of(answer)) throw Error(Code::unavailable, error_of(doing, *refusal).what());
    return answer;
  }

  static Error failure(std::string_view doing, const CommandResult& result) {
    return {may_succeed_later(result.errors) ? Code::unavailable : Code::invalid,
            fmt::format("{}: {}", doing, trim(result.errors).substr(0, 300))};
  }
  static void require_done(std::string_view doing, const CommandResult& result) {
    if (result.status == 0 || result.errors.find("Invalid job id") != std::string::npos ||
        result.errors.find("already complet") != std::string::npos)
      return;
    throw failure(doing, result);
  }

  const Settings settings_;
  sys::Processes& processes_;
};

}  // namespace

std::unique_ptr<Gateway> make_command_gateway(const Settings& settings, sys::Processes& processes) {
  return std::make_unique<CommandGateway>(settings, processes);
}

}  // namespace falaj::execute::slurm
