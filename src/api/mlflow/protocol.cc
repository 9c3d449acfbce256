// SPDX-License-Identifier: Apache-2.0
#include "api/mlflow/protocol.h"

#include <charconv>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "api/errors.h"
#include "foundation/base/text.h"

namespace falaj::api::mlflow {

namespace {

constexpr std::string_view kInAddress = "/mlflow/";
constexpr std::string_view kProjectOfNoChoice = "default";

bool is_ours(std::string_view path) {
  for (const auto* prefix : {"/api/2.0/mlflow", "/api/3.0/mlflow", "/api/2.0mlflow", "/ajax-api/", "/v1/traces",
                             "/get-artifact", "/model-versions/get-artifact", "/graphql"})
    if (path.starts_with(prefix)) return true;
  return path == "/version" || path == "/health";
}

std::string one_spelling(std::string_view path) {
  std::string out(path);
  if (out.starts_with("/ajax-api/")) out.erase(1, 5);
  // The reference registers one route without its slash, and its client follows.
  if (out.starts_with("/api/2.0mlflow/")) out.insert(8, "/");
  return out;
}

struct ErrorRow {
  Code code;
  int status;
  std::string_view name;
};
// Only what is worth a retry gets a status that these clients retry, which they do for minutes.
constexpr ErrorRow kErrors[] = {
    {Code::invalid, 400, "INVALID_PARAMETER_VALUE"},
    {Code::not_found, 404, "RESOURCE_DOES_NOT_EXIST"},
    {Code::exists, 400, "RESOURCE_ALREADY_EXISTS"},
    {Code::conflict, 409, "RESOURCE_CONFLICT"},
    {Code::denied, 403, "PERMISSION_DENIED"},
    {Code::unauthenticated, 401, "UNAUTHENTICATED"},
    {Code::exhausted, 429, "REQUEST_LIMIT_EXCEEDED"},
    {Code::unavailable, 503, "TEMPORARILY_UNAVAILABLE"},
    {Code::deadline, 504, "DEADLINE_EXCEEDED"},
    {Code::cancelled, 499, "CANCELLED"},
    {Code::corrupt, 500, "DATA_LOSS"},
    {Code::internal, 500, "INTERNAL_ERROR"},
};

net::Response error_text(int status, std::string_view name, std::string_view message) {
  net::Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.body = Text().open('{').key("error_code").string(name).key("message").string(message).close('}').take();
  return response;
}

}  // namespace

std::optional<Address> canonical(std::string_view path) {
  if (path.starts_with(kInAddress)) {
    const auto after = path.substr(kInAddress.size());
    const auto tenant_end = after.find('/');
    const auto project_end = tenant_end == std::string_view::npos ? tenant_end : after.find('/', tenant_end + 1);
    if (project_end == std::string_view::npos) return std::nullopt;
    const auto rest = after.substr(project_end);
    if (!is_ours(rest)) return std::nullopt;
    return Address{one_spelling(rest), std::string(after.substr(0, tenant_end)),
                   std::string(after.substr(tenant_end + 1, project_end - tenant_end - 1))};
  }
  if (!is_ours(path)) return std::nullopt;
  return Address{one_spelling(path), "", ""};
}

bool speaks(std::string_view path) {
  return path.starts_with(kInAddress) || (is_ours(path) && path != "/version" && path != "/health");
}

net::Response error_response(const Error& error, std::string_view request_id) {
  std::string message = error.what();
  // The first is in the message already.
  for (std::size_t i = 1; i < error.faults().size(); ++i)
    message += fmt::format("; {}: {}", error.faults()[i].where, error.faults()[i].what);
  message += fmt::format(" [request {}]", request_id);
  for (const auto& row : kErrors)
    if (row.code == error.code()) return error_text(row.status, row.name, message);
  return error_text(500, "INTERNAL_ERROR", message);
}

net::Response no_such_endpoint(const net::Head& head) {
  return error_text(404, "ENDPOINT_NOT_FOUND",
                    fmt::format("no such endpoint: {} {}", net::name(head.method), head.path.substr(0, 200)));
}

track::Where where_of(const PathParameters& parameters, const iam::Identity& caller) {
  const auto tenant = parameters.find("tenant"), project = parameters.find("project");
  if (tenant != parameters.end() && project != parameters.end())
    return {TenantName::parse(tenant->second), ProjectName::parse(project->second)};
  if (caller.workload && !caller.workload->project.empty())
    return {TenantName::parse(caller.workload->tenant), ProjectName::parse(caller.workload->project)};
  std::optional<track::Where> only;
  for (const auto& restriction : caller.restrictions) {
    if (restriction.scope.project().empty()) continue;
    track::Where where{TenantName::parse(restriction.scope.tenant()), ProjectName::parse(restriction.scope.project())};
    if (only && (only->tenant != where.tenant || only->project != where.project))
      throw Error(Code::invalid,
                  "this token is for several projects: name one in the tracking URI, "
                  "http(s)://HOST/mlflow/TENANT/PROJECT");
    only = std::move(where);
  }
  if (only) return *only;
  const auto& of = caller.principal.tenant;
  return {TenantName::parse(of.empty() ? kProjectOfNoChoice : std::string_view(of)),
          ProjectName::parse(kProjectOfNoChoice)};
}

Permission allowed_in_project(std::string_view action) {
  return Permission::by(
      action,
      [action](const PathParameters& parameters, const net::Head&, const iam::Identity& caller) -> Permission::Needed {
        return {std::string(action), where_of(parameters, caller).scope()};
      });
}

net::Response text_response(std::string json) {
  net::Response response;
  response.headers.add("Content-Type", "application/json");
  response.body = std::move(json);
  return response;
}

namespace {

void take_plain(bool& out, const json::value& in, const std::string& path, Faults& faults) {
  if (const auto* value = in.if_bool()) {
    out = *value;
  } else if (const auto* text = in.if_string()) {
    const auto word = lower(*text);
    if (word == "true" || word == "1")
      out = true;
    else if (word == "false" || word == "0" || word.empty())
      out = false;
    else
      faults.push_back({path, fmt::format("must be true or false, not '{}'", word.substr(0, 40))});
  } else if (const auto* number = in.if_int64()) {
    out = *number != 0;
  } else {
    faults.push_back({path, "must be true or false"});
  }
}

void take_plain(std::int64_t& out, const json::value& in, const std::string& path, Faults& faults) {
  if (const auto* value = in.if_int64()) {
    out = *value;
  } else if (const auto* number = in.if_double();
             number && std::trunc(*number) == *number && std::abs(*number) < 9.2e18) {
    out = static_cast<std::int64_t>(*number);
  } else if (const auto* text = in.if_string()) {
    if (const auto parsed = parse_int(*text))
      out = *parsed;
    else
      faults.push_back({path, fmt::format("must be a whole number, not '{}'", std::string_view(*text).substr(0, 40))});
  } else {
    faults.push_back({path, "must be a whole number of 64 bits"});
  }
}

void take_plain(double& out, const json::value& in, const std::string& path, Faults& faults) {
  if (const auto* value = in.if_double()) {
    out = *value;
  } else if (in.is_int64()) {
    out = static_cast<double>(in.get_int64());
  } else if (in.is_uint64()) {
    out = static_cast<double>(in.get_uint64());
  } else if (const auto* text = in.if_string()) {
    const auto word = lower(*text);
    if (word == "nan") {
      out = std::numeric_limits<double>::quiet_NaN();
    } else if (word == "infinity" || word == "inf" || word == "+infinity") {
      out = std::numeric_limits<double>::infinity();
    } else if (word == "-infinity" || word == "-inf") {
      out = -std::numeric_limits<double>::infinity();
    } else {
      const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), out);
      if (problem != std::errc() || end != text->data() + text->size())
        faults.push_back({path, fmt::format("must be a number, not '{}'", std::string_view(*text).substr(0, 40))});
    }
  } else {
    faults.push_back({path, "must be a number"});
  }
}

