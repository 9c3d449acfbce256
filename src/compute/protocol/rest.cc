// SPDX-License-Identifier: Apache-2.0
#include "compute/protocol/rest.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "compute/protocol/coding.h"
#include "compute/protocol/describe.h"
#include "compute/protocol/rest_codec.h"
#include "compute/protocol/rows.h"
#include "foundation/base/text.h"
#include "foundation/net/codes.h"

namespace falaj::protocol {
namespace {

using net::Method;

constexpr std::uint64_t kOrderBytesMax = 64 * 1024;  // bodies of what is no inference
constexpr std::size_t kPackBytesMin = 4096, kPackBytesMax = std::size_t{64} << 20;
constexpr std::size_t kHeaderBytes = 192;  // about what the fields of an answer take

constexpr std::string_view kRouteNames[kRoutes] = {"live",       "ready",          "server",    "models", "model_ready",
                                                   "metadata",   "config",         "openapi",   "infer",  "predict",
                                                   "statistics", "all_statistics", "index",     "load",   "unload",
                                                   "v1_models",  "v1_model",       "v1_predict"};

struct Exact {
  std::string_view path;
  Method method;
  Route route;
};
constexpr Exact kExact[] = {
    {"/v2", Method::get, Route::server},
    {"/v2/", Method::get, Route::server},
    {"/v2/health/live", Method::get, Route::live},
    {"/v2/health/ready", Method::get, Route::ready},
    {"/v2/models", Method::get, Route::models},
    {"/v2/models/stats", Method::get, Route::all_statistics},
    {"/v2/repository/index", Method::post, Route::index},
    {"/v1/models", Method::get, Route::v1_models},
};

// What stands before and after the name of a model. The first that fits is meant.
struct Scoped {
  std::string_view prefix, ending;
  Method method;
  Route route;
  bool versioned;  // "/versions/7" may stand before the ending
};
constexpr Scoped kScoped[] = {
    {"/v2/models/", "/infer", Method::post, Route::infer, true},
    {"/v2/models/", "/predict", Method::post, Route::predict, true},
    {"/v2/models/", "/ready", Method::get, Route::model_ready, true},
    {"/v2/models/", "/config", Method::get, Route::configuration, true},
    {"/v2/models/", "/stats", Method::get, Route::statistics, true},
    {"/v2/models/", "/openapi.json", Method::get, Route::openapi, true},
    {"/v2/models/", "", Method::get, Route::metadata, true},
    {"/v2/repository/models/", "/load", Method::post, Route::load, false},
    {"/v2/repository/models/", "/unload", Method::post, Route::unload, false},
    {"/v1/models/", ":predict", Method::post, Route::v1_predict, false},
    {"/v1/models/", "", Method::get, Route::v1_model, false},
};

net::Response json_response(const json::value& value) {
  net::Response response;
  response.headers.add("Content-Type", "application/json");
  response.body = json::serialize(value);
  return response;
}

net::Response refused(int status, std::string_view why) {
  net::Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  std::string body = R"({"error":)";
  append_text(body, is_utf8(why) ? why : "the request is not UTF-8");  // a header may hold any bytes
  response.body = std::move(body += '}');
  return response;
}

net::Response refused(const Error& error) {
  auto why = std::string(error.what());
  for (const auto& fault : error.faults()) why += fmt::format("; {}: {}", fault.where, fault.what);
  auto response = refused(net::row_of(error.code()).http, why);
  if (error.code() == Code::unauthenticated) response.headers.add("WWW-Authenticate", "Bearer realm=\"falaj\"");
  if (error.code() == Code::exhausted || error.code() == Code::unavailable) response.headers.add("Retry-After", "1");
  return response;
}

net::Response yes_or_no(bool yes, std::string_view why_not) { return yes ? net::Response{} : refused(503, why_not); }

void name_prediction(net::Response& response, const Answer& answer) {
  if (!answer.prediction_id.empty()) response.headers.add(kPredictionHeader, answer.prediction_id);
}

net::Response named_response(const json::object& body, const json::object& served) {
  auto response = json_response(body);
  const auto* name = served.if_contains(kPredictionId);
  if (name && name->is_string()) response.headers.add(kPredictionHeader, std::string_view(name->get_string()));
  return response;
}

Caller caller_of(const net::Head& head) { return {&head.headers, &head.peer, head.request_id}; }

bool needs_no_token(Route route) { return route == Route::live || route == Route::ready; }

// A request as it is, or unpacked into `kept`.
std::string_view body_of(const net::Head& head, std::string_view body, std::uint64_t bytes_max, std::string& kept) {
  const auto encoding = head.headers.find("Content-Encoding");
  if (!encoding) return body;
  const auto coding = parse_coding(*encoding);
  if (!coding) return body;
  return kept = unpacked(body, *coding, bytes_max);
}

// JSON that asks for gzip is packed by the server; this is for tensors, and for those who only know deflate.
void pack(const net::Head& head, net::Response& response) {
  const auto accepted = head.headers.find("Accept-Encoding");
  if (!accepted) return;
  auto* body = std::get_if<std::string>(&response.body);
  if (!body || body->size() < kPackBytesMin || body->size() > kPackBytesMax) return;
  const auto coding = accepted_coding(*accepted);
  if (!coding) return;
  auto smaller = packed(*body, *coding);
  if (smaller.size() >= body->size()) return;
  *body = std::move(smaller);
  response.headers.add("Content-Encoding", name(*coding));
  response.headers.add("Vary", "Accept-Encoding");
}

std::optional<std::uint64_t> json_bytes_of(const net::Head& head) {
  const auto text = head.headers.find("Inference-Header-Content-Length");
  if (!text) return std::nullopt;
  const auto bytes = parse_int(*text);
  if (!bytes || *bytes < 0) throw Error(Code::invalid, "Inference-Header-Content-Length is no number of bytes");
  return static_cast<std::uint64_t>(*bytes);
}

}  // namespace

std::string_view name(Route route) { return kRouteNames[static_cast<std::size_t>(route)]; }

std::optional<Target> parse_target(std::string_view path) {
  for (const auto& exact : kExact)
    if (path == exact.path) return Target{exact.route, exact.method, {}, {}};
  for (const auto& scoped : kScoped) {
    if (path.size() <= scoped.prefix.size() + scoped.ending.size() || !path.starts_with(scoped.prefix) ||
        !path.ends_with(scoped.ending))
      continue;
    Target target{scoped.route, scoped.method, {}, {}};
    target.model = path.substr(scoped.prefix.size(), path.size() - scoped.prefix.size() - scoped.ending.size());
    constexpr std::string_view kVersions = "/versions/";
    if (const auto at = target.model.rfind(kVersions); scoped.versioned && at != std::string_view::npos && at > 0) {
      target.version = target.model.substr(at + kVersions.size());
      target.model = target.model.substr(0, at);
      if (target.version.empty() || target.version.find('/') != std::string_view::npos) return std::nullopt;
    }
    if (target.model.back() == '/') return std::nullopt;
    return target;
  }
  return std::nullopt;
}

std::vector<Door> doors(std::string_view model, std::string_view version) {
  std::vector<Door> out;
  for (const auto& exact : kExact) out.push_back({exact.route, exact.method, std::string(exact.path), false});
  for (const auto& scoped : kScoped) {
    const auto add = [&](const std::string& name) {
      out.push_back({scoped.route, scoped.method, fmt::format("{}{}{}", scoped.prefix, name, scoped.ending), true});
    };
    add(std::string(model));
    if (scoped.versioned) add(fmt::format("{}/versions/{}", model, version));
  }
  return out;
}

struct Rest::Exchange {
  Exchange(const net::Head& its_head, net::Reply its_reply) : head(its_head), reply(std::move(its_reply)) {}
  const net::Head& head;
  net::Reply reply;
  std::string unpacked;
  Asked asked;

