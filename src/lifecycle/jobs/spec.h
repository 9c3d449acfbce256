// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a person says of a job: `kind: Job` in a file, or the flags of `falaj submit`.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"
#include "foundation/base/text.h"

namespace falaj::jobs {

// How often a job that failed is tried again, and after how long: doubling, up to a bound.
struct RetrySpec {
  std::int64_t max = 0;
  std::int64_t backoff_us = 10'000'000, backoff_max_us = 600'000'000;
  std::vector<std::int64_t> not_codes = {};  // exit codes after which it is not
};

// The same command many times, told apart by FALAJ_ARRAY_INDEX.
struct ArraySpec {
  std::int64_t count = 0;
  std::int64_t parallel = 0;  // at most so many at once; 0 = as many as there is room for
};

// Jobs that must have ended before it begins.
struct AfterSpec {
  std::vector<std::string> ok, any;
};

// Something the job reads, put at $FALAJ_INPUTS/<name>, read-only.
struct InputSpec {
  std::string name;
  std::string dataset;         // "flights@3"
  std::string artifact;        // "RUN_ID/path"
  std::string blob;            // a name in the project
  std::string text;            // itself; the file is called "text"
  std::string service, spine;  // features of a service for the rows of a dataset; a dataset once it is submitted
};

struct NodesSpec {
  std::map<std::string, std::string> labels, not_labels;
  std::vector<std::string> zones;  // none = the project's
  std::string layout = "pack";
};

// Where what the job logs and leaves goes.
struct RunSpec {
  bool make = true;
  std::string experiment;  // "" = the default one
  std::string model;       // a registered model that gets a version when the job has succeeded
  std::string alias;       // that then points at it
};

// What becomes of $FALAJ_CHECKPOINT_DIR besides being there for the next attempt.
struct CheckpointSpec {
  std::int64_t store_us = 0;  // how often a copy goes into the blob store; 0 = never
};

struct JobSpec {
  std::vector<std::string> command;
  std::int64_t tasks = 1;
  std::optional<std::int64_t> tasks_min;  // fewer are enough to begin with
  std::int64_t spares = 0;                // so many of the tasks may be lost while the others go on
  std::optional<ArraySpec> array;

  // Of each task.
  double cpus = 1;
  std::int64_t memory_bytes = std::int64_t{1} << 30;
  std::int64_t disk_bytes = 0;
  double gpus = 0;
  std::string gpu_type;
  std::int64_t processes = 0;

  std::string queue = "default";
  std::string priority_class;
  std::string executor;
  std::string deadline, not_before;  // RFC 3339
  std::int64_t expected_us = 0;      // how long it probably runs; 0 = learned from history
  std::int64_t time_limit_us = 0;
  RetrySpec retries;
  bool preemptible = false;
  std::int64_t grace_us = 30'000'000;
  CheckpointSpec checkpoint;
  NodesSpec nodes;
  AfterSpec after;

  std::string image;
  std::string network = "none";
  std::string isolation;  // at least this; "" = what the server asks for
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> secrets;  // variable: name of the secret
  std::vector<InputSpec> inputs;
  RunSpec run;
};

// What no single field can tell. Paths begin with "spec".
void check(const JobSpec& spec, Faults& faults);

// A job as it is submitted.
struct NewJob {
  std::string name;
  std::map<std::string, std::string> labels;
  JobSpec spec;
};

inline constexpr std::string_view kLayouts[] = {"pack", "spread"};
inline constexpr std::string_view kNetworks[] = {"none", "host"};
inline constexpr std::string_view kIsolations[] = {"", "none", "restricted", "contained", "isolated"};
inline constexpr std::int64_t kSecondUs = 1'000'000, kYearUs = std::int64_t{366} * 86'400 * kSecondUs;
inline constexpr std::int64_t kArrayMax = 100'000, kTasksMax = 10'000;

// What it takes to submit a job with network: host.
inline constexpr std::string_view kUseNetwork = "network.run";

bool is_command_word(std::string_view text);
bool is_variable(std::string_view text);

}  // namespace falaj::jobs

