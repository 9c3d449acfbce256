// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a person says of a pipeline: `kind: Pipeline` in a file.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"
#include "foundation/base/text.h"
#include "lifecycle/jobs/cron.h"
#include "lifecycle/jobs/spec.h"

namespace falaj::flow {

struct ParameterSpec {
  std::string type = "text";
  json::value fallback;  // what it is when nobody says; null = somebody must
  std::string description;
};
inline constexpr std::string_view kParameterTypes[] = {"text", "int", "number", "boolean"};

// What begins a run without a person. One of cron, dataset, promotion, push and alert.
struct PromotionTriggerSpec {
  std::string model, alias;
};
struct PushTriggerSpec {
  std::string secret;  // of the project: what the sender signs with
  std::string branch;  // "" = any
};
struct AlertTriggerSpec {
  std::string rule;
};
struct TriggerSpec {
  std::optional<std::string> cron;
  std::string dataset;
  std::optional<PromotionTriggerSpec> promotion;
  std::optional<PushTriggerSpec> push;
  std::optional<AlertTriggerSpec> alert;
  std::map<std::string, json::value> parameters;  // may refer to trigger.*
};

// One step. What it does is exactly one of run ... approve, each of them checked once references are filled in.
struct StepSpec {
  std::string name;
  std::vector<std::string> after;
  std::string when;
  std::map<std::string, std::vector<json::value>> matrix;
  jobs::RetrySpec retries;
  std::int64_t time_limit_us = 0;
  std::optional<bool> cache;
  std::optional<json::value> run, test, train, sql, train_set, ingest, check, gate, promote, deploy, approve;
};
inline constexpr std::string_view kStepKinds[] = {"run",   "test", "train",   "sql",    "trainSet", "ingest",
                                                  "check", "gate", "promote", "deploy", "approve"};

// What a run may take in all; 0 = as much as it likes.
struct BudgetSpec {
  double cpu_hours = 0, cost = 0;
};

inline constexpr std::int64_t kDayUs = 86'400'000'000, kKeepUs = 90 * kDayUs;

struct PipelineSpec {
  std::map<std::string, ParameterSpec> parameters;
  std::vector<StepSpec> steps;
  std::vector<TriggerSpec> triggers;
  bool suspended = false;
  std::int64_t concurrency = 1;
  std::string when_busy = "wait";
  std::vector<std::string> blocked_by;  // alert rules that say that data are broken
  std::int64_t parallel = 16;
  std::int64_t time_limit_us = 0;
  std::optional<BudgetSpec> budget;
  std::string experiment;
  std::int64_t keep_us = kKeepUs;
};
inline constexpr std::string_view kWhenBusy[] = {"wait", "skip"};

inline constexpr std::size_t kStepsMax = 200, kInstancesMax = 1'000, kTriggersMax = 20;

// The one thing that a step does: its kind and its body. Nothing when there is none, or more than one.
struct Doing {
  std::string_view kind;
  const json::value* body = nullptr;
};
std::optional<Doing> doing(const StepSpec& step);

// Words of references: steps, parameters and axes of a matrix. No dot, or a path could not be told apart.
bool is_word(std::string_view text);
inline constexpr std::string_view kWordRule = "1 to 40 of a-z, A-Z, 0-9, '_' and '-', beginning with a letter";

}  // namespace falaj::flow

