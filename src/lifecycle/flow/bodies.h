// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kinds of steps say, once references are filled in.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"
#include "foundation/base/text.h"
#include "foundation/expr/value.h"
#include "lifecycle/data/types.h"
#include "lifecycle/traffic/canary.h"

namespace falaj::flow {

struct SqlBody {
  std::string query, into, mode = "overwrite";
  std::map<std::string, std::int64_t> tables;  // versions of what the query names, since it began
};
struct TrainSetBody {
  std::string service, spine, time, into;
};
struct IngestBody {
  std::string artifact, blob;  // "RUN/path", or a name: one of them
  std::string into, format = "parquet", mode = "append";
};
struct CheckBody {
  std::string dataset;    // "flights@3"
  bool warnings = false;  // those that only warn must hold too
};
// Each says one thing of the version.
struct ConditionBody {
  std::string metric, run;                  // of the version's own run unless another is named
  std::optional<double> at_least, at_most;  // of the end of its interval that speaks against it
  std::optional<double> better_by;          // than the one it is compared with, also at that end
  std::string better;                       // "higher" or "lower"; "" = by the metric's name
  double confidence = 0.95;
  std::string slices;                    // each METRIC/SLICES/VALUE instead of the metric itself
  std::optional<double> spread_at_most;  // between the best and the worst of them, at the end that speaks against it
  std::optional<std::int64_t> bytes_at_most;  // of the version's files
  std::string endpoint;                       // where it is served, and
  std::optional<std::int64_t> p99_at_most_us;
  std::int64_t requests_min = 100;    // that it has answered there: fewer tell nothing of the slowest
  bool safe = false;                  // its files are those that were signed, and opening them runs nothing
  std::string monitor;                // what its endpoint is asked now, and
  std::optional<double> psi_at_most;  // how far that is from what the version was tested on, beyond chance
};
struct GateBody {
  std::string model;
  json::value version;  // a number, or several: the best of those that pass is chosen
  std::string against;  // an alias; nothing to compare with yet = passed
  std::string otherwise = "fail";
  std::vector<ConditionBody> conditions;
};
struct PromoteBody {
  std::string model;
  std::int64_t version = 0;
  std::string alias, why;
};
struct DeployBody {
  std::string endpoint, variant = "champion", model;
  std::int64_t version = 0;
  std::optional<json::value> canary;  // a CanaryRule without its variant
  bool shadow = false;
  bool wait = false;  // until the canary has taken over; the step fails when it is rolled back
};
struct ApproveBody {
  std::string message;
  std::vector<std::string> by;  // who may, as principals or groups; none = whoever holds the right
  bool other = true;            // somebody else than who started the run
};

inline constexpr std::string_view kOtherwise[] = {"fail", "skip"}, kBetter[] = {"", "higher", "lower"};
inline constexpr std::string_view kModes[] = {"append", "overwrite"}, kFormats[] = {"csv", "jsonl", "parquet"};

// Faults of a body, below `path`. Trainings are known to who makes jobs of them.
using CheckTraining = std::function<void(const json::value& spec, const std::string& path, Faults& faults)>;
void check_body(std::string_view kind, const json::value& body, const std::string& path, const CheckTraining& training,
                Faults& faults);

// What a command and an environment hold are words, also where a number or a truth was filled in.
json::value in_words(std::string_view kind, json::value body);

// The type of what a step of a kind gives under a path after "outputs"; nothing when it gives no such thing.
std::optional<expr::Type> output_type(std::string_view kind, const std::vector<std::string>& path);
std::string outputs_of(std::string_view kind);  // what there is, in words
bool is_job(std::string_view kind);             // done by a job
bool keeps_by_default(std::string_view kind);   // what it made is used again

}  // namespace falaj::flow

