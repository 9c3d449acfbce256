// SPDX-License-Identifier: Apache-2.0
#pragma once

// A route is one declaration: method, path, permission, limits, audit verb, summary, request and response types,
// handler. Dispatch, authorisation, openapi.json and the endpoint-by-role test all come from the table of them.
//
//   routes.add<NewToken, MadeToken>(
//       {Method::post, "/v1/tokens", Permission::signed_in(), BodyLimit{64 * 1024}, Audit::verb("token.create"),
//        Place::worker, "Make an API token."},
//       [&](Call& call, const NewToken& in) { return make_token(call, in); });

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "foundation/base/shape.h"
#include "foundation/net/http.h"
#include "governance/iam/directory.h"
#include "governance/iam/scope.h"

namespace falaj::api {

using net::Method;
using net::Place;

class Call;  // call.h: the caller, the path's parameters, and how to write

using PathParameters = std::map<std::string, std::string, std::less<>>;

// Who may use a route. There is no default: a route that does not say does not compile.
class Permission {
 public:
  static Permission anyone() { return Permission(Kind::anyone, "", ""); }
  // Any valid credential; the handler asks for more with Call::require where it depends on the body. Such a handler
  // runs on a worker, as a refusal is written to the audit log.
  // `resource` tells the description of the API whether the handler looks at {scope}.
  static Permission signed_in(std::string_view resource = "") { return Permission(Kind::signed_in, "", resource); }
  // `action` on `resource`; both may hold {parameter} of the path, and {scope}, the query's "scope" (default "/").
  static Permission of(std::string_view action, std::string_view resource) {
    return Permission(Kind::action, action, resource);
  }
  // What follows from the head and the caller, but not as simply; `says` is the action, for the description of the API.
  struct Needed {
    std::string action;
    iam::Scope resource;
  };
  using Needs =
      std::function<Needed(const PathParameters& parameters, const net::Head& head, const iam::Identity& caller)>;
  static Permission by(std::string_view says, Needs needs) {
    Permission out(Kind::action, says, "{scope}");
    out.needs_ = std::move(needs);
    return out;
  }

  // Whoever has the address, which `link.h` signed in the name of a caller; that caller must still be allowed.
  static Permission by_link(std::string_view says, Needs needs) {
    auto out = by(says, std::move(needs));
    out.kind_ = Kind::link;
    return out;
  }

  enum class Kind { anyone, signed_in, action, link };
  Kind kind() const { return kind_; }
  std::string_view action() const { return action_; }
  std::string_view resource() const { return resource_; }
  // Requires: kind is action or link. Throws invalid or not_found when the request names nothing that could be asked
  // for.
  Needed needed(const PathParameters& parameters, const net::Head& head, const iam::Identity& caller) const;

 private:
  Permission(Kind kind, std::string_view action, std::string_view resource)
      : kind_(kind), action_(action), resource_(resource) {}
  Kind kind_;
  std::string_view action_, resource_;
  Needs needs_;
};

// Most bytes of a request body. Counted as they are read.
class BodyLimit {
 public:
  explicit constexpr BodyLimit(std::uint64_t bytes) : bytes_(bytes) {}
  static constexpr BodyLimit none() { return BodyLimit(0); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_;
};
inline constexpr BodyLimit kSmallBody{64 * 1024};  // a form, not a file

// What the audit log says of a call that succeeded.
class Audit {
 public:
  static Audit read() { return Audit(""); }  // changes nothing, so leaves no record
  static Audit verb(std::string_view verb) { return Audit(verb); }
  std::string_view verb() const { return verb_; }

 private:
  explicit Audit(std::string_view verb) : verb_(verb) {}
  std::string_view verb_;
};

struct Declaration {
  Method method;
  std::string_view path;  // "/v1/tokens/{id}": a parameter is one whole element; "{name*}", last: all that is left
  Permission permission;
  BodyLimit limits;
  Audit audit;
  Place place;
  std::string_view summary;
};

struct Nothing {};  // a request or response without fields

// What a call is answered with, or what went wrong.
class Outcome {
 public:
  Outcome(net::Response response) : response_(std::move(response)) {}
  Outcome(Error error) : error_(std::move(error)) {}
  const Error* error() const { return error_ ? &*error_ : nullptr; }
  net::Response& response() { return response_; }

 private:
  net::Response response_;
  std::optional<Error> error_;
};
using Answered = std::function<void(Outcome)>;

struct Route : Declaration {
  explicit Route(const Declaration& declaration) : Declaration(declaration) {}
  bool raw_body = false;                                                       // the handler reads the body itself
  std::string raw_type;                                                        // content type of such a response
  std::function<json::object(json::object&)> request_schema, response_schema;  // unset: none
  std::function<net::Response(Call&, net::Request&)> handle;
  // Instead, for Place::later: answers when there is something to say, from any thread.
  std::function<void(Call&, net::Request&, Answered)> begin;
};

class Routes {
 public:
  // A call with JSON in (the body; for GET and DELETE the query) and JSON out.
  template <class In, class Out, class Handler>
  void add(const Declaration& declaration, Handler handler);
  // JSON in as for add; the handler writes the answer's text itself, which is of the shape of Out: for large ones,
  // where making values of it first would cost more than reading what is in them.
  template <class In, class Out, class Handler>
  void add_written(const Declaration& declaration, Handler handler);
  // JSON in as for add; what the handler returns is sent as it is.
  template <class In, class Handler>
  void add_download(const Declaration& declaration, std::string response_type, Handler handler);
  // A question that waits without holding a worker (Place::later). The handler, on an I/O thread, must not wait; it
  // keeps `answered`, which is called once, from any thread, and nothing else of the call.
  template <class In, class Out, class Handler>
  void add_waiting(const Declaration& declaration, Handler handler);
  // A call that reads or writes its body as a stream. `In` describes the query.
  template <class In, class Handler>
  void add_stream(const Declaration& declaration, std::string response_type, Handler handler);