void take_plain(std::string& out, const json::value& in, const std::string& path, Faults& faults) {
  if (const auto* text = in.if_string())
    out.assign(text->data(), text->size());
  else if (in.is_number() || in.is_bool())
    out = json::serialize(in);
  else if (const auto* array = in.if_array(); array && !array->empty())
    take_plain(out, array->front(), path, faults);  // a query parameter given more than once
  else
    faults.push_back({path, "must be text"});
}

void take_list(const shape::Type& type, void* out, const json::value& in, const std::string& path, Faults& faults) {
  const auto* array = in.if_array();
  if (!array) {  // one value of a repeated query parameter
    take(*type.inner, type.add(out, {}), in, path, faults);
    return;
  }
  type.clear(out, array->size());
  for (std::size_t i = 0; i < array->size(); ++i)
    take(*type.inner, type.add(out, {}), (*array)[i], shape::below(path, i), faults);
}

void take_structure(const shape::Type& type, void* out, const json::value& in, const std::string& path,
                    Faults& faults) {
  const auto* object = in.if_object();
  if (!object) {
    faults.push_back({path, "must be an object"});
    return;
  }
  for (const auto& field : type.fields()) {
    const auto* value = object->if_contains(field.name);
    if (value && !value->is_null())
      take(*field.type, shape::member_of(out, field), *value, shape::below(path, field.name), faults);
    else if (field.bounds.required)
      faults.push_back({shape::below(path, field.name), "is missing"});
  }
}

}  // namespace

