// SPDX-License-Identifier: Apache-2.0
#include "api/service.h"

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/errors.h"
#include "api/link.h"
#include "api/mlflow/protocol.h"
#include "foundation/base/log.h"
#include "foundation/base/text.h"
#include "foundation/net/body_pipe.h"

namespace falaj::api {
namespace {

constexpr std::size_t kBucketsMax = 100'000;  // callers remembered for rate limits; past it all start full again
constexpr std::string_view kSessionCookie = "falaj_session=";

std::string_view session_of(const net::Head& head) {
  for (const auto part : split(head.headers.find("Cookie").value_or(""), ';')) {
    const auto cookie = trim(part);
    if (cookie.starts_with(kSessionCookie)) return cookie.substr(kSessionCookie.size());
  }
  return {};
}

net::Admission refuse(const Error& error, const net::Head& head) {
  net::Admission admission;
  admission.refusal = error_response(error, head);
  return admission;
}

net::Admission no_such_route(const Routes::Match& match, const net::Head& head) {
  if (match.allowed.empty() && mlflow::speaks(head.path)) {
    net::Admission admission;
    admission.refusal = mlflow::no_such_endpoint(head);
    return admission;
  }
  if (match.allowed.empty())
    return refuse(Error(Code::not_found, fmt::format("no such path: {}", head.path.substr(0, 100))), head);
  std::vector<std::string> allowed;
  for (const auto method : match.allowed) allowed.emplace_back(net::name(method));
  auto admission = refuse(
      Error(Code::invalid, fmt::format("this path takes {}, not {}", join(allowed, ", "), net::name(head.method))),
      head);
  admission.refusal->status = 405;
  admission.refusal->headers.set("Allow", join(allowed, ", "));
  return admission;
}

net::Response our_error(const Route& route, const net::Head& head, const char* problem) {
  log::error("call_failed", {{"request", head.request_id}, {"route", route.path}, {"problem", problem}});
  return error_response(Error(Code::internal, "an error of ours; the server's log has it under this request id"), head);
}

}  // namespace

ApiService::ApiService(Platform& platform, const Routes& routes, Metrics& metrics)
    : platform_(platform),
      routes_(routes),
      denied_(metrics.counter("falaj_api_denied_total", "Calls refused for want of a credential or a permission.")),
      limited_(metrics.counter("falaj_api_limited_total", "Calls refused by a rate limit.")) {
  for (const auto& route : routes.all()) {
    const Labels labels{{"method", std::string(net::name(route->method))}, {"route", std::string(route->path)}};
    auto& probe = probes_[route.get()];
    probe.seconds =
        &metrics.histogram("falaj_api_request_seconds", "Time from the head of a call to the end of its answer.",
                           Metrics::seconds_buckets(), labels);
    for (int c = 0; c < 6; ++c) {
      Labels with_class = labels;
      with_class["code"] = fmt::format("{}xx", c);
      probe.by_class[c] =
          c < 2 ? nullptr
                : &metrics.counter("falaj_api_requests_total", "Calls answered, by class of status.", with_class);
    }
  }
}

void ApiService::limit(const std::string& who, const iam::Rate& rate, const std::string& by) {
  Lock lock(mu_);
  if (buckets_.size() >= kBucketsMax) buckets_.clear();
  const auto admission = iam::take(buckets_[who], rate, platform_.clock.now().count());
  if (admission.admitted) return;
  limited_.Increment();
  throw Error(Code::exhausted, fmt::format("too many calls: at most {} a second{}; retry in {}", rate.per_second, by,
                                           format_duration_us(std::max<std::int64_t>(admission.retry_after_us, 1000))));
}

void ApiService::limit_by_quotas(const std::string& who, const iam::Scope& where) {
  const auto directory = platform_.directory.snapshot();
  for (const auto& [key, quota] : directory->all<iam::Quota>()) {
    if (!quota.requests_per_second || !quota.scope.contains(where)) continue;
    const auto rate = static_cast<double>(*quota.requests_per_second);
    limit(fmt::format("{} in {}", who, quota.scope.str()), {rate, 2 * rate}, fmt::format(" by quota {}", key));
  }
}

void ApiService::limit_denials(const net::Head& head) {
  denied_.Increment();
  // Somebody who only ever guesses must not be able to fill the audit log.
  limit("denied " + head.peer.address, platform_.limits.denied);
}

net::Response ApiService::record_denial(const sql::Act& act, const Error& error, const net::Head& head) {
  try {
    platform_.audit.record_denied(act, {{"why", error.what()}});
  } catch (const Error& e) {
    log::error("denial_not_recorded", {{"request", act.request_id}, {"problem", e.what()}});
    return error_response(Error(Code::unavailable, "the audit log cannot be written"), head);
  }
  return error_response(error, head);
}

net::Admission ApiService::deny(const Route& route, const net::Head& head, const Error& error, const std::string& actor,
                                const std::string& resource) {
  try {
    limit_denials(head);
  } catch (const Error& e) {
    return refuse(e, head);
  }
  net::Admission admission;
  admission.body_bytes_max = route.limits.bytes();
  admission.place = Place::worker;
  const sql::Act act{actor, std::string(route.permission.action().empty() ? route.path : route.permission.action()),
                     resource, head.request_id};
  admission.handle = [this, act, error](net::Request& request) {
    auto response = record_denial(act, error, request.head);
    response.close = true;  // the body, if any, was not wanted
    return response;
  };
  return admission;
}

// Runs the handler; what it throws becomes the answer.
net::Response ApiService::run(const Route& route, net::Request& request, PathParameters parameters,
                              std::optional<iam::Identity> caller) {
  const auto& head = request.head;
  Call call(platform_, route, request, std::move(parameters), std::move(caller));
  try {
    try {
      return route.handle(call, request);
    } catch (const Error& e) {
      if (e.code() != Code::denied && e.code() != Code::unauthenticated) throw;
      call.will_wait();
      limit_denials(head);
      return record_denial(call.denied_act(), e, head);
    }
  } catch (const Error& e) {
    if (e.code() == Code::internal) return our_error(route, head, e.what());
    if (e.code() == Code::corrupt)
      log::error("call_failed", {{"request", head.request_id}, {"route", route.path}, {"problem", e.what()}});
    return error_response(e, head);
  } catch (const std::exception& e) {
    return our_error(route, head, e.what());
  }
}

// As run, for a route that answers later. The head stays until the reply.
void ApiService::begin(const Route& route, const net::Head& head, std::string_view body, net::Loop& loop,
                       net::Reply reply, PathParameters parameters, std::optional<iam::Identity> caller) {
  net::MemoryBody bytes(body);
  net::Request request{head, bytes, true};
  Call call(platform_, route, request, std::move(parameters), std::move(caller));
  const auto answered = [&route, &head, &loop, reply](Outcome outcome) {
    auto response = std::make_shared<net::Response>(std::move(outcome.response()));
    if (const auto* error = outcome.error())
      *response =
          error->code() == Code::internal ? our_error(route, head, error->what()) : error_response(*error, head);
    loop.post([reply, response] { reply(std::move(*response)); });
  };
  try {
    route.begin(call, request, answered);
  } catch (const Error& e) {
    answered(e);
  } catch (const std::exception& e) {
    answered(Error(Code::internal, e.what()));
  }
}

net::Admission ApiService::admit(const net::Head& head) {
  const auto address = mlflow::canonical(head.path);
  auto match = routes_.match(head.method, address ? address->path : head.path);
  if (address && !address->tenant.empty()) {
    match.parameters["tenant"] = address->tenant;
    match.parameters["project"] = address->project;
  }
  if (!match.route) return no_such_route(match, head);
  const Route& route = *match.route;
  std::optional<iam::Identity> caller;
  if (route.permission.kind() != Permission::Kind::anyone) {
    try {
      caller = route.permission.kind() == Permission::Kind::link
                   ? platform_.directory.standing_for(credential_of_link(platform_, head))
                   : platform_.directory.authenticate(
                         {head.headers.find("Authorization").value_or(""), session_of(head), head.peer.certificate});
    } catch (const Error& e) {
      return deny(route, head, e, "anyone", head.path);
    }
  }
  if (route.permission.kind() == Permission::Kind::action || route.permission.kind() == Permission::Kind::link) {
    std::string resource = head.path;
    try {
      const auto needed = route.permission.needed(match.parameters, head, *caller);
      resource = needed.resource.str();
      platform_.directory.require(*caller, needed.action, needed.resource);
      limit_by_quotas(caller->principal.str(), needed.resource);
    } catch (const Error& e) {
      if (e.code() != Code::denied) return refuse(e, head);
      return deny(route, head, e, caller->principal.str(), resource);
    }
  }
  try {
    limit(caller ? caller->principal.str() : "anyone " + head.peer.address,
          caller ? platform_.limits.caller : platform_.limits.anyone);
  } catch (const Error& e) {
    return refuse(e, head);
  }
  net::Admission admission;
  admission.body_bytes_max = route.limits.bytes();
  admission.place = route.place;
  if (route.begin) {
    admission.begin = [this, &route, parameters = std::move(match.parameters), caller = std::move(caller)](
                          const net::Head& head_again, std::string_view body, net::Loop& loop, net::Reply reply) {
      begin(route, head_again, body, loop, std::move(reply), parameters, caller);
    };
    return admission;
  }
  admission.handle = [this, &route, parameters = std::move(match.parameters),
                      caller = std::move(caller)](net::Request& request) mutable {
    if (request.must_not_wait) return run(route, request, parameters, caller);  // perhaps not the last time
    return run(route, request, std::move(parameters), std::move(caller));
  };
  return admission;
}

void ApiService::finished(const net::Head& head, int status, std::int64_t micros, std::uint64_t bytes_in,
                          std::uint64_t bytes_out) {
  const auto address = mlflow::canonical(head.path);
  if (const auto* route = routes_.find(head.method, address ? address->path : head.path)) {
    const auto& probe = probes_.at(route);
    probe.seconds->Observe(static_cast<double>(micros) / 1e6);
    probe.by_class[std::clamp(status / 100, 2, 5)]->Increment();
  }
  if (!log::is_on(log::Level::debug)) return;  // spares making the fields
  log::debug("call", {{"request", head.request_id},
                      {"method", net::name(head.method)},
                      {"path", head.path},
                      {"status", status},
                      {"micros", micros},
                      {"bytes_in", bytes_in},
                      {"bytes_out", bytes_out},
                      {"peer", head.peer.address}});
}

}  // namespace falaj::api
