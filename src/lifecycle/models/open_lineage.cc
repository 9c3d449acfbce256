// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "foundation/base/text.h"
#include "lifecycle/models/lineage.h"
#include "lifecycle/track/tables.h"

namespace falaj::models {

namespace {

constexpr std::string_view kSchema = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";
constexpr std::string_view kFacets = "https://openlineage.io/spec/facets/";

// A run's id has the 32 digits of a UUID, without its dashes.
std::string as_uuid(const std::string& id) {
  return fmt::format("{}-{}-{}-{}-{}", id.substr(0, 8), id.substr(8, 4), id.substr(12, 4), id.substr(16, 4),
                     id.substr(20));
}

json::object facet(std::string_view producer, std::string_view schema, json::object fields) {
  fields["_producer"] = producer;
  fields["_schemaURL"] = fmt::format("{}{}", kFacets, schema);
  return fields;
}

std::string_view event_of(track::RunStatus status) {
  switch (status) {
    case track::RunStatus::finished:
      return "COMPLETE";
    case track::RunStatus::failed:
      return "FAIL";
    case track::RunStatus::killed:
      return "ABORT";
    default:
      return "RUNNING";
  }
}

}  // namespace

json::array to_open_lineage(sql::Reader& reader, const Where& where, const std::string& run_id,
                            std::string_view producer) {
  const auto row = track::need_run(reader, where, run_id);
  const auto run = track::load_run(reader, row);
  const auto space = fmt::format("falaj://{}/{}", where.tenant.str(), where.project.str());

  json::array inputs, outputs;
  for (const auto& input : run.datasets) {
    json::object facets;
    if (!input.dataset.digest.empty())
      facets["version"] = facet(producer, "1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet",
                                {{"datasetVersion", input.dataset.digest}});
    inputs.push_back(
        json::object{{"namespace", space}, {"name", "dataset/" + input.dataset.name}, {"facets", std::move(facets)}});
  }
  for (const auto& model : run.model_inputs)
    inputs.push_back(json::object{{"namespace", space}, {"name", "model/" + model}, {"facets", json::object()}});
  for (const auto& model : run.model_outputs)
    outputs.push_back(
        json::object{{"namespace", space}, {"name", "model/" + model.model_id}, {"facets", json::object()}});

  json::array parameters;
  for (const auto& param : run.params)
    parameters.push_back(json::object{{"key", param.key}, {"name", param.key}, {"value", param.value}});
  json::object run_facets;
  if (!parameters.empty())
    run_facets["executionParameters"] =
        facet(producer, "1-0-0/ExecutionParametersRunFacet.json#/$defs/ExecutionParametersRunFacet",
              {{"parameters", std::move(parameters)}});

  const auto event = [&](std::string_view type, std::int64_t unix_ms) {
    return json::object{{"eventType", type},
                        {"eventTime", format_time(unix_ms * 1000)},
                        {"producer", producer},
                        {"schemaURL", kSchema},
                        {"run", json::object{{"runId", as_uuid(run.info.run_id)}, {"facets", run_facets}}},
                        {"job", json::object{{"namespace", space},
                                             {"name", fmt::format("experiment/{}", run.info.experiment)},
                                             {"facets", json::object()}}},
                        {"inputs", inputs},
                        {"outputs", outputs}};
  };
  json::array events{event("START", run.info.start_ms)};
  const auto ended = event_of(run.info.status);
  if (ended != "RUNNING") events.push_back(event(ended, run.info.end_ms.value_or(run.info.start_ms)));
  return events;
}

}  // namespace falaj::models