  void finish(net::Response&& response) {
    pack(head, response);
    reply(std::move(response));
  }
  void finish(const Outcome& outcome) {
    if (const auto* error = std::get_if<Error>(&outcome)) return reply(refused(*error));
    try {
      net::Response response;
      response.headers.reserve(4, kHeaderBytes);
      name_prediction(response, std::get<Answer>(outcome));
      auto encoded = encode_answer(asked, std::get<Answer>(outcome));
      if (encoded.json_bytes) {
        response.headers.add("Content-Type", "application/octet-stream");
        response.headers.add("Inference-Header-Content-Length", std::to_string(*encoded.json_bytes));
      } else {
        response.headers.add("Content-Type", "application/json");
      }
      response.body = std::move(encoded.body);
      finish(std::move(response));
    } catch (const Error& error) {
      reply(refused(error));
    }
  }
};

Rest::Rest(Inference& inference, RestLimits limits, Metrics& metrics) : inference_(inference), limits_(limits) {
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const Labels labels{{"route", std::string(kRouteNames[i])}};
    probes_[i].seconds = &metrics.histogram("falaj_protocol_http_seconds", "From a request's head to its answer's end.",
                                            Metrics::seconds_buckets(), labels);
    for (int hundreds = 1; hundreds <= 5; ++hundreds) {
      auto with_class = labels;
      with_class["class"] = fmt::format("{}xx", hundreds);
      probes_[i].by_class[hundreds] =
          &metrics.counter("falaj_protocol_http_requests_total", "Answers of the inference protocol.", with_class);
    }
  }
}

