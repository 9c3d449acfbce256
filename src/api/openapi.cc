// SPDX-License-Identifier: Apache-2.0
// openapi.json (3.1) from the table of routes.

#include "api/errors.h"
#include "api/mlflow/protocol.h"
#include "api/route.h"
#include "foundation/base/text.h"

namespace falaj::api {
namespace {

json::object error_schema() {
  return parse_json(R"({"type":"object","required":["error"],"properties":{"error":{"type":"object",
    "required":["code","message","request_id","details"],"properties":{
      "code":{"type":"string"},"message":{"type":"string"},"request_id":{"type":"string"},
      "details":{"type":"array","items":{"type":"object","properties":{"field":{"type":"string"},"problem":{"type":"string"}}}}}}}})")
      .as_object();
}

json::object with_schema(std::string_view type, json::object schema) {
  return {{"content", {{type, {{"schema", std::move(schema)}}}}}};
}

json::array parameters_of(const Route& route, json::object& definitions, bool from_query) {
  json::array out;
  for (const auto element : split(route.path.substr(1), '/'))
    if (element.starts_with('{'))
      out.push_back({{"name", element.substr(1, element.size() - 2)},
                     {"in", "path"},
                     {"required", true},
                     {"schema", {{"type", "string"}}}});
  if (route.permission.resource().find("{scope}") != std::string_view::npos)
    out.push_back({{"name", "scope"},
                   {"in", "query"},
                   {"description", "where to look: /, /t/TENANT or /t/TENANT/p/PROJECT"},
                   {"schema", {{"type", "string"}, {"default", "/"}}}});
  if (from_query && route.request_schema) {
    const auto ref = std::string(route.request_schema(definitions).at("$ref").as_string());
    const auto& schema = definitions.at(ref.substr(ref.rfind('/') + 1)).as_object();
    for (const auto& [name, property] : schema.at("properties").as_object())
      out.push_back({{"name", name}, {"in", "query"}, {"schema", property}});
  }
  return out;
}

json::object responses_of(const Route& route, json::object& definitions) {
  json::object ok{{"description", "Done."}};
  if (!route.raw_type.empty())
    ok["content"] = json::object{{route.raw_type, json::object{}}};
  else
    ok["content"] = json::object{
        {"application/json",
         {{"schema", route.response_schema ? route.response_schema(definitions) : json::object{{"type", "object"}}}}}};
  json::object out{{"200", std::move(ok)}};
  const auto error = [&](int status, std::string_view why) {
    json::object response = with_schema("application/json", {{"$ref", "#/components/schemas/Error"}});
    response["description"] = why;
    out[std::to_string(status)] = std::move(response);
  };
  error(row_of(Code::invalid).http, "The request is wrong; details name each field.");
  if (route.permission.kind() != Permission::Kind::anyone) {
    error(row_of(Code::unauthenticated).http, "No valid credential.");
    error(row_of(Code::denied).http, "Not allowed.");
  }
  if (route.path.find('{') != std::string_view::npos) error(row_of(Code::not_found).http, "No such thing.");
  if (!route.audit.verb().empty())
    error(row_of(Code::conflict).http, "Changed by somebody else, or the name is taken.");
  error(row_of(Code::exhausted).http, "Too many calls or a quota is reached; retry after the time given.");
  error(row_of(Code::unavailable).http, "Overloaded or stopping; retry after the time given.");
  return out;
}

std::string operation_id(const Route& route) {
  std::string id(net::name(route.method));
  id = lower(id);
  if (mlflow::canonical(route.path)) id += "_mlflow";
  for (const auto element : split(route.path.substr(1), '/')) {
    if (element == "v1" || element == "mlflow") continue;
    id += '_';
    for (const char c : element)
      if (c != '{' && c != '}' && c != '*') id += c == '.' || c == '-' ? '_' : c;
  }
  return id;
}

}  // namespace

std::string Routes::openapi(std::string_view version) const {
  json::object definitions{{"Error", error_schema()}};
  json::object paths;
  for (const auto& route : routes_) {
    const bool from_query = route->method == Method::get || route->method == Method::del || route->raw_body;
    json::object operation{{"operationId", operation_id(*route)}, {"summary", route->summary}};
    operation["parameters"] = parameters_of(*route, definitions, from_query);
    if (route->raw_body && route->limits.bytes() > 0)
      operation["requestBody"] = with_schema("application/octet-stream", {{"type", "string"}, {"format", "binary"}});
    else if (!from_query && route->request_schema)
      operation["requestBody"] = with_schema("application/json", route->request_schema(definitions));
    operation["responses"] = responses_of(*route, definitions);
    if (route->permission.kind() == Permission::Kind::anyone) operation["security"] = json::array{};
    if (route->permission.kind() == Permission::Kind::link)
      operation["security"] = json::array{{{"link", json::array{}}}};
    if (route->permission.kind() == Permission::Kind::action || route->permission.kind() == Permission::Kind::link)
      operation["x-falaj-permission"] = route->permission.action();
    if (!route->audit.verb().empty()) operation["x-falaj-audit"] = route->audit.verb();
    if (!paths.contains(route->path)) paths[route->path] = json::object{};
    paths[route->path].as_object()[lower(net::name(route->method))] = std::move(operation);
  }
  const json::object document{
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Falaj"}, {"version", version}, {"license", {{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
      {"security", json::array{{{"bearer", json::array{}}}, {{"session", json::array{}}}}},
      {"paths", std::move(paths)},
      {"components",
       {{"schemas", std::move(definitions)},
        {"securitySchemes",
         {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
          {"session", {{"type", "apiKey"}, {"in", "cookie"}, {"name", "falaj_session"}}},
          {"link", {{"type", "apiKey"}, {"in", "query"}, {"name", "signature"}}}}}}},
  };
  return json::serialize(document);
}

}  // namespace falaj::api