namespace falaj {

template <>
struct Shape<flow::ParameterSpec> {
  using T = flow::ParameterSpec;
  static constexpr std::string_view name = "PipelineParameter";
  static Fields fields() {
    return {field("type", &T::type, "What its values are.").one_of(flow::kParameterTypes),
            field("default", &T::fallback, "What it is when nobody says; absent: somebody must."),
            field("description", &T::description, "For people.").length(0, 1000)};
  }
};
template <>
struct Shape<flow::PromotionTriggerSpec> {
  using T = flow::PromotionTriggerSpec;
  static constexpr std::string_view name = "PromotionTrigger";
  static Fields fields() {
    return {field("model", &T::model, "Of which model.").required().length(1, 256),
            field("alias", &T::alias, "To which alias.").required().length(1, 255)};
  }
};
template <>
struct Shape<flow::PushTriggerSpec> {
  using T = flow::PushTriggerSpec;
  static constexpr std::string_view name = "PushTrigger";
  static Fields fields() {
    return {field("secret", &T::secret, "A secret of the project, which the sender signs its calls with.")
                .required()
                .text({is_name, kNameRule}),
            field("branch", &T::branch, "Only pushes to it; any when absent.").length(0, 200)};
  }
};
template <>
struct Shape<flow::AlertTriggerSpec> {
  using T = flow::AlertTriggerSpec;
  static constexpr std::string_view name = "AlertTrigger";
  static Fields fields() { return {field("rule", &T::rule, "The AlertRule.").required().text({is_name, kNameRule})}; }
};
template <>
struct Shape<flow::TriggerSpec> {
  using T = flow::TriggerSpec;
  static constexpr std::string_view name = "PipelineTrigger";
  static Fields fields() {
    return {field("cron", &T::cron, "Again and again, at these times; UTC.").text({jobs::is_cron, jobs::kCronRule}),
            field("dataset", &T::dataset, "For each new version of it.").length(0, 63),
            field("promotion", &T::promotion, "When an alias of a model moves."),
            field("push", &T::push, "When a repository tells of a push, by a signed call."),
            field("alert", &T::alert, "When an alert rule of the project fires."),
            field("parameters", &T::parameters, "Of the run; texts may refer to ${{trigger.*}}.").length(0, 100)};
  }
};
template <>
struct Shape<flow::StepSpec> {
  using T = flow::StepSpec;
  static constexpr std::string_view name = "PipelineStep";
  static Fields fields() {
    return {
        field("name", &T::name, "What other steps call it.").required().text({flow::is_word, flow::kWordRule}),
        field("after", &T::after, "Steps that come before it, besides those whose outputs it refers to.")
            .length(0, 200),
        field("when", &T::when, "An expression over ${{...}}: it is skipped unless it is true.").length(0, 4000),
        field("matrix", &T::matrix, "Once for each combination; ${{matrix.NAME}} is its value.").length(0, 8),
        field("retries", &T::retries, "What happens when it fails."),
        field("timeLimit", &T::time_limit_us, "It fails when it takes longer; 0 = never.")
            .duration()
            .range(0, jobs::kYearUs),
        field("cache", &T::cache, "Whether what it made is used again while nothing that it depends on has changed."),
        field("run", &T::run, "A job: command, inputs, cpus and so on, as of kind Job."),
        field("test", &T::test, "A job that says by how it ends whether all is well."),
        field("train", &T::train, "A training, as of kind Training."),
        field("sql", &T::sql, "The answer to a query becomes a version of a dataset: query, into, mode."),
        field("trainSet", &T::train_set, "Features of a service for a spine's rows: service, spine, time, into."),
        field("ingest", &T::ingest, "A file becomes a version of a dataset: artifact or blob, into, format, mode."),
        field("check", &T::check, "Expectations must hold of a dataset's version: dataset."),
        field("gate", &T::gate, "A model's version must be good enough: model, version, against, conditions."),
        field("promote", &T::promote, "An alias moves: model, version, alias, why."),
        field("deploy", &T::deploy, "A variant of an endpoint: endpoint, variant, model, version, canary."),
        field("approve", &T::approve, "Waits until somebody approves: message, by, other.")};
  }
};
template <>
struct Shape<flow::BudgetSpec> {
  using T = flow::BudgetSpec;
  static constexpr std::string_view name = "PipelineBudget";
  static Fields fields() {
    return {field("cpuHours", &T::cpu_hours, "Processor hours that its jobs may hold.").range(0, 1'000'000'000),
            field("cost", &T::cost, "What they may cost, by what their nodes do.").range(0, 1'000'000'000)};
  }
};
template <>
struct Shape<flow::PipelineSpec> {
  using T = flow::PipelineSpec;
  static constexpr std::string_view name = "PipelineSpec";
  static Fields fields() {
    return {field("parameters", &T::parameters, "What a run is started with.").length(0, 100),
            field("steps", &T::steps, "What is done, each step as soon as those before it are.")
                .required()
                .length(1, static_cast<std::int64_t>(flow::kStepsMax)),
            field("triggers", &T::triggers, "What begins runs without a person.")
                .length(0, static_cast<std::int64_t>(flow::kTriggersMax)),
            field("suspended", &T::suspended, "Triggers begin nothing."),
            field("concurrency", &T::concurrency, "Runs at once.").range(1, 100),
            field("whenBusy", &T::when_busy, "What becomes of a triggered run when so many are under way.")
                .one_of(flow::kWhenBusy),
            field("blockedBy", &T::blocked_by,
                  "Alert rules: while one fires, data are broken; runs wait, and one under way is cancelled.")
                .length(0, 32)
                .text({is_name, kNameRule}),
            field("parallel", &T::parallel, "Steps of a run at once.").range(1, 1000),
            field("timeLimit", &T::time_limit_us, "A run fails when it takes longer; 0 = never.")
                .duration()
                .range(0, jobs::kYearUs),
            field("budget", &T::budget, "What a run may take; beyond it no further step begins."),
            field("experiment", &T::experiment, "Of its runs in tracking; its own name when absent.").length(0, 500),
            field("keep", &T::keep_us, "How long runs that have ended are known; the newest always is.")
                .duration()
                .range(flow::kDayUs, 100 * jobs::kYearUs)};
  }
};

}  // namespace falaj