  // A call of another protocol, whose handler reads and answers for itself; `request_schema` describes what it reads.
  void add_foreign(const Declaration& declaration, std::function<json::object(json::object&)> request_schema,
                   std::function<net::Response(Call&, net::Request&)> handle);

  struct Match {
    const Route* route = nullptr;  // null: no such path, or (with `allowed`) not with that method
    PathParameters parameters;
    std::vector<Method> allowed;
  };
  Match match(Method method, std::string_view path) const;
  const Route* find(Method method, std::string_view path) const;  // the route alone; null when there is none

  const std::vector<std::unique_ptr<Route>>& all() const { return routes_; }
  std::string openapi(std::string_view version) const;

 private:
  struct Node {
    std::map<std::string, std::unique_ptr<Node>, std::less<>> fixed;
    std::unique_ptr<Node> any;
    std::string any_name, rest_name;  // rest_name: this node takes whatever is left of the path
    std::vector<const Route*> here;   // one a method
  };
  void insert(std::unique_ptr<Route> route);
  // Where a path leads; null when nowhere. Tells `each` the parameters on the way.
  template <class F>
  const Node* walk(std::string_view path, F each) const;

  std::vector<std::unique_ptr<Route>> routes_;
  Node root_;
};

// "{a}/x/{b}" with its parameters put in; a missing one is a programmer's error.
std::string fill(std::string_view pattern, const PathParameters& parameters);

namespace detail {

json::value read_json_body(Call& call, net::Request& request);
net::Response json_response(const json::value& value);
// The query as a JSON object, each value of the type its field has.
json::value query_object(const Fields& fields, const net::Head& head);

template <class In>
In read_input(const Route& route, Call& call, net::Request& request) {
  const bool from_query =
      route.method == Method::get || route.method == Method::head || route.method == Method::del || route.raw_body;
  return decode<In>(from_query ? query_object(shape::fields_of<In>(), request.head) : read_json_body(call, request),
                    "request");
}

}  // namespace detail

template <class In, class Out, class Handler>
void Routes::add(const Declaration& declaration, Handler handler) {
  auto route = std::make_unique<Route>(declaration);
  const Route* self = route.get();
  if constexpr (!std::is_same_v<In, Nothing>) route->request_schema = schema_of<In>;
  if constexpr (!std::is_same_v<Out, Nothing>) route->response_schema = schema_of<Out>;
  route->handle = [self, handler = std::move(handler)](Call& call, net::Request& request) -> net::Response {
    const In in = detail::read_input<In>(*self, call, request);
    if constexpr (std::is_same_v<Out, Nothing>) {
      handler(call, in);
      return detail::json_response(json::object{});
    } else {
      return detail::json_response(encode(static_cast<const Out&>(handler(call, in))));
    }
  };
  insert(std::move(route));
}

template <class In, class Out, class Handler>
void Routes::add_written(const Declaration& declaration, Handler handler) {
  auto route = std::make_unique<Route>(declaration);
  const Route* self = route.get();
  route->request_schema = schema_of<In>;
  route->response_schema = schema_of<Out>;
  route->handle = [self, handler = std::move(handler)](Call& call, net::Request& request) -> net::Response {
    net::Response response;
    response.headers.add("Content-Type", "application/json");
    response.body = handler(call, detail::read_input<In>(*self, call, request));
    return response;
  };
  insert(std::move(route));
}

template <class In, class Handler>
void Routes::add_download(const Declaration& declaration, std::string response_type, Handler handler) {
  auto route = std::make_unique<Route>(declaration);
  const Route* self = route.get();
  route->raw_type = std::move(response_type);
  if constexpr (!std::is_same_v<In, Nothing>) route->request_schema = schema_of<In>;
  route->handle = [self, handler = std::move(handler)](Call& call, net::Request& request) -> net::Response {
    return handler(call, detail::read_input<In>(*self, call, request));
  };
  insert(std::move(route));
}

template <class In, class Out, class Handler>
void Routes::add_waiting(const Declaration& declaration, Handler handler) {
  auto route = std::make_unique<Route>(declaration);
  const Route* self = route.get();
  route->request_schema = schema_of<In>;
  route->response_schema = schema_of<Out>;
  route->begin = [self, handler = std::move(handler)](Call& call, net::Request& request, Answered answered) {
    handler(call, detail::read_input<In>(*self, call, request), std::move(answered));
  };
  insert(std::move(route));
}

template <class In, class Handler>
void Routes::add_stream(const Declaration& declaration, std::string response_type, Handler handler) {
  auto route = std::make_unique<Route>(declaration);
  const Route* self = route.get();
  route->raw_body = true;
  route->raw_type = std::move(response_type);
  if constexpr (!std::is_same_v<In, Nothing>) route->request_schema = schema_of<In>;
  route->handle = [self, handler = std::move(handler)](Call& call, net::Request& request) -> net::Response {
    return handler(call, detail::read_input<In>(*self, call, request), request);
  };
  insert(std::move(route));
}

}  // namespace falaj::api

template <>
struct falaj::Shape<falaj::api::Nothing> {
  static constexpr std::string_view name = "Nothing";
  static Fields fields() { return {}; }
};