net::Admission Rest::admit(const net::Head& head) {
  net::Admission admission;
  const auto target = parse_target(head.path);
  if (!target) {
    admission.refusal = refused(404, "Not Found");
    return admission;
  }
  if (head.method != target->method && !(head.method == Method::head && target->method == Method::get)) {
    admission.refusal = refused(405, fmt::format("{} takes {}", head.path, net::name(target->method)));
    admission.refusal->headers.add("Allow", net::name(target->method));
    return admission;
  }
  try {
    if (!needs_no_token(target->route)) inference_.admit(caller_of(head));
  } catch (const Error& error) {
    admission.refusal = refused(error);
    return admission;
  }
  const bool asks_model =
      target->route == Route::infer || target->route == Route::predict || target->route == Route::v1_predict;
  if (target->method == Method::post) admission.body_bytes_max = asks_model ? limits_.body_bytes_max : kOrderBytesMax;
  admission.place = net::Place::later;
  admission.begin = [this](const net::Head& of, std::string_view body, net::Loop& loop, net::Reply reply) {
    begin(of, body, loop, std::move(reply));
  };
  return admission;
}

void Rest::begin(const net::Head& head, std::string_view body, net::Loop& loop, net::Reply reply) {
  const auto target = parse_target(head.path);
  CHECK(target, "only what was admitted is begun");
  auto exchange = std::make_shared<Exchange>(head, std::move(reply));
  try {
    body = body_of(head, body, limits_.body_bytes_max, exchange->unpacked);
    switch (target->route) {
      case Route::infer:
        return infer(exchange, *target, body, loop);
      case Route::predict:
        return predict(exchange, *target, body, loop);
      case Route::v1_predict:
        return predict_v1(exchange, *target, body, loop);
      default:
        exchange->finish(answer(caller_of(head), *target, body));
    }
  } catch (const Error& error) {
    exchange->reply(refused(error));
  }
}

void Rest::infer(std::shared_ptr<Exchange> exchange, const Target& target, std::string_view body, net::Loop& loop) {
  const auto& head = exchange->head;
  const auto caller = caller_of(head);
  const auto json_bytes = json_bytes_of(head);
  auto& asked = exchange->asked;
  asked = json_bytes == 0U
              ? decode_raw(body, inference_.describe(caller, std::string(target.model), std::string(target.version)))
              : decode_infer(body, json_bytes);
  asked.ask.model = target.model;
  asked.ask.version = target.version;
  auto ask = std::exchange(asked.ask, {});
  inference_.infer(caller, std::move(ask), loop,
                   [exchange = std::move(exchange)](Outcome&& outcome) { exchange->finish(outcome); });
}

