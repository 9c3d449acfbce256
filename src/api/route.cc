// SPDX-License-Identifier: Apache-2.0
#include "api/route.h"

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "foundation/base/text.h"

namespace falaj::api {
namespace {

std::optional<std::string_view> parameter_name(std::string_view element) {
  if (element.size() < 3 || element.front() != '{' || element.back() != '}') return std::nullopt;
  return element.substr(1, element.size() - 2);
}

}  // namespace

Permission::Needed Permission::needed(const PathParameters& parameters, const net::Head& head,
                                      const iam::Identity& caller) const {
  if (needs_) return needs_(parameters, head, caller);
  PathParameters values = parameters;
  values["scope"] = head.parameter("scope").value_or("/");
  return {fill(action_, values), iam::Scope::parse(fill(resource_, values))};
}

void Routes::insert(std::unique_ptr<Route> route) {
  CHECK(route->path.starts_with('/'), "a route's path begins with a slash");
  Node* node = &root_;
  for (const auto element : split(route->path.substr(1), '/')) {
    if (const auto name = parameter_name(element); name && name->ends_with('*')) {
      auto& next = node->fixed["*"];
      if (!next) next = std::make_unique<Node>();
      next->rest_name = name->substr(0, name->size() - 1);
      node = next.get();
    } else if (name) {
      if (!node->any) node->any = std::make_unique<Node>();
      CHECK(node->any_name.empty() || node->any_name == *name, "one name for one parameter of a path");
      node->any_name = *name;
      node = node->any.get();
    } else {
      auto& next = node->fixed[std::string(element)];
      if (!next) next = std::make_unique<Node>();
      node = next.get();
    }
  }
  for (const auto* other : node->here) CHECK(other->method != route->method, "two routes for one method and path");
  node->here.push_back(route.get());
  routes_.push_back(std::move(route));
}

template <class F>
const Routes::Node* Routes::walk(std::string_view path, F each) const {
  if (!path.starts_with('/')) return nullptr;
  const Node* node = &root_;
  path.remove_prefix(1);
  for (bool last = false; !last;) {
    const auto slash = path.find('/');
    last = slash == std::string_view::npos;
    const auto element = path.substr(0, slash);
    if (!last) path.remove_prefix(slash + 1);
    if (const auto fixed = node->fixed.find(element); fixed != node->fixed.end()) {
      node = fixed->second.get();
    } else if (node->any && !element.empty()) {
      each(node->any_name, element);
      node = node->any.get();
    } else if (const auto rest = node->fixed.find("*"); rest != node->fixed.end() && !element.empty()) {
      each(rest->second->rest_name,
           last ? element : std::string_view(element.data(), element.size() + 1 + path.size()));
      return rest->second.get();
    } else {
      return nullptr;
    }
  }
  return node;
}

void Routes::add_foreign(const Declaration& declaration, std::function<json::object(json::object&)> request_schema,
                         std::function<net::Response(Call&, net::Request&)> handle) {
  auto route = std::make_unique<Route>(declaration);
  route->request_schema = std::move(request_schema);
  route->raw_type = "application/json";
  route->raw_body = !route->request_schema && route->limits.bytes() > 0;
  route->handle = std::move(handle);
  insert(std::move(route));
}

namespace {
// HEAD is GET without its body; the server leaves the body out.
bool serves(const Route& route, Method method) {
  return route.method == method || (method == Method::head && route.method == Method::get);
}
}  // namespace

const Route* Routes::find(Method method, std::string_view path) const {
  const Node* node = walk(path, [](const std::string&, std::string_view) {});
  if (node)
    for (const auto* route : node->here)
      if (serves(*route, method)) return route;
  return nullptr;
}

Routes::Match Routes::match(Method method, std::string_view path) const {
  Match match;
  const Node* node =
      walk(path, [&](const std::string& name, std::string_view value) { match.parameters.emplace(name, value); });
  if (!node) return match;
  for (const auto* route : node->here)
    if (serves(*route, method)) match.route = route;
  if (match.route) return match;
  for (const auto* route : node->here) {
    match.allowed.push_back(route->method);
    if (route->method == Method::get) match.allowed.push_back(Method::head);
  }
  return match;
}

std::string fill(std::string_view pattern, const PathParameters& parameters) {
  std::string out;
  for (;;) {
    const auto open = pattern.find('{');
    out += pattern.substr(0, open);
    if (open == std::string_view::npos) return out;
    const auto close = pattern.find('}', open);
    const auto found = parameters.find(pattern.substr(open + 1, close - open - 1));
    CHECK(found != parameters.end(), "a permission names a parameter that its path does not have");
    out += found->second;
    pattern.remove_prefix(close + 1);
  }
}

namespace detail {

json::value read_json_body(Call& call, net::Request& request) {
  const std::string text = request.body.read_all();
  call.note_body(text);
  if (text.empty()) return json::object{};
  const auto type = request.head.headers.find("Content-Type").value_or("");
  if (!lower(type).starts_with("application/json"))
    throw Error(Code::invalid, fmt::format("the body must be application/json, not '{}'", type.substr(0, 60)));
  return parse_json(text);
}

net::Response json_response(const json::value& value) {
  net::Response response;
  response.headers.add("Content-Type", "application/json");
  response.body = json::serialize(value);
  return response;
}

json::value query_object(const Fields& fields, const net::Head& head) {
  using Kind = shape::Type::Kind;
  json::object out;
  for (const auto& entry : head.query) {
    const auto& key = entry.first;
    const auto& value = entry.second;
    if (key == "scope") continue;  // every route's: it chooses what the permission is asked on
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == key; });
    if (field == fields.end()) {
      out[key] = value;  // named in the fault
      continue;
    }
    bool list = false;
    const auto* type = field->type;
    for (; type->kind == Kind::optional || type->kind == Kind::list; type = type->inner)
      list = list || type->kind == Kind::list;
    json::value typed(value);
    if (type->kind == Kind::whole || type->kind == Kind::real) {
      if (const auto number = parse_int(value)) typed = *number;
    } else if (type->kind == Kind::boolean && (value == "true" || value == "false")) {
      typed = value == "true";
    }
    if (list) {
      if (!out.contains(key)) out[key] = json::array{};
      out[key].as_array().push_back(std::move(typed));
    } else {
      if (out.contains(key)) throw Error(Code::invalid, "request", {{key, "given more than once"}});
      out[key] = std::move(typed);
    }
  }
  return out;
}

}  // namespace detail
}  // namespace falaj::api
