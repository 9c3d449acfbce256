// SPDX-License-Identifier: Apache-2.0
#pragma once

// How MLflow's clients speak over HTTP: which paths are theirs, how they name the project, what errors look like to
// them, and how their messages are read. docs/guide/tracking.md says what is served.

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/call.h"
#include "api/route.h"
#include "foundation/base/shape.h"
#include "lifecycle/track/types.h"

namespace falaj::api::mlflow {

// A path in the one spelling that has a route, and the project when the address names it
// ("/mlflow/acme/flights/api/2.0/..."). The browser's twin "/ajax-api/..." becomes "/api/...". Nothing for paths that
// are not of this protocol.
struct Address {
  std::string path;
  std::string tenant, project;
};
std::optional<Address> canonical(std::string_view path);
bool speaks(std::string_view path);  // whether its errors are written as these clients expect

net::Response error_response(const Error& error, std::string_view request_id);
net::Response no_such_endpoint(const net::Head& head);

// The project a call is about: of the address, else the one project the token is restricted to, else the project
// "default" of the caller's tenant.
track::Where where_of(const PathParameters& parameters, const iam::Identity& caller);
Permission allowed_in_project(std::string_view action);

net::Response text_response(std::string json);

// ---- reading: unknown fields are ignored, numbers may be text, text may be a number, null is absent.
void take(const shape::Type& type, void* out, const json::value& in, const std::string& path, Faults& faults);

json::value read_message(Call& call, net::Request& request, Method method);

template <class In>
In read(Call& call, net::Request& request, Method method) {
  const auto message = read_message(call, request, method);
  In in;
  Faults faults;
  take(shape::kTypeOf<In>, &in, message, "", faults);
  refuse_if_any("the request is not valid", std::move(faults));
  return in;
}

// ---- writing
// JSON text as it is made; nothing is held twice. Members and elements are separated by themselves.
class Text {
 public:
  Text& open(char bracket) { return comma(), out_ += bracket, fresh_ = true, *this; }
  Text& close(char bracket) { return out_ += bracket, fresh_ = false, *this; }
  Text& key(std::string_view name);
  Text& string(std::string_view value);
  Text& number(std::int64_t value);
  Text& number(double value);  // NaN and the infinities as text, as these clients read them
  Text& boolean(bool value);
  Text& raw(std::string_view json);
  // A member that is left out when empty, as protobuf does.
  Text& text_member(std::string_view name, std::string_view value);
  std::string take() { return std::move(out_); }

 private:
  void comma() {
    if (!fresh_) out_ += ',';
    fresh_ = false;
  }
  void quoted(std::string_view value);
  std::string out_;
  bool fresh_ = true;
};

// One call of the protocol: `handler(Call&, const track::Where&, const In&) -> std::string` of JSON.
template <class In, class Handler>
void rpc(Routes& routes, const Declaration& declaration, Handler handler) {
  const auto method = declaration.method;
  routes.add_foreign(declaration, schema_of<In>, [method, handler](Call& call, net::Request& request) {
    const auto in = read<In>(call, request, method);
    return text_response(handler(call, where_of(call.parameters(), call.caller()), in));
  });
}

inline constexpr BodyLimit kMessageMax{std::uint64_t{32} << 20};
inline constexpr std::string_view kEmpty = "{}";

// Page tokens are ours to choose: the offset, in base64 as the reference has it.
std::string page_token(std::size_t offset);
std::size_t parse_page_token(std::string_view token);  // throws invalid

}  // namespace falaj::api::mlflow