namespace falaj {

template <>
struct Shape<jobs::RetrySpec> {
  using T = jobs::RetrySpec;
  static constexpr std::string_view name = "RetrySpec";
  static Fields fields() {
    return {
        field("max", &T::max, "How often a job that failed is tried again.").range(0, 1000),
        field("backoff", &T::backoff_us, "Wait before the first retry; doubles with each.")
            .duration()
            .range(0, jobs::kYearUs),
        field("backoffMax", &T::backoff_max_us, "Longest wait.").duration().range(0, jobs::kYearUs),
        field("not", &T::not_codes, "Exit codes after which it is not: the next try would end alike.").length(0, 255)};
  }
};
template <>
struct Shape<jobs::ArraySpec> {
  using T = jobs::ArraySpec;
  static constexpr std::string_view name = "ArraySpec";
  static Fields fields() {
    return {field("count", &T::count, "How many; each has its FALAJ_ARRAY_INDEX, from 0.")
                .required()
                .range(1, jobs::kArrayMax),
            field("parallel", &T::parallel, "At most so many at once; 0 = as many as there is room for.")
                .range(0, jobs::kArrayMax)};
  }
};
template <>
struct Shape<jobs::AfterSpec> {
  using T = jobs::AfterSpec;
  static constexpr std::string_view name = "AfterSpec";
  static Fields fields() {
    return {
        field("ok", &T::ok,
              "Jobs or arrays that must have succeeded; when one did not, this one fails. By id, or by the name of "
              "one that is submitted in the same call.")
            .length(0, 1000),
        field("any", &T::any, "Jobs or arrays that must have ended, however; named in the same way.").length(0, 1000)};
  }
};
template <>
struct Shape<jobs::InputSpec> {
  using T = jobs::InputSpec;
  static constexpr std::string_view name = "InputSpec";
  static Fields fields() {
    return {field("name", &T::name, "It is at $FALAJ_INPUTS/NAME.").required().text({is_name, kNameRule}),
            field("dataset", &T::dataset, "A dataset's version: flights@3; without @ the newest when it is submitted."),
            field("artifact", &T::artifact, "A run's file or directory: RUN_ID/path."),
            field("blob", &T::blob, "A blob of the project, by name."),
            field("text", &T::text, "A text itself: the file is called text.").length(0, 1 << 20),
            field("service", &T::service, "A feature service: its features for the rows of spine become a dataset.")
                .length(0, 256),
            field("spine", &T::spine, "A dataset's version: the rows that get features.").length(0, 256)};
  }
};
template <>
struct Shape<jobs::NodesSpec> {
  using T = jobs::NodesSpec;
  static constexpr std::string_view name = "NodesSpec";
  static Fields fields() {
    return {field("labels", &T::labels, "Only nodes with all of these.").length(0, 64),
            field("notLabels", &T::not_labels, "Only nodes with none of these.").length(0, 64),
            field("zones", &T::zones, "Only nodes in these zones; the project's zone when absent.")
                .length(0, 64)
                .text({is_name, kNameRule}),
            field("layout", &T::layout, "pack: on few nodes; spread: on many.").one_of(jobs::kLayouts)};
  }
};
template <>
struct Shape<jobs::RunSpec> {
  using T = jobs::RunSpec;
  static constexpr std::string_view name = "JobRunSpec";
  static Fields fields() {
    return {field("make", &T::make, "Whether it is a tracked run, which keeps what is put into $FALAJ_OUTPUTS."),
            field("experiment", &T::experiment, "Of the run, by name; made when missing.").length(0, 500),
            field("model", &T::model,
                  "What is in $FALAJ_OUTPUTS/model becomes a version of this model when it has succeeded.")
                .length(0, 256),
            field("alias", &T::alias, "Points at the new version then.").length(0, 256)};
  }
};
template <>
struct Shape<jobs::CheckpointSpec> {
  using T = jobs::CheckpointSpec;
  static constexpr std::string_view name = "CheckpointSpec";
  static Fields fields() {
    return {field("store", &T::store_us,
                  "How often a copy goes into the blob store while it runs, and when an attempt ended; 0 = never. "
                  "An attempt that finds the directory empty gets it back.")
                .duration()
                .range(0, jobs::kYearUs)};
  }
};
template <>
struct Shape<jobs::JobSpec> {
  using T = jobs::JobSpec;
  static constexpr std::int64_t kBytesMax = std::int64_t{1} << 50;
  static constexpr std::string_view name = "JobSpec";
  static Fields fields() {
    return {
        field("command", &T::command, "What runs, word by word; no shell.").required().length(1, 1000),
        field("tasks", &T::tasks, "Processes that start together, all or none.").range(1, jobs::kTasksMax),
        field("tasksMin", &T::tasks_min, "So many are enough to begin with: the job is elastic.")
            .range(1, jobs::kTasksMax),
        field("spares", &T::spares,
              "So many of its tasks may be killed while the others go on: they must be able to do without.")
            .range(0, jobs::kTasksMax),
        field("array", &T::array, "The same job many times."),
        field("cpus", &T::cpus, "Processors of each task, such as 0.5 or 4.").range(0, 100'000),
        field("memory", &T::memory_bytes, "Memory of each task.").bytes().range(1 << 20, kBytesMax),
        field("disk", &T::disk_bytes, "What each task may write into its work directory; 0 = not limited.")
            .bytes()
            .range(0, kBytesMax),
        field("gpus", &T::gpus, "GPUs of each task: whole ones, or a share of one such as 0.5.").range(0, 16),
        field("gpuType", &T::gpu_type, "Only GPUs of this type, or slices of this profile.").length(0, 64),
        field("processes", &T::processes, "Processes and threads of each task; 0 = the executor's limit.")
            .range(0, 1'000'000),
        field("queue", &T::queue, "Where it waits.").length(1, 127),
        field("priorityClass", &T::priority_class, "A PriorityClass; the default one when absent.").length(0, 63),
        field("executor", &T::executor, "Where it runs; its queue's, or the server's first when absent.").length(0, 63),
        field("deadline", &T::deadline, "When it must be done; RFC 3339.").length(0, 40),
        field("notBefore", &T::not_before, "When it may begin; RFC 3339.").length(0, 40),
        field("expected", &T::expected_us, "How long it probably runs; learned from history when absent.")
            .duration()
            .range(0, jobs::kYearUs),
        field("timeLimit", &T::time_limit_us, "It is stopped when it has run for so long; 0 = never.")
            .duration()
            .range(0, jobs::kYearUs),
        field("retries", &T::retries, "What happens when it fails."),
        field("preemptible", &T::preemptible, "May be stopped for a job of higher priority, and started again."),
        field("grace", &T::grace_us, "Between SIGTERM and SIGKILL.").duration().range(0, 86'400 * jobs::kSecondUs),
        field("checkpoint", &T::checkpoint, "What becomes of $FALAJ_CHECKPOINT_DIR."),
        field("nodes", &T::nodes, "Which nodes it may use."),
        field("after", &T::after, "What must have ended before."),
        field("image", &T::image,
              "Root file system: a directory or OCI layout the server allows; the host's when absent.")
            .length(0, 4096),
        field("network", &T::network, "none: only its own loopback; host: the machine's.").one_of(jobs::kNetworks),
        field("isolation", &T::isolation, "It runs only if it can be kept apart at least so far.")
            .one_of(jobs::kIsolations),
        field("environment", &T::environment, "Variables of its environment.").length(0, 1000),
        field("secrets", &T::secrets, "Variables whose values are secrets of the project, by name.").length(0, 100),
        field("inputs", &T::inputs, "What it reads.").length(0, 100),
        field("run", &T::run, "What is kept of it.")};
  }
};
template <>
struct Shape<jobs::NewJob> {
  using T = jobs::NewJob;
  static constexpr std::string_view name = "NewJob";
  static Fields fields() {
    return {field("name", &T::name, "What people call it; need not be unique.").required().text({is_name, kNameRule}),
            field("labels", &T::labels, "To select by.").length(0, 64),
            field("spec", &T::spec, "What it is.").required()};
  }
};

}  // namespace falaj
