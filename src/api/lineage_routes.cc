// SPDX-License-Identifier: Apache-2.0
// lineage, and webhooks

#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "api/project.h"
#include "foundation/base/text.h"
#include "lifecycle/data/datasets.h"
#include "lifecycle/models/deliveries.h"
#include "lifecycle/models/lineage.h"
#include "lifecycle/models/webhooks.h"
#include "lifecycle/outbox/courier.h"
#include "lifecycle/serving/endpoints.h"

namespace falaj::api {
namespace {

constexpr std::string_view kWays[] = {"up", "down"};
constexpr std::string_view kLineageFormats[] = {"graph", "openlineage"};
constexpr std::string_view kStates[] = {"waiting", "done", "dead"};

struct LineageQuery {
  std::string thing, way = "up", format = "graph";
};
struct EdgeOut {
  std::string from, to, how;
};
struct LineageOut {
  std::vector<std::string> things;
  std::vector<EdgeOut> edges;
  bool whole = true;
  std::optional<json::value> events;
};
struct WebhookIn {
  std::string name, description, url, secret;
  std::vector<std::string> events;
  bool active = true;
};
struct WebhookOut {
  std::string id, name, description, url;
  std::vector<std::string> events;
  bool active = true, has_secret = false;
  std::int64_t created_ms = 0, updated_ms = 0;
};
struct DeliveryQuery {
  std::optional<std::string> state;
  std::int64_t limit = kPageItems;
};
struct DeliveryOut {
  std::string id, event, state;
  std::int64_t tries = 0, created_us = 0, due_us = 0, status = 0;
  std::string error;
};
struct TestIn {
  std::string event = "model_version.created";
};
struct TestOut {
  bool success = false;
  std::int64_t status = 0;
  std::string body, error;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<LineageQuery> {
  using T = LineageQuery;
  static constexpr std::string_view name = "LineageQuery";
  static Fields fields() {
    return {
        field("thing", &T::thing, "run/ID, version/MODEL/NUMBER, logged_model/ID or dataset/NAME@DIGEST.").required(),
        field("way", &T::way, "up: what it was made of; down: what was made of it.").one_of(kWays),
        field("format", &T::format, "openlineage: the events of a run, in that standard's form.")
            .one_of(kLineageFormats)};
  }
};
template <>
struct Shape<EdgeOut> {
  using T = EdgeOut;
  static constexpr std::string_view name = "LineageEdge";
  static Fields fields() {
    return {
        field("from", &T::from, "What it was made of."), field("to", &T::to, "What was made."),
        field(
            "how", &T::how,
            "input, output, registered, copied, rows: from dataset to dataset, answers: of a version, in a dataset, or "
            "served: a version, by an endpoint.")};
  }
};
template <>
struct Shape<LineageOut> {
  using T = LineageOut;
  static constexpr std::string_view name = "Lineage";
  static Fields fields() {
    return {field("things", &T::things, "Nearest first, what was asked for the very first."),
            field("edges", &T::edges, "Between them."),
            field("whole", &T::whole, "false: there is more than the limit."),
            field("events", &T::events, "Of OpenLineage; instead of the rest.")};
  }
};
template <>
struct Shape<WebhookIn> {
  using T = WebhookIn;
  static constexpr std::string_view name = "NewWebhook";
  static Fields fields() {
    return {field("name", &T::name, "Its name.").required(),
            field("description", &T::description, "What for."),
            field("url", &T::url, "Where to send; webhooks.hosts of the server's settings must allow it.").required(),
            field("events", &T::events, "Of what to tell.").required().one_of(models::kWebhookEvents),
            field("secret", &T::secret, "With which deliveries are signed; never given out again.").secret(),
            field("active", &T::active, "Whether anything is sent.")};
  }
};
template <>
struct Shape<WebhookOut> {
  using T = WebhookOut;
  static constexpr std::string_view name = "Webhook";
  static Fields fields() {
    return {field("id", &T::id, "Its id."),
            field("name", &T::name, "Its name."),
            field("description", &T::description, "What for."),
            field("url", &T::url, "Where to."),
            field("events", &T::events, "Of what it is told."),
            field("active", &T::active, "Whether anything is sent."),
            field("has_secret", &T::has_secret, "Whether deliveries are signed."),
            field("created_ms", &T::created_ms, "Milliseconds since 1970."),
            field("updated_ms", &T::updated_ms, "Milliseconds since 1970.")};
  }
};
template <>
struct Shape<DeliveryQuery> {
  using T = DeliveryQuery;
  static constexpr std::string_view name = "DeliveryQuery";
  static Fields fields() {
    return {field("state", &T::state, "Only these.").one_of(kStates),
            field("limit", &T::limit, "How many.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<DeliveryOut> {
  using T = DeliveryOut;
  static constexpr std::string_view name = "Delivery";
  static Fields fields() {
    return {field("id", &T::id, "The receiver sees it too, the same at every try."),
            field("event", &T::event, "Of what."),
            field("state", &T::state, "waiting, done or dead."),
            field("tries", &T::tries, "So far."),
            field("created_us", &T::created_us, "When."),
            field("due_us", &T::due_us, "When it is tried next."),
            field("status", &T::status, "Of the last answer; 0: there was none."),
            field("error", &T::error, "Why the last try failed.")};
  }
};
template <>
struct Shape<TestIn> {
  using T = TestIn;
  static constexpr std::string_view name = "TestWebhook";
  static Fields fields() {
    return {field("event", &T::event, "Which event to make up.").one_of(models::kWebhookEvents)};
  }
};
template <>
struct Shape<TestOut> {
  using T = TestOut;
  static constexpr std::string_view name = "TestedWebhook";
  static Fields fields() {
    return {field("success", &T::success, "Whether it was taken."), field("status", &T::status, "Of the answer."),
            field("body", &T::body, "How the answer begins."), field("error", &T::error, "Why there was none.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

using models::Thing;
using models::Where;

std::string text_of(const Thing& thing) { return fmt::format("{}/{}", models::name(thing.kind), thing.id); }

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// With its kind before it; or without, where its form tells.
Thing thing_of(const std::string& text) {
  const auto slash = text.find('/');
  if (slash != std::string::npos)
    if (const auto kind = models::parse_thing_kind(std::string_view(text).substr(0, slash)))
      return {*kind, text.substr(slash + 1)};
  if (is_hex(text, 32)) return {Thing::Kind::run, text};
  if (text.starts_with("m-") && is_hex(std::string_view(text).substr(2), 32)) return {Thing::Kind::logged_model, text};
  if (text.find('@') != std::string::npos) return {Thing::Kind::dataset, text};
  if (slash != std::string::npos && parse_int(std::string_view(text).substr(text.rfind('/') + 1)))
    return {Thing::Kind::version, text};
  throw Error(
      Code::invalid,
      fmt::format(
          "thing: run/ID, version/MODEL/NUMBER, logged_model/ID, dataset/NAME@DIGEST or endpoint/NAME, not '{}'",
          text.substr(0, 100)));
}

// "flights@3" is a version of ours, which runs name by its digest.
Thing known_as(Platform& platform, const Where& where, Thing thing) {
  if (thing.kind != Thing::Kind::dataset) return thing;
  const auto at = thing.id.rfind('@');
  const auto number = at == std::string::npos ? std::nullopt : parse_int(std::string_view(thing.id).substr(at + 1));
  if (!number) return thing;
  try {
    const auto version = platform.datasets.version(where, thing.id.substr(0, at), number);
    thing.id = fmt::format("{}@{}", version.dataset, version.short_id());
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;  // a digest may be made of digits
  }
  return thing;
}

std::optional<std::vector<Thing>> links_of(data::Datasets& datasets, sql::Reader& reader, const Where& where,
                                           const Thing& of, bool upward) {
  std::vector<Thing> out;
  if (of.kind == Thing::Kind::endpoint) {
    const auto served = serving::versions_of(reader, where, of.id);
    if (!served) return std::nullopt;
    for (const auto& [model, version] : *served)
      out.push_back({Thing::Kind::version, fmt::format("{}/{}", model, version)});
    return out;
  }
  if (of.kind == Thing::Kind::version) {
    const auto slash = of.id.rfind('/');
    const auto number = parse_int(std::string_view(of.id).substr(slash + 1));
    for (auto& id : datasets.answers_of(reader, where, {of.id.substr(0, slash), number.value_or(0)}))
      out.push_back({Thing::Kind::dataset, std::move(id)});
    for (auto& endpoint : serving::endpoints_of(reader, where, of.id.substr(0, slash), number.value_or(0)))
      out.push_back({Thing::Kind::endpoint, std::move(endpoint)});
    return out;
  }
  auto ids = datasets.linked(reader, where, of.id, upward);
  if (!ids) return std::nullopt;
  for (auto& id : *ids) out.push_back({Thing::Kind::dataset, std::move(id)});
  if (upward)
    for (const auto& by : datasets.answerers(reader, where, of.id))
      out.push_back({Thing::Kind::version, fmt::format("{}/{}", by.model, by.version)});
  return out;
}

LineageOut lineage(Platform& platform, const Where& where, const LineageQuery& in) {
  const auto thing = known_as(platform, where, thing_of(in.thing));
  LineageOut out;
  if (in.format == "openlineage") {
    if (thing.kind != Thing::Kind::run) throw Error(Code::invalid, "format: openlineage tells of runs only");
    const auto events = platform.database.read(
        [&](sql::Reader& reader) { return models::to_open_lineage(reader, where, thing.id, platform.public_url); });
    out.events = events;
    return out;
  }
  const models::Links links = [&](sql::Reader& reader, const Thing& of, bool upward) {
    return links_of(platform.datasets, reader, where, of, upward);
  };
  const auto found = platform.database.read([&](sql::Reader& reader) {
    return in.way == "up" ? models::up(reader, where, thing, models::kLineageMax, links)
                          : models::down(reader, where, thing, models::kLineageMax, links);
  });
  for (const auto& one : found.things) out.things.push_back(text_of(one));
  for (const auto& edge : found.edges) out.edges.push_back({text_of(edge.from), text_of(edge.to), edge.how});
  out.whole = found.whole;
  return out;
}

WebhookOut out_of(const models::Webhook& w) {
  return {w.id, w.name, w.description, w.url, w.events, w.active, w.has_secret, w.created_ms, w.updated_ms};
}

std::optional<models::DeliveryState> state_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  return *name == "waiting" ? models::DeliveryState::waiting
         : *name == "done"  ? models::DeliveryState::done
                            : models::DeliveryState::dead;
}

Declaration reads_webhook(std::string_view path, std::string_view summary) {
  return {Method::get,   path,   Permission::of("webhook.read", "{scope}"), BodyLimit::none(), Audit::read(),
          Place::worker, summary};
}
Declaration writes_webhook(Method method, std::string_view path, std::string_view verb, std::string_view summary) {
  return {method,        path,   Permission::of("webhook.write", "{scope}"), kSmallBody, Audit::verb(verb),
          Place::worker, summary};
}

std::string webhook_scope(const Where& where, const std::string& id) {
  return iam::Scope::of(where.tenant.str(), where.project.str(), "webhook", id).str();
}

void add_webhooks(Routes& routes, Platform& platform) {
  auto& webhooks = platform.webhooks;
  routes.add<Nothing, Page<WebhookOut>>(reads_webhook("/v1/webhooks", "Who is told of what happens to models."),
                                        [&webhooks](Call& call, const Nothing&) {
                                          Page<WebhookOut> page;
                                          for (const auto& w : webhooks.list(project_of(call)))
                                            page.items.push_back(out_of(w));
                                          return page;
                                        });
  routes.add<WebhookIn, WebhookOut>(
      writes_webhook(Method::post, "/v1/webhooks", "webhook.create", "Tell somebody of what happens to models."),
      [&webhooks](Call& call, const WebhookIn& in) {
        const auto where = project_of(call);
        models::WebhookChange webhook{in.name, in.description, in.url, in.events, in.active, {}};
        if (!in.secret.empty()) webhook.secret = in.secret;
        return out_of(webhooks.create(where, webhook, call.act(where.scope().str())));
      });
  routes.add<Nothing, Nothing>(writes_webhook(Method::del, "/v1/webhooks/{id}", "webhook.delete", "Tell them no more."),
                               [&webhooks](Call& call, const Nothing&) {
                                 const auto where = project_of(call);
                                 const auto& id = call.parameter("id");
                                 webhooks.remove(where, id, call.act(webhook_scope(where, id)));
                               });
  routes.add<DeliveryQuery, Page<DeliveryOut>>(
      reads_webhook("/v1/webhooks/{id}/deliveries", "What was sent and what waits, newest first."),
      [&webhooks](Call& call, const DeliveryQuery& in) {
        Page<DeliveryOut> page;
        for (const auto& d : webhooks.deliveries(project_of(call), call.parameter("id"), state_of(in.state),
                                                 static_cast<std::size_t>(in.limit)))
          page.items.push_back(
              {d.id, d.event, std::string(outbox::name(d.state)), d.tries, d.created_us, d.due_us, d.status, d.error});
        return page;
      });
  routes.add<Nothing, Nothing>(writes_webhook(Method::post, "/v1/webhooks/{id}/deliveries/{delivery}/retry",
                                              "webhook.retry", "Try a dead one again."),
                               [&webhooks](Call& call, const Nothing&) {
                                 const auto where = project_of(call);
                                 const auto& id = call.parameter("id");
                                 webhooks.retry(where, id, call.parameter("delivery"),
                                                call.act(webhook_scope(where, id)));
                               });
  routes.add<TestIn, TestOut>(
      writes_webhook(Method::post, "/v1/webhooks/{id}/test", "webhook.test", "Send a made-up event now, once."),
      [&platform](Call& call, const TestIn& in) {
        const auto tested = platform.deliveries.test(project_of(call), call.parameter("id"), in.event);
        return TestOut{tested.success, tested.status, tested.body, tested.error};
      });
}

}  // namespace

void add_lineage_routes(Routes& routes, Platform& platform) {
  routes.add<LineageQuery, LineageOut>(
      {Method::get, "/v1/lineage", Permission::of("run.read", "{scope}"), BodyLimit::none(), Audit::read(),
       Place::worker, "What something was made of, or what was made of it, through any number of steps."},
      [&platform](Call& call, const LineageQuery& in) { return lineage(platform, project_of(call), in); });
  add_webhooks(routes, platform);
}

}  // namespace falaj::api