void Rest::predict(std::shared_ptr<Exchange> exchange, const Target& target, std::string_view body, net::Loop& loop) {
  auto ask = decode_predict(body);
  ask.model = target.model;
  ask.version = target.version;
  const auto caller = caller_of(exchange->head);
  inference_.predict(caller, std::move(ask), loop,
                     [exchange = std::move(exchange)](std::variant<Predicted, Error> outcome) {
                       if (const auto* error = std::get_if<Error>(&outcome)) return exchange->reply(refused(*error));
                       const auto body = encode_predicted(std::move(std::get<Predicted>(outcome)));
                       exchange->finish(named_response(body.as_object(), body.as_object()));
                     });
}

void Rest::predict_v1(std::shared_ptr<Exchange> exchange, const Target& target, std::string_view body,
                      net::Loop& loop) {
  const auto caller = caller_of(exchange->head);
  auto instances = decode_instances(body);
  if (!instances.empty() && instances[0].is_object()) {
    Predict ask{std::string(target.model), {}, std::move(instances), 0};
    inference_.predict(caller, std::move(ask), loop,
                       [exchange = std::move(exchange)](std::variant<Predicted, Error> outcome) {
                         if (const auto* error = std::get_if<Error>(&outcome)) return exchange->reply(refused(*error));
                         auto& predicted = std::get<Predicted>(outcome);
                         const json::object body{{"predictions", std::move(predicted.rows)}};
                         exchange->finish(named_response(body, predicted.served));
                       });
    return;
  }
  const auto model = inference_.describe(caller, std::string(target.model), {});
  exchange->asked = tensor_of_instances(instances, model);
  auto ask = std::exchange(exchange->asked.ask, {});
  ask.model = target.model;
  inference_.infer(caller, std::move(ask), loop, [exchange = std::move(exchange)](Outcome&& outcome) {
    try {
      if (const auto* error = std::get_if<Error>(&outcome)) throw *error;
      auto response = json_response(predictions_of(std::get<Answer>(outcome)));
      name_prediction(response, std::get<Answer>(outcome));
      exchange->finish(std::move(response));
    } catch (const Error& error) {
      exchange->reply(refused(error));
    }
  });
}

// Everything that is answered at once.
net::Response Rest::answer(const Caller& caller, const Target& target, std::string_view body) const {
  const std::string model(target.model), version(target.version);
  switch (target.route) {
    case Route::live:
      return yes_or_no(inference_.live(), "not live");
    case Route::ready:
      return yes_or_no(inference_.ready(), "not ready");
    case Route::server:
      return json_response(server_metadata());
    case Route::model_ready:
      return yes_or_no(inference_.ready(caller, model, version), fmt::format("model {} is not ready", model));
    case Route::metadata:
      return json_response(metadata(inference_.describe(caller, model, version)));
    case Route::configuration:
      return json_response(configuration(inference_.describe(caller, model, version)));
    case Route::openapi:
      return json_response(openapi(inference_.describe(caller, model, version)));
    case Route::statistics:
    case Route::all_statistics:
      return json_response(statistics(inference_.statistics(caller, model, version)));
    case Route::index:
      return json_response(index(inference_.index(caller, decode_only_ready(body))));
    case Route::load:
      check_load(body);
      inference_.load(caller, model);
      return {};
    case Route::unload:
      inference_.unload(caller, model);
      return {};
    case Route::models:
    case Route::v1_models: {
      json::array names;
      for (const auto& entry : inference_.index(caller, true))
        if (std::find(names.begin(), names.end(), json::value(entry.model)) == names.end())
          names.emplace_back(entry.model);
      return json_response({{"models", std::move(names)}});
    }
    case Route::v1_model:
      return json_response({{"name", model}, {"ready", inference_.ready(caller, model, version)}});
    case Route::infer:
    case Route::predict:
    case Route::v1_predict:
      break;
  }
  check_failed(__FILE__, __LINE__, "route", "a route that nobody answers");
}

void Rest::finished(const net::Head& head, int status, std::int64_t micros, std::uint64_t, std::uint64_t) {
  const auto target = parse_target(head.path);
  if (!target) return;
  const auto& probe = probes_[static_cast<std::size_t>(target->route)];
  probe.seconds->Observe(static_cast<double>(micros) / 1e6);
  if (status >= 100 && status < 600) probe.by_class[status / 100]->Increment();
}

}  // namespace falaj::protocol