namespace falaj {

template <>
struct Shape<flow::SqlBody> {
  using T = flow::SqlBody;
  static constexpr std::string_view name = "PipelineSql";
  static Fields fields() {
    return {
        field("query", &T::query, "A SELECT over datasets.").required().length(1, 64 * 1024),
        field("into", &T::into, "The dataset; declared when it is not there.").required().text({is_name, kNameRule}),
        field("mode", &T::mode, "How.").one_of(flow::kModes),
        field("tables", &T::tables, "Versions of the datasets that it names; the newest when it begins.")
            .length(0, 100)};
  }
};
template <>
struct Shape<flow::TrainSetBody> {
  using T = flow::TrainSetBody;
  static constexpr std::string_view name = "PipelineTrainSet";
  static Fields fields() {
    return {
        field("service", &T::service, "The FeatureService.").required().text({is_name, kNameRule}),
        field("spine", &T::spine, "DATASET or DATASET@VERSION: the rows.").required().length(1, 100),
        field("time", &T::time, "The column that says as of when; the dataset's own when absent.").length(0, 255),
        field("into", &T::into, "The dataset; declared when it is not there.").required().text({is_name, kNameRule})};
  }
};
template <>
struct Shape<flow::IngestBody> {
  using T = flow::IngestBody;
  static constexpr std::string_view name = "PipelineIngest";
  static Fields fields() {
    return {field("artifact", &T::artifact, "RUN/path: a file that a run left.").length(0, 1024),
            field("blob", &T::blob, "Or a blob of the project.").length(0, 1024),
            field("into", &T::into, "The dataset, which is declared.").required().text({is_name, kNameRule}),
            field("format", &T::format, "Of the file.").one_of(flow::kFormats),
            field("mode", &T::mode, "How.").one_of(flow::kModes)};
  }
};
template <>
struct Shape<flow::CheckBody> {
  using T = flow::CheckBody;
  static constexpr std::string_view name = "PipelineCheck";
  static Fields fields() {
    return {field("dataset", &T::dataset, "DATASET or DATASET@VERSION.").required().length(1, 100),
            field("warnings", &T::warnings, "Whether expectations that only warn must hold, too.")};
  }
};
template <>
struct Shape<flow::ConditionBody> {
  using T = flow::ConditionBody;
  static constexpr std::string_view name = "GateCondition";
  static Fields fields() {
    return {
        field("metric", &T::metric, "Of the version's run; with NAME_low and NAME_high beside it, its 95 % interval.")
            .length(0, 250),
        field("run", &T::run, "Another run that measured it.").length(0, 64),
        field("atLeast", &T::at_least, "The low end of its interval is at least this."),
        field("atMost", &T::at_most, "The high end of its interval is at most this."),
        field("betterBy", &T::better_by,
              "Better than the other by this, with that confidence; below 0: not much worse."),
        field("better", &T::better, "higher or lower; by the metric's name when absent, which must then tell.")
            .one_of(flow::kBetter),
        field("confidence", &T::confidence, "Of betterBy."),
        field("slices", &T::slices, "Each METRIC/COLUMN/VALUE of this column, as trainings log them for `slices`.")
            .length(0, 128),
        field("spreadAtMost", &T::spread_at_most, "Between the best and the worst slice.").range(0, 1'000'000'000),
        field("bytesAtMost", &T::bytes_at_most, "Of the version's files.").bytes().range(0, std::int64_t{1} << 50),
        field("endpoint", &T::endpoint, "Where it is served, for p99AtMost.").length(0, 63),
        field("p99AtMost", &T::p99_at_most_us, "Of its answers there.").duration().range(1, 3'600'000'000),
        field("requestsMin", &T::requests_min, "Answers there that p99AtMost needs.").range(1, 1'000'000'000),
        field("safe", &T::safe,
              "Its files are those that were signed, its model is ONNX within limits, and opening any "
              "of them runs nothing."),
        field("monitor", &T::monitor, "That watches what its endpoint is asked, for psiAtMost.").length(0, 63),
        field("psiAtMost", &T::psi_at_most,
              "How far the farthest column is from what the version was tested on (population stability index), less "
              "what chance brings.")
            .range(0, 1'000)};
  }
};
template <>
struct Shape<flow::GateBody> {
  using T = flow::GateBody;
  static constexpr std::string_view name = "PipelineGate";
  static Fields fields() {
    return {field("model", &T::model, "Which model.").required().length(1, 256),
            field("version", &T::version, "Which version; of several the best that passes.").required(),
            field("against", &T::against, "An alias: what it is compared with.").length(0, 255),
            field("otherwise", &T::otherwise, "fail: the run fails; skip: what comes after it is skipped.")
                .one_of(flow::kOtherwise),
            field("conditions", &T::conditions, "All of them must hold.").required().length(1, 50)};
  }
};
template <>
struct Shape<flow::PromoteBody> {
  using T = flow::PromoteBody;
  static constexpr std::string_view name = "PipelinePromote";
  static Fields fields() {
    return {field("model", &T::model, "Which model.").required().length(1, 256),
            field("version", &T::version, "Which version.").required().range(1, std::int64_t{1} << 53),
            field("alias", &T::alias, "What then points at it.").required().length(1, 255),
            field("why", &T::why, "For the history.").length(0, 4000)};
  }
};
template <>
struct Shape<flow::DeployBody> {
  using T = flow::DeployBody;
  static constexpr std::string_view name = "PipelineDeploy";
  static Fields fields() {
    return {
        field("endpoint", &T::endpoint, "Declared when it is not there.").required().text({is_name, kNameRule}),
        field("variant", &T::variant, "Which of its variants.").text({is_name, kNameRule}),
        field("model", &T::model, "Which model.").required().length(1, 256),
        field("version", &T::version, "Which version.").required().range(1, std::int64_t{1} << 53),
        field("canary", &T::canary, "Takes over step by step, or is rolled back: steps, every, requestsMin and so on."),
        field("shadow", &T::shadow, "Gets copies of requests only."),
        field("wait", &T::wait, "Ends when the canary has taken over, and fails when it was rolled back.")};
  }
};
template <>
struct Shape<flow::ApproveBody> {
  using T = flow::ApproveBody;
  static constexpr std::string_view name = "PipelineApprove";
  static Fields fields() {
    return {field("message", &T::message, "What is asked.").length(0, 4000),
            field("by", &T::by, "Who may: user/..., group/...; none: whoever may approve runs.").length(0, 100),
            field("other", &T::other, "Somebody else than who started the run.")};
  }
};

}  // namespace falaj
