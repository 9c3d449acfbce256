// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/describe.h"

#include <fmt/format.h>

#include "compute/protocol/tensors.h"

namespace falaj::protocol {
namespace {

using graph::Element;

json::array numbers(const graph::Sizes& sizes) { return json::array(sizes.begin(), sizes.end()); }

json::array texts(std::span<const std::string> values) {
  json::array out;
  for (const auto& value : values) out.emplace_back(value);
  return out;
}

json::array ports(const std::vector<graph::Port>& of) {
  json::array out;
  for (const auto& port : of)
    out.push_back({{"name", port.name}, {"datatype", datatype(port.element)}, {"shape", numbers(shape_of(port))}});
  return out;
}

json::array configured(const std::vector<graph::Port>& of, const Description& model) {
  json::array out;
  for (const auto& port : of) {
    const auto type = port.element == Element::text ? "STRING" : datatype(port.element);
    out.push_back(
        {{"name", port.name}, {"data_type", fmt::format("TYPE_{}", type)}, {"dims", numbers(dims_of(port, model))}});
  }
  return out;
}

json::value duration(const Duration& d) { return {{"count", d.count}, {"ns", d.ns}}; }

json::object schema_of_values(Element element) {
  switch (element) {
    case Element::text:
      return {{"type", "string"}};
    case Element::boolean:
      return {{"type", "boolean"}};
    case Element::float32:
    case Element::float64:
    case Element::float16:
    case Element::bfloat16:
      return {{"type", "number"}};
    default:
      return {{"type", "integer"}};
  }
}

// A tensor of the infer call: its name and type fixed, its data an array in arrays.
json::object schema_of_tensor(const graph::Port& port) {
  return {{"type", "object"},
          {"required", {"name", "shape", "datatype"}},
          {"properties",
           {{"name", {{"const", port.name}}},
            {"shape", {{"type", "array"}, {"items", {{"type", "integer"}}}, {"examples", {numbers(shape_of(port))}}}},
            {"datatype", {{"const", datatype(port.element)}}},
            {"data", {{"type", "array"}, {"items", schema_of_values(port.element)}}},
            {"parameters", {{"type", "object"}}}}}};
}

// A field of a row: a value, or an array where the model has more than one value a row.
json::object schema_of_field(const graph::Port& port, const Description& model) {
  auto values = schema_of_values(port.element);
  auto dims = shape_of(port);
  if (model.rows_first && !dims.empty()) dims.erase(dims.begin());
  if (dims.empty() || (dims.size() == 1 && dims[0] == 1)) return values;
  return {{"type", "array"}, {"items", std::move(values)}};
}

json::object row_of_fields(const std::vector<graph::Port>& ports, const Description& model) {
  json::object fields;
  for (const auto& port : ports) fields[port.name] = schema_of_field(port, model);
  return {{"type", "object"}, {"properties", std::move(fields)}};
}

json::object body_of(json::object schema) { return {{"application/json", {{"schema", std::move(schema)}}}}; }

json::object responses(json::object schema) {
  json::object out{{"200", {{"description", "The answer."}, {"content", body_of(std::move(schema))}}}};
  constexpr std::pair<const char*, const char*> kFailures[] = {{"400", "The request is wrong; `error` says where."},
                                                               {"401", "No valid token."},
                                                               {"403", "Not allowed to see what was looked up."},
                                                               {"404", "No such model or version."},
                                                               {"429", "The queue is full: wait as Retry-After says."},
                                                               {"503", "The model is not served now."},
                                                               {"504", "Not answered in the time given."}};
  for (const auto& [status, why] : kFailures)
    out[status] = {{"description", why}, {"content", body_of({{"$ref", "#/components/schemas/Error"}})}};
  return out;
}

json::object post(std::string_view summary, json::object ask, json::object answer) {
  return {{"post",
           {{"summary", summary},
            {"requestBody", {{"required", true}, {"content", body_of(std::move(ask))}}},
            {"responses", responses(std::move(answer))}}}};
}

json::object any_of(const std::vector<graph::Port>& ports) {
  json::array tensors;
  for (const auto& port : ports) tensors.emplace_back(schema_of_tensor(port));
  return {{"type", "array"}, {"items", {{"anyOf", std::move(tensors)}}}};
}

json::object infer_path(const Description& model) {
  return post("Tensors in, tensors out (Open Inference Protocol 2).",
              {{"type", "object"},
               {"required", {"inputs"}},
               {"properties",
                {{"id", {{"type", "string"}}},
                 {"parameters", {{"type", "object"}}},
                 {"inputs", any_of(model.inputs)},
                 {"outputs", {{"type", "array"}, {"items", {{"type", "object"}}}}}}}},
              {{"type", "object"},
               {"properties",
                {{"id", {{"type", "string"}}},
                 {"model_name", {{"type", "string"}}},
                 {"model_version", {{"type", "string"}}},
                 {"outputs", any_of(model.outputs)}}}});
}

json::object schema_of_type(std::string_view type) {
  if (type == "boolean") return {{"type", "boolean"}};
  if (type.starts_with("int")) return {{"type", "integer"}};
  if (type.starts_with("float")) return {{"type", "number"}};
  if (type == "timestamp") return {{"type", "string"}, {"format", "date-time"}};
  if (type == "date") return {{"type", "string"}, {"format", "date"}};
  if (type == "bytes") return {{"type", "string"}, {"contentEncoding", "base64"}};
  return {{"type", "string"}};
}

bool looks_up(const Description& model) { return !model.looked_up.empty(); }

// Where features are looked up a row names entities, and of the inputs only those that are not.
json::object row_of_asked(const Description& model) {
  if (!looks_up(model)) return row_of_fields(model.inputs, model);
  json::object fields;
  json::array keys;
  for (const auto& field : model.row_fields) {
    fields[field.name] = schema_of_type(field.type);
    if (field.is_key) keys.emplace_back(field.name);
  }
  for (const auto& port : model.inputs)
    if (!fields.contains(port.name) && !model.looked_up.contains(port.name))
      fields[port.name] = schema_of_field(port, model);
  return {{"type", "object"},
          {"required", std::move(keys)},
          {"properties", std::move(fields)},
          {"additionalProperties", false}};
}

json::object predict_path(const Description& model) {
  json::object asked{{"rows", {{"type", "array"}, {"items", row_of_asked(model)}}},
                     {"timeout_us", {{"type", "integer"}, {"minimum", 0}}}};
  json::object answer{{"model", {{"type", "string"}}},
                      {"version", {{"type", "string"}}},
                      {"variant", {{"type", "string"}}},
                      {"prediction_id", {{"type", "string"}, {"description", "Where predictions have names."}}},
                      {"rows", {{"type", "array"}, {"items", row_of_fields(model.outputs, model)}}}};
  if (looks_up(model)) {
    asked["explain"] = {{"type", "boolean"}, {"description", "Whether the answer says what was looked up."}};
    asked["as_of"] = {{"type", "string"},
                      {"format", "date-time"},
                      {"description", "The moment that features are looked up as of; now when absent."}};
    answer["features"] = {{"type", "object"}, {"description", "What was looked up, with explain."}};
  }
  return post("Rows of named fields in, rows of named fields out.",
              {{"type", "object"}, {"required", {"rows"}}, {"properties", std::move(asked)}},
              {{"type", "object"}, {"properties", std::move(answer)}});
}

}  // namespace

graph::Sizes shape_of(const graph::Port& port) {
  graph::Sizes sizes;
  for (const auto& dimension : port.shape) {
    const auto* size = std::get_if<std::int64_t>(&dimension);
    sizes.push_back(size ? *size : -1);
  }
  return sizes;
}

graph::Sizes dims_of(const graph::Port& port, const Description& model) {
  auto sizes = shape_of(port);
  if (has_rows(model) && !sizes.empty()) sizes.erase(sizes.begin());
  return sizes;
}

json::value server_metadata() {
  json::array extensions;
  for (const auto extension : kExtensions) extensions.emplace_back(extension);
  return {{"name", kServerName}, {"version", kServerVersion}, {"extensions", std::move(extensions)}};
}

json::value metadata(const Description& model) {
  json::object out{{"name", model.model},
                   {"versions", texts(model.versions)},
                   {"platform", model.platform},
                   {"inputs", ports(model.inputs)},
                   {"outputs", ports(model.outputs)}};
  if (!model.properties.empty()) {
    auto& properties = out["properties"].emplace_object();
    for (const auto& [key, value] : model.properties) properties[key] = value;
  }
  return out;
}

json::value configuration(const Description& model) {
  json::object out{
      {"name", model.model},
      {"platform", model.platform},
      {"backend", model.platform.substr(0, model.platform.find('_'))},
      {"version_policy", {{"latest", {{"num_versions", 1}}}}},
      {"max_batch_size", has_rows(model) ? model.rows_max : 0},
      {"input", configured(model.inputs, model)},
      {"output", configured(model.outputs, model)},
      {"instance_group",
       {{{"name", model.model}, {"kind", "KIND_CPU"}, {"count", model.instances}, {"gpus", json::array()}}}},
      {"model_transaction_policy", {{"decoupled", false}}}};
  if (has_rows(model))
    out["dynamic_batching"] = {{"preferred_batch_size", json::array{model.rows_max}},
                               {"max_queue_delay_microseconds", model.wait_us_max}};
  auto& parameters = out["parameters"].emplace_object();
  for (const auto& [key, value] : model.properties) parameters[key] = {{"string_value", value}};
  return out;
}

json::value statistics(std::span<const Statistics> models) {
  json::array out;
  for (const auto& s : models) {
    json::array batches;
    for (const auto& batch : s.batches)
      batches.push_back({{"batch_size", batch.rows},
                         {"compute_input", duration(batch.input)},
                         {"compute_infer", duration(batch.infer)},
                         {"compute_output", duration(batch.output)}});
    json::array memory;
    if (s.memory_bytes > 0) memory.push_back({{"type", "CPU"}, {"id", 0}, {"byte_size", s.memory_bytes}});
    out.push_back({{"name", s.model},
                   {"version", s.version},
                   {"last_inference", s.last_inference_ms},
                   {"inference_count", s.inference_count},
                   {"execution_count", s.execution_count},
                   {"inference_stats",
                    {{"success", duration(s.success)},
                     {"fail", duration(s.fail)},
                     {"queue", duration(s.queue)},
                     {"compute_input", duration(s.input)},
                     {"compute_infer", duration(s.infer)},
                     {"compute_output", duration(s.output)},
                     {"cache_hit", duration(s.cache_hit)},
                     {"cache_miss", duration(s.cache_miss)}}},
                   {"response_stats", json::object()},
                   {"batch_stats", std::move(batches)},
                   {"memory_usage", std::move(memory)}});
  }
  return {{"model_stats", std::move(out)}};
}

json::value index(std::span<const IndexEntry> models) {
  json::array out;
  for (const auto& entry : models) {
    json::object one{{"name", entry.model}};
    if (!entry.version.empty()) one["version"] = entry.version;
    if (!entry.state.empty()) one["state"] = entry.state;
    if (!entry.reason.empty()) one["reason"] = entry.reason;
    out.push_back(std::move(one));
  }
  return out;
}

json::value openapi(const Description& model) {
  json::object paths;
  paths[fmt::format("/v2/models/{}/infer", model.model)] = infer_path(model);
  paths[fmt::format("/v2/models/{}/predict", model.model)] = predict_path(model);
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", model.model},
            {"version", model.versions.empty() ? std::string("0") : model.versions.back()},
            {"description", fmt::format("How to ask the model {} ({}).", model.model, model.platform)}}},
          {"security", {{{"token", json::array()}}}},
          {"components",
           {{"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}},
            {"schemas",
             {{"Error",
               {{"type", "object"}, {"required", {"error"}}, {"properties", {{"error", {{"type", "string"}}}}}}}}}}},
          {"paths", std::move(paths)}};
}

}  // namespace falaj::protocol