void take(const shape::Type& type, void* out, const json::value& in, const std::string& path, Faults& faults) {
  using Kind = shape::Type::Kind;
  switch (type.kind) {
    case Kind::boolean:
      return take_plain(*static_cast<bool*>(out), in, path, faults);
    case Kind::whole:
      return take_plain(*static_cast<std::int64_t*>(out), in, path, faults);
    case Kind::real:
      return take_plain(*static_cast<double*>(out), in, path, faults);
    case Kind::text:
      return take_plain(*static_cast<std::string*>(out), in, path, faults);
    case Kind::any:
      *static_cast<json::value*>(out) = in;
      return;
    case Kind::optional:
      return take(*type.inner, type.add(out, {}), in, path, faults);
    case Kind::list:
      return take_list(type, out, in, path, faults);
    case Kind::structure:
      return take_structure(type, out, in, path, faults);
    case Kind::map:
    case Kind::own:
      CHECK(false, "messages of MLflow hold no such type");
  }
}

json::value read_message(Call& call, net::Request& request, Method method) {
  if (method == Method::get) {
    json::object out;
    for (const auto& [key, value] : request.head.query) {
      auto* there = out.if_contains(key);
      if (!there)
        out[key] = value;
      else if (there->is_array())
        there->as_array().push_back(json::value(value));
      else
        *there = json::array{*there, json::value(value)};
    }
    return out;
  }
  const auto text = request.body.read_all();
  call.note_body(text);
  if (trim(text).empty()) return json::object{};
  if (method == Method::post || method == Method::put) {
    const auto type = request.head.headers.find("Content-Type").value_or("");
    if (lower(trim(type.substr(0, type.find(';')))) != "application/json")
      throw Error(Code::invalid, fmt::format("the body must be application/json, not '{}'", type.substr(0, 60)));
  }
  auto message = parse_json(text);
  if (const auto* inner = message.if_string()) message = parse_json(*inner);  // very old clients encode twice
  return message;
}

namespace {

// How many bytes at the front stand for themselves in JSON, in steps of eight: most of what is written is plain.
std::size_t plain_bytes(std::string_view text) {
  constexpr std::uint64_t kOnes = ~std::uint64_t{0} / 255, kHigh = kOnes * 0x80;
  const auto has_zero = [](std::uint64_t x) { return (x - kOnes) & ~x & kHigh; };
  std::size_t at = 0;
  for (std::uint64_t eight = 0; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    const auto below_space = (eight - kOnes * 0x20) & ~eight & kHigh;
    if (below_space | has_zero(eight ^ kOnes * '"') | has_zero(eight ^ kOnes * '\\')) break;
  }
  return at;
}

}  // namespace

void Text::quoted(std::string_view value) {
  out_ += '"';
  std::size_t done = 0;
  for (std::size_t i = plain_bytes(value); i < value.size(); ++i) {
    const auto c = static_cast<unsigned char>(value[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out_.append(value, done, i - done);
    done = i + 1;
    if (c == '"' || c == '\\')
      out_ += {'\\', static_cast<char>(c)};
    else
      fmt::format_to(std::back_inserter(out_), "\\u{:04x}", c);
  }
  out_.append(value, done);
  out_ += '"';
}

Text& Text::key(std::string_view name) {
  comma();
  out_ += '"';
  out_ += name;  // ours: nothing to escape
  out_ += "\":";
  fresh_ = true;
  return *this;
}

Text& Text::string(std::string_view value) {
  comma();
  quoted(value);
  return *this;
}

Text& Text::number(std::int64_t value) {
  comma();
  const fmt::format_int digits(value);
  out_.append(digits.data(), digits.size());
  return *this;
}

Text& Text::number(double value) {
  comma();
  if (std::isnan(value))
    out_ += "\"NaN\"";
  else if (std::isinf(value))
    out_ += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  else
    fmt::format_to(std::back_inserter(out_), "{}", value);
  return *this;
}

Text& Text::boolean(bool value) {
  comma();
  out_ += value ? "true" : "false";
  return *this;
}

Text& Text::raw(std::string_view json) {
  comma();
  out_ += json;
  return *this;
}

Text& Text::text_member(std::string_view name, std::string_view value) {
  return value.empty() ? *this : key(name).string(value);
}

std::string page_token(std::size_t offset) { return to_base64(as_bytes(fmt::format(R"({{"offset":{}}})", offset))); }

std::size_t parse_page_token(std::string_view token) {
  if (token.empty()) return 0;
  try {
    const auto bytes = from_base64(token);
    const auto value = parse_json(as_text(bytes));
    const auto offset = value.as_object().at("offset").to_number<std::int64_t>();
    if (offset >= 0) return static_cast<std::size_t>(offset);
  } catch (const std::exception&) {
  }
  throw Error(Code::invalid, fmt::format("page_token: not one of ours: '{}'", token.substr(0, 60)));
}

}  // namespace falaj::api::mlflow
