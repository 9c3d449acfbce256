// SPDX-License-Identifier: Apache-2.0
// what endpoints answered, what became of it, and how their variants compare

#include <fmt/format.h>

#include "api/call.h"
#include "api/project.h"
#include "lifecycle/serving/endpoints.h"
#include "lifecycle/serving/predictions.h"

namespace falaj::api {
namespace {

constexpr BodyLimit kSegmentsBody{16 * 1024 * 1024}, kLabelsBody{4 * 1024 * 1024};
constexpr std::int64_t kPredictionsMax = 10'000;
constexpr sys::Micros kReadingMax = std::chrono::minutes(1);

struct LabelIn {
  std::string prediction_id;
  std::optional<json::value> value, label;
  std::string at;
};
struct LabelsIn {
  std::vector<LabelIn> labels;
};
struct LabelsOut {
  std::int64_t added = 0, known = 0, conflicting = 0;
};
struct PredictionsQuery {
  bool labelled = false;
  std::string since;
  std::int64_t limit = 100;
};
struct PredictionsOut {
  std::vector<json::value> items;
};
struct ArmOut {
  std::string variant;
  std::int64_t exposures = 0, labels = 0;
  double mean = 0;
  std::optional<double> difference, low, high, p;
  std::string says;
};
struct ComparedOut {
  traffic::ExperimentRule rule;
  std::string since;
  std::vector<ArmOut> variants;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<serving::LoggedColumn> {
  using T = serving::LoggedColumn;
  static constexpr std::string_view name = "LoggedColumn";
  static Fields fields() {
    return {field("name", &T::name, "Its name.").required().length(1, 255),
            field("type", &T::type, "What it holds.").required().length(1, 16)};
  }
};
template <>
struct Shape<serving::LoggedSegment> {
  using T = serving::LoggedSegment;
  static constexpr std::string_view name = "LoggedSegment";
  static Fields fields() {
    return {field("segment", &T::segment, "Its name, by which it is taken once.").required().length(1, 128),
            field("rows", &T::rows, "That it has.").required().range(1, 10'000'000),
            field("lines", &T::lines, "Rows as JSON, one a line.").required().length(1, 16 << 20)};
  }
};
template <>
struct Shape<serving::LoggedBatch> {
  using T = serving::LoggedBatch;
  static constexpr std::string_view name = "LoggedBatch";
  static Fields fields() {
    return {field("tenant", &T::tenant, "Of the endpoint.").required().length(1, 63),
            field("project", &T::project, "Of the endpoint.").required().length(1, 63),
            field("endpoint", &T::endpoint, "Its name.").required().length(1, 63),
            field("columns", &T::columns, "That rows have.").required().length(1, 2000),
            field("segments", &T::segments, "Pieces of its log.").required().length(1, 1000)};
  }
};
template <>
struct Shape<LabelIn> {
  using T = LabelIn;
  static constexpr std::string_view name = "PredictionLabel";
  static Fields fields() {
    return {field("prediction_id", &T::prediction_id, "As the answer called it: x-falaj-prediction-id.").required(),
            field("value", &T::value, "What became of it: a number, or true or false."),
            field("label", &T::label, "The same by another name."),
            field("at", &T::at, "When it was known, such as 2026-01-31T12:00:00Z; now when absent.").length(0, 40)};
  }
};
template <>
struct Shape<LabelsIn> {
  static constexpr std::string_view name = "PredictionLabels";
  static Fields fields() {
    return {field("labels", &LabelsIn::labels, "What became of predictions.")
                .required()
                .length(1, static_cast<std::int64_t>(serving::kLabelsMax))};
  }
};
template <>
struct Shape<LabelsOut> {
  using T = LabelsOut;
  static constexpr std::string_view name = "LabelsTaken";
  static Fields fields() {
    return {field("added", &T::added, "That are new."), field("known", &T::known, "That were there."),
            field("conflicting", &T::conflicting, "That were there with another value, which stays.")};
  }
};
template <>
struct Shape<PredictionsQuery> {
  using T = PredictionsQuery;
  static constexpr std::string_view name = "PredictionsQuery";
  static Fields fields() {
    return {field("labelled", &T::labelled, "Only those with a label."),
            field("since", &T::since, "Only those made from then on, such as 2026-01-31T12:00:00Z.").length(0, 40),
            field("limit", &T::limit, "Most items.").range(1, kPredictionsMax)};
  }
};
template <>
struct Shape<PredictionsOut> {
  static constexpr std::string_view name = "LoggedPredictions";
  static Fields fields() {
    return {field("items", &PredictionsOut::items,
                  "Newest first; in_NAME is an input, out_NAME an output, label its label.")};
  }
};
template <>
struct Shape<ArmOut> {
  using T = ArmOut;
  static constexpr std::string_view name = "ExperimentVariant";
  static Fields fields() {
    return {field("variant", &T::variant, "Its name."),
            field("exposures", &T::exposures, "Rows that it answered."),
            field("labels", &T::labels, "Of them with a label."),
            field("mean", &T::mean, "Of the metric."),
            field("difference", &T::difference, "To the baseline's."),
            field("low", &T::low, "The true difference lies from here"),
            field("high", &T::high, "to here."),
            field("p", &T::p, "The chance of what is seen if there were no difference; may be looked at any time."),
            field("says", &T::says, "In words.")};
  }
};
template <>
struct Shape<ComparedOut> {
  using T = ComparedOut;
  static constexpr std::string_view name = "ExperimentView";
  static Fields fields() {
    return {field("rule", &T::rule, "As it is declared."), field("since", &T::since, "Since when it counts."),
            field("variants", &T::variants, "The baseline first.")};
  }
};

}  // namespace falaj

namespace falaj::api {
namespace {

std::optional<double> number_in(const json::value& value) {
  if (value.is_bool()) return value.get_bool() ? 1 : 0;
  if (value.is_number()) return value.to_number<double>();
  return std::nullopt;
}

std::vector<serving::Label> labels_of(const LabelsIn& in) {
  std::vector<serving::Label> out;
  Faults faults;
  for (std::size_t i = 0; i < in.labels.size(); ++i) {
    const auto& one = in.labels[i];
    const auto at = fmt::format("labels[{}]", i);
    serving::Label label{one.prediction_id, 0, 0};
    const auto& said = one.value ? one.value : one.label;
    const auto value = said ? number_in(*said) : std::nullopt;
    if (!value || (one.value && one.label))
      faults.push_back({at + ".value", "must be a number, true or false, said once (value or label)"});
    else
      label.value = *value;
    if (!one.at.empty()) {
      const auto time = parse_time(one.at);
      if (!time) faults.push_back({at + ".at", "must be a time such as 2026-01-31T12:00:00Z"});
      label.at_us = time.value_or(0);
    }
    out.push_back(std::move(label));
  }
  refuse_if_any("labels", std::move(faults));
  return out;
}

// Makes a view of the newest version; false when there is none.
bool open_newest(Platform& platform, table::Workspace& room, const vault::Where& where, const std::string& dataset,
                 const std::string& view) {
  try {
    platform.datasets.open(room, where, platform.datasets.version(where, dataset, std::nullopt), view);
    return true;
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
    return false;
  }
}

// Rows of the log with their labels.
PredictionsOut read_predictions(Platform& platform, Call& call, const PredictionsQuery& in) {
  const auto where = project_of(call);
  const auto name = call.parameter("name");
  platform.resources.get({"Endpoint", where.tenant.str(), where.project.str(), name});  // not_found
  const auto logged = serving::predictions_dataset(name), labels = serving::labels_dataset(name);
  for (const auto& dataset : {logged, labels})
    call.require("dataset.read", iam::Scope::of(where.tenant.str(), where.project.str(), "dataset", dataset));
  const auto since = in.since.empty() ? std::optional<std::int64_t>(INT64_MIN) : parse_time(in.since);
  if (!since) throw Error(Code::invalid, "since: must be a time such as 2026-01-31T12:00:00Z");
  platform.predictions.flush(where, name);
  PredictionsOut out;
  const auto room = platform.datasets.room();
  if (!open_newest(platform, *room, where, logged, "p")) return out;
  const bool labelled = open_newest(platform, *room, where, labels, "l");
  if (in.labelled && !labelled) return out;
  auto rows = fmt::format("SELECT p.*{} FROM p", labelled ? ", l.label, l.label_at" : "");
  if (labelled) rows += in.labelled ? " JOIN l USING (prediction_id)" : " LEFT JOIN l USING (prediction_id)";
  if (!in.since.empty()) rows += fmt::format(" WHERE p.time >= make_timestamp({})", *since);
  rows += fmt::format(" ORDER BY p.time DESC, prediction_id LIMIT {}", in.limit);
  const auto end = platform.clock.now() + kReadingMax;
  room->query(
      fmt::format("SELECT CAST(to_json(r) AS VARCHAR) FROM ({}) r", rows), {},
      [&](const table::Chunk& chunk) {
        for (std::size_t i = 0; i < chunk.rows(); ++i) out.items.push_back(parse_json(chunk.text(0, i)));
        return true;
      },
      [&](double) {
        if (platform.clock.now() > end)
          throw Error(Code::deadline, "reading the predictions took too long: say since when, or use dataset sql");
      });
  return out;
}

ComparedOut out_of(const serving::ExperimentSeen& seen) {
  ComparedOut out{seen.rule, format_time(seen.since_us), {}};
  for (const auto& arm : seen.arms) {
    ArmOut one;
    one.variant = arm.variant;
    one.exposures = arm.exposures;
    one.labels = arm.labels;
    one.mean = arm.mean;
    one.says = arm.says;
    if (arm.variant != seen.rule.baseline) {
      one.difference = arm.against.difference;
      one.p = arm.against.p;
      if (arm.against.bounded) one.low = arm.against.low, one.high = arm.against.high;
    }
    out.variants.push_back(std::move(one));
  }
  return out;
}

}  // namespace

void add_prediction_routes(Routes& routes, Platform& platform) {
  auto& predictions = platform.predictions;
  auto& endpoints = platform.endpoints;
  const auto read = Permission::of("endpoint.read", "{scope}/endpoint/{name}");
  routes.add<serving::LoggedBatch, Nothing>(
      {Method::post, "/v1/serving/predictions", Permission::of("serving.follow", "/"), kSegmentsBody, Audit::read(),
       Place::worker, "Pieces of the prediction log of an endpoint, from a serving program."},
      [&predictions](Call&, const serving::LoggedBatch& in) { predictions.accept(in); });
  routes.add<LabelsIn, LabelsOut>(
      {Method::post, "/v1/serving/endpoints/{name}/labels", Permission::of("endpoint.label", "{scope}/endpoint/{name}"),
       kLabelsBody, Audit::verb("endpoint.label"), Place::worker,
       "What became of predictions; the first label of each stays."},
      [&predictions](Call& call, const LabelsIn& in) {
        const auto where = project_of(call);
        const auto name = call.parameter("name");
        const auto scope = iam::Scope::of(where.tenant.str(), where.project.str(), "endpoint", name).str();
        const auto taken = predictions.add_labels(where, name, labels_of(in), call.act(scope));
        return LabelsOut{taken.added, taken.known, taken.conflicting};
      });
  routes.add<PredictionsQuery, PredictionsOut>(
      {Method::get, "/v1/serving/endpoints/{name}/predictions", read, BodyLimit::none(), Audit::read(), Place::worker,
       "What an endpoint answered, with the labels that came, newest first."},
      [&platform](Call& call, const PredictionsQuery& in) { return read_predictions(platform, call, in); });
  routes.add<Nothing, ComparedOut>({Method::get, "/v1/serving/endpoints/{name}/experiment", read, BodyLimit::none(),
                                    Audit::read(), Place::worker, "How the variants of an endpoint compare so far."},
                                   [&endpoints](Call& call, const Nothing&) {
                                     return out_of(endpoints.experiment(project_of(call), call.parameter("name")));
                                   });
}

}  // namespace falaj::api
