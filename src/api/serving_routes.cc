// SPDX-License-Identifier: Apache-2.0
// endpoints: what is served, how traffic is shared, and what serving programs follow and report

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "api/project.h"
#include "foundation/stats/time_buckets.h"
#include "lifecycle/serving/endpoints.h"

namespace falaj::api {
namespace {

constexpr std::int64_t kPlanWaitMaxUs = 20'000'000;
constexpr BodyLimit kReportBody{4 * 1024 * 1024};

struct PlanIn {
  std::string after;
  std::int64_t wait_us = 0;
};
struct PlanOut {
  std::string fingerprint, public_key;
  std::optional<traffic::Plan> plan;
};
struct VariantOut {
  std::string name, model;
  std::int64_t version = 0;
  double weight = 0;
  bool shadow = false;
  std::string problem;
  std::vector<serving::VariantReport> servers;
};
struct EndpointFeaturesOut {
  std::string service, problem;
  std::int64_t revision = 0;
};
struct EndpointOut {
  std::string name;
  std::int64_t revision = 0;
  bool stopped = false, ready = false;
  std::string sticky;
  std::vector<std::string> urls, grpc;
  std::vector<VariantOut> variants;
  std::optional<EndpointFeaturesOut> features;
};
struct EndpointsOut {
  std::vector<EndpointOut> items;
};
struct ServedOut {
  std::int64_t number = 0, revision = 0;
  std::string at, by, why;
  std::vector<traffic::Variant> variants;
};
struct ServedHistoryOut {
  std::vector<ServedOut> items;
};
struct ServedHistoryIn {
  std::int64_t limit = kPageItems;
};
struct ServedAtIn {
  std::string time;
};
struct ServedAtOut {
  std::optional<ServedOut> served;
};
struct ShiftIn {
  std::map<std::string, double> weights;
  std::string at;
};
struct RollbackIn {
  std::int64_t to = 0;
};
struct RevisionOut {
  std::int64_t revision = 0;
  std::vector<traffic::Variant> variants;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<PlanIn> {
  using T = PlanIn;
  static constexpr std::string_view name = "PlanQuestion";
  static Fields fields() {
    return {field("after", &T::after, "Fingerprint of the plan that is known.").length(0, 64),
            field("wait_us", &T::wait_us, "How long to wait for another.").range(0, kPlanWaitMaxUs)};
  }
};
template <>
struct Shape<PlanOut> {
  using T = PlanOut;
  static constexpr std::string_view name = "PlanAnswer";
  static Fields fields() {
    return {field("fingerprint", &T::fingerprint, "Of the plan."),
            field("public_key", &T::public_key, "Of who signs the statements of models; hex."),
            field("plan", &T::plan, "Absent when it is the one that is known.")};
  }
};
template <>
struct Shape<serving::VariantReport> {
  using T = serving::VariantReport;
  static constexpr std::string_view name = "VariantReport";
  static Fields fields() {
    return {field("tenant", &T::tenant, "Of the endpoint."),
            field("project", &T::project, "Of the endpoint."),
            field("endpoint", &T::endpoint, "Its name."),
            field("variant", &T::variant, "Its name."),
            field("version", &T::version, "Of the model."),
            field("state", &T::state, "ready, asleep (the next request wakes it), unfetched, failed or quarantined."),
            field("reason", &T::reason, "Why it is not ready."),
            field("requests", &T::requests, "Answered."),
            field("failures", &T::failures, "Refused or failed."),
            field("p50_us", &T::p50_us, "Latency of every second."),
            field("p99_us", &T::p99_us, "Latency of 99 of 100."),
            field("rows", &T::rows, "Rows in its calls."),
            field("latency", &T::latency,
                  "How often an answer took how long: buckets of time and their counts, in turn; only told, not shown.")
                .length(0, static_cast<std::int64_t>(2 * stats::TimeBuckets<4>::kBuckets)),
            field("outputs", &T::outputs, "Sketches of what it predicted, base64; only told, not shown.")
                .length(0, 2 << 20)};
  }
};
template <>
struct Shape<serving::ServerReport> {
  using T = serving::ServerReport;
  static constexpr std::string_view name = "ServerReport";
  static Fields fields() {
    return {field("server", &T::server, "Its name.").required().length(1, 128),
            field("url", &T::url, "Where clients find it.").length(0, 1024),
            field("grpc", &T::grpc, "The same for gRPC.").length(0, 256),
            field("fingerprint", &T::fingerprint, "Of the plan it serves.").length(0, 64),
            field("resident_bytes", &T::resident_bytes, "Memory of its worker."),
            field("variants", &T::variants, "What each is doing.").length(0, 100'000)};
  }
};
template <>
struct Shape<VariantOut> {
  using T = VariantOut;
  static constexpr std::string_view name = "VariantView";
  static Fields fields() {
    return {field("name", &T::name, "Its name."),
            field("model", &T::model, "Its model."),
            field("version", &T::version, "Of the model."),
            field("weight", &T::weight, "Its share."),
            field("shadow", &T::shadow, "Whether its answers are dropped."),
            field("problem", &T::problem, "Why it is not in the plan."),
            field("servers", &T::servers, "What servers say.")};
  }
};
template <>
struct Shape<EndpointFeaturesOut> {
  using T = EndpointFeaturesOut;
  static constexpr std::string_view name = "EndpointFeaturesView";
  static Fields fields() {
    return {field("service", &T::service, "Whose features are looked up."),
            field("revision", &T::revision, "Of the service."),
            field("problem", &T::problem, "Why they cannot be; empty: they can.")};
  }
};
template <>
struct Shape<EndpointOut> {
  using T = EndpointOut;
  static constexpr std::string_view name = "EndpointView";
  static Fields fields() {
    return {field("name", &T::name, "Its name."),
            field("revision", &T::revision, "Of its declaration."),
            field("stopped", &T::stopped, "Whether it rests."),
            field("ready", &T::ready, "Whether a server answers with the newest plan."),
            field("sticky", &T::sticky, "Whose requests stay together."),
            field("urls", &T::urls, "Where it answers."),
            field("grpc", &T::grpc, "The same for gRPC."),
            field("variants", &T::variants, "Who answers."),
            field("features", &T::features, "What is looked up by the keys that rows name.")};
  }
};
template <>
struct Shape<EndpointsOut> {
  static constexpr std::string_view name = "EndpointViews";
  static Fields fields() { return {field("items", &EndpointsOut::items, "All of the project.")}; }
};
template <>
struct Shape<ServedOut> {
  using T = ServedOut;
  static constexpr std::string_view name = "ServedState";
  static Fields fields() {
    return {field("number", &T::number, "Counts up."),
            field("revision", &T::revision, "Of the declaration."),
            field("at", &T::at, "From when on."),
            field("by", &T::by, "Who declared it."),
            field("why", &T::why, "What led to it."),
            field("variants", &T::variants, "Who answered, and with what share.")};
  }
};
template <>
struct Shape<ServedHistoryOut> {
  static constexpr std::string_view name = "ServedHistory";
  static Fields fields() { return {field("items", &ServedHistoryOut::items, "Newest first.")}; }
};
template <>
struct Shape<ServedHistoryIn> {
  static constexpr std::string_view name = "ServedHistoryQuery";
  static Fields fields() { return {field("limit", &ServedHistoryIn::limit, "Most items.").range(1, kPageItemsMax)}; }
};
template <>
struct Shape<ServedAtIn> {
  static constexpr std::string_view name = "ServedAtQuestion";
  static Fields fields() {
    return {field("time", &ServedAtIn::time, "Such as 2026-01-31T12:00:00Z.").required().length(1, 40)};
  }
};
template <>
struct Shape<ServedAtOut> {
  static constexpr std::string_view name = "ServedAtAnswer";
  static Fields fields() { return {field("served", &ServedAtOut::served, "Absent: nothing was.")}; }
};
template <>
struct Shape<ShiftIn> {
  static constexpr std::string_view name = "TrafficShift";
  static Fields fields() {
    return {field("weights", &ShiftIn::weights, "New shares by variant; others keep theirs.").required().length(1, 16),
            field("at", &ShiftIn::at, "When, such as 2026-12-01T08:00:00Z; now when absent.").length(0, 64)};
  }
};
template <>
struct Shape<RollbackIn> {
  static constexpr std::string_view name = "EndpointRollback";
  static Fields fields() {
    return {field("to", &RollbackIn::to, "Number of a state in its history; the one before when absent.")
                .range(0, 1LL << 53)};
  }
};
template <>
struct Shape<RevisionOut> {
  using T = RevisionOut;
  static constexpr std::string_view name = "EndpointRevision";
  static Fields fields() {
    return {field("revision", &T::revision, "It has now."), field("variants", &T::variants, "Who answers now.")};
  }
};

}  // namespace falaj

namespace falaj::api {
namespace {

using serving::Endpoints;
using vault::Where;

resource::Authorise authorised_by(const Call& call) {
  return [&call](std::string_view action, const iam::Scope& resource) -> std::optional<std::string> {
    if (call.allows(action, resource)) return std::nullopt;
    return fmt::format("{} on {} is not allowed", action, resource.str());
  };
}

ServedOut out_of(const serving::Served& served) {
  return {served.number, served.revision, format_time(served.at_us), served.by, served.why, served.variants};
}

EndpointOut view_of(const resource::Stored& stored, const Endpoints::Current& current,
                    const std::vector<serving::ServerReport>& reports) {
  const auto& metadata = stored.resource.metadata;
  const auto spec = decode<serving::EndpointSpec>(stored.resource.spec, "endpoint");
  EndpointOut out;
  out.name = metadata.name;
  out.revision = stored.revision;
  out.stopped = spec.stopped;
  out.sticky = spec.sticky;
  const traffic::Endpoint* planned = nullptr;
  for (const auto& endpoint : current.plan->endpoints)
    if (endpoint.tenant == metadata.tenant && endpoint.project == metadata.project && endpoint.name == metadata.name)
      planned = &endpoint;
  if (planned && planned->features)
    out.features = {planned->features->service, planned->features->problem, planned->features->revision};
  bool all_ready =
      planned != nullptr && !spec.stopped && !current.awaited.contains(stored.resource.key().scope().str());
  for (const auto& declared : spec.variants) {
    VariantOut variant{
        declared.name, declared.model, declared.version.value_or(0), declared.weight, declared.shadow, "", {}};
    if (planned)
      for (const auto& one : planned->variants)
        if (one.name == declared.name) variant.version = one.version;
    for (const auto& problem : current.problems)
      if (problem.endpoint == stored.resource.key().scope().str() && problem.variant == declared.name)
        variant.problem = problem.what;
    for (const auto& report : reports)
      for (const auto& one : report.variants)
        if (one.tenant == metadata.tenant && one.project == metadata.project && one.endpoint == metadata.name &&
            one.variant == declared.name) {
          variant.servers.push_back(one);
          variant.servers.back().latency.clear();
          variant.servers.back().outputs.clear();
        }
    all_ready &= variant.problem.empty() && !variant.servers.empty();
    for (const auto& one : variant.servers)
      all_ready &= (one.state == "ready" || one.state == "asleep") && one.version == variant.version;
    out.variants.push_back(std::move(variant));
  }
  for (const auto& report : reports) {
    all_ready &= report.fingerprint == current.fingerprint;
    if (!report.url.empty()) out.urls.push_back(report.url);
    if (!report.grpc.empty()) out.grpc.push_back(report.grpc);
  }
  out.ready = all_ready;
  return out;
}

void add_following(Routes& routes, Platform& platform) {
  auto& endpoints = platform.endpoints;
  const auto follow = Permission::of("serving.follow", "/");
  // Each follower waits for most of the time: they hold no workers meanwhile.
  routes.add_waiting<PlanIn, PlanOut>(
      {Method::get, "/v1/serving/plan", follow, BodyLimit::none(), Audit::read(), Place::later,
       "What serving programs are to do; waits for a change."},
      [&platform, &endpoints](Call&, const PlanIn& in, Answered answered) {
        const auto then = [&platform, after = in.after, answered = std::move(answered)](
                              const Endpoints::Current& current, const Error* failed) {
          if (failed) return answered(*failed);
          PlanOut out{current.fingerprint, to_hex(platform.models.public_key()), std::nullopt};
          if (current.fingerprint != after) out.plan = *current.plan;
          answered(detail::json_response(encode(out)));
        };
        endpoints.follow(in.after, in.wait_us, then);
      });
  routes.add_download<Nothing>(
      {Method::get, "/v1/serving/models/{sha256}", follow, BodyLimit::none(), Audit::read(), Place::worker,
       "The ONNX file of a version that is in the plan."},
      "application/octet-stream", [&endpoints](Call& call, const Nothing&) {
        std::shared_ptr<blob::ObjectReader> reader = endpoints.open_model(call.parameter("sha256"));
        net::Response response;
        response.headers.add("Content-Type", "application/octet-stream");
        response.body = net::StreamBody{[reader] { return reader->next(); }, reader->info().size};
        return response;
      });
  routes.add<Nothing, traffic::SpaceKeys>(
      {Method::post, "/v1/serving/spaces/{space}", follow, kSmallBody, Audit::verb("serving.share_features"),
       Place::worker,
       "What opens the rows of features that the plan names, for a program that looks them up by itself."},
      [&platform, &endpoints](Call& call, const Nothing&) {
        const auto [keys, space] = endpoints.share(call.parameter("space"));
        const resource::Key view{"FeatureView", space.where.tenant.str(), space.where.project.str(), space.view};
        platform.database.write(call.act(view.scope().str()), [](sql::Writer&) {});
        return keys;
      });
  routes.add<serving::ServerReport, Nothing>(
      {Method::post, "/v1/serving/reports", follow, kReportBody, Audit::read(), Place::worker,
       "What a serving program says of itself."},
      [&endpoints](Call&, const serving::ServerReport& in) { endpoints.report(in); });
}

void add_looking(Routes& routes, Platform& platform) {
  auto& endpoints = platform.endpoints;
  const auto read = Permission::of("endpoint.read", "{scope}");
  const auto one = [&platform, &endpoints](const Where& where, const std::string& name) {
    const auto stored = platform.resources.get({"Endpoint", where.tenant.str(), where.project.str(), name});
    return view_of(stored, endpoints.current(), endpoints.reports());
  };
  routes.add<Nothing, EndpointsOut>(
      {Method::get, "/v1/serving/endpoints", read, BodyLimit::none(), Audit::read(), Place::worker,
       "Endpoints of a project and how they are doing."},
      [&platform, &endpoints](Call& call, const Nothing&) {
        const auto where = project_of(call);
        resource::ListOptions options;
        options.tenant = where.tenant.str();
        options.project = where.project.str();
        options.limit = 1000;
        EndpointsOut out;
        const auto current = endpoints.current();
        const auto reports = endpoints.reports();
        for (const auto& stored : platform.resources.list("Endpoint", options, authorised_by(call)).items)
          out.items.push_back(view_of(stored, current, reports));
        return out;
      });
  routes.add<Nothing, EndpointOut>(
      {Method::get, "/v1/serving/endpoints/{name}", read, BodyLimit::none(), Audit::read(), Place::worker,
       "An endpoint and how it is doing."},
      [one](Call& call, const Nothing&) { return one(project_of(call), call.parameter("name")); });
  routes.add<ServedHistoryIn, ServedHistoryOut>(
      {Method::get, "/v1/serving/endpoints/{name}/history", read, BodyLimit::none(), Audit::read(), Place::worker,
       "What an endpoint served, newest first."},
      [&endpoints](Call& call, const ServedHistoryIn& in) {
        ServedHistoryOut out;
        for (const auto& served :
             endpoints.history(project_of(call), call.parameter("name"), static_cast<std::size_t>(in.limit)))
          out.items.push_back(out_of(served));
        return out;
      });
  routes.add<ServedAtIn, ServedAtOut>(
      {Method::get, "/v1/serving/endpoints/{name}/served-at", read, BodyLimit::none(), Audit::read(), Place::worker,
       "What an endpoint served at some time."},
      [&endpoints](Call& call, const ServedAtIn& in) {
        const auto at = parse_time(in.time);
        if (!at) throw Error(Code::invalid, "time: must be a time such as 2026-01-31T12:00:00Z");
        ServedAtOut out;
        if (const auto served = endpoints.served_at(project_of(call), call.parameter("name"), *at))
          out.served = out_of(*served);
        return out;
      });
}

void add_changing(Routes& routes, Platform& platform) {
  auto& endpoints = platform.endpoints;
  const auto update = Permission::of("endpoint.update", "{scope}");
  const auto answer = [&endpoints](const Where& where, const resource::Stored& stored) {
    RevisionOut out{stored.revision, {}};
    const auto current = endpoints.current();
    for (const auto& endpoint : current.plan->endpoints)
      if (endpoint.tenant == where.tenant.str() && endpoint.project == where.project.str() &&
          endpoint.name == stored.resource.metadata.name)
        out.variants = endpoint.variants;
    return out;
  };
  routes.add<ShiftIn, RevisionOut>(
      {Method::post, "/v1/serving/endpoints/{name}/shift", update, kSmallBody, Audit::verb("endpoint.shift"),
       Place::worker, "Share requests among variants otherwise."},
      [&endpoints, answer](Call& call, const ShiftIn& in) {
        const auto where = project_of(call);
        const auto name = call.parameter("name");
        const auto scope = iam::Scope::of(where.tenant.str(), where.project.str(), "endpoint", name).str();
        return answer(where, endpoints.shift(where, name, {in.at, in.weights}, call.act(scope), authorised_by(call)));
      });
  routes.add<RollbackIn, RevisionOut>(
      {Method::post, "/v1/serving/endpoints/{name}/rollback", update, kSmallBody, Audit::verb("endpoint.rollback"),
       Place::worker, "Serve what was served before."},
      [&endpoints, answer](Call& call, const RollbackIn& in) {
        const auto where = project_of(call);
        const auto name = call.parameter("name");
        const auto scope = iam::Scope::of(where.tenant.str(), where.project.str(), "endpoint", name).str();
        return answer(where, endpoints.rollback(where, name, in.to, call.act(scope), authorised_by(call)));
      });
}

}  // namespace

void add_serving_routes(Routes& routes, Platform& platform) {
  add_following(routes, platform);
  add_looking(routes, platform);
  add_changing(routes, platform);
}

}  // namespace falaj::api
