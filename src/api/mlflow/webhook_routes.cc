// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "api/mlflow/messages.h"
#include "api/mlflow/routes.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/models/deliveries.h"
#include "lifecycle/models/webhooks.h"

namespace falaj::api::mlflow {
namespace {

struct EventIn {
  std::string entity, action;
};
struct WebhookIn {
  std::optional<std::string> name, description, url, secret, status;
  std::optional<std::vector<EventIn>> events;
  std::optional<EventIn> event;
};

}  // namespace
}  // namespace falaj::api::mlflow

namespace falaj {
using namespace api::mlflow;

template <>
struct Shape<EventIn> {
  static constexpr std::string_view name = "MlflowWebhookEvent";
  static Fields fields() {
    return {field("entity", &EventIn::entity, "REGISTERED_MODEL, MODEL_VERSION, MODEL_VERSION_TAG, ...").required(),
            field("action", &EventIn::action, "CREATED, SET, DELETED").required()};
  }
};
template <>
struct Shape<WebhookIn> {
  static constexpr std::string_view name = "MlflowWebhookRequest";
  static Fields fields() {
    return {field("name", &WebhookIn::name, "For people."),
            field("description", &WebhookIn::description, "For people."),
            field("url", &WebhookIn::url, "Where events are sent."),
            field("secret", &WebhookIn::secret, "Signs what is sent; never given out.").secret(),
            field("status", &WebhookIn::status, "ACTIVE or DISABLED."),
            field("events", &WebhookIn::events, "Which events."),
            field("event", &WebhookIn::event, "To test with.")};
  }
};
}  // namespace falaj

namespace falaj::api::mlflow {
namespace {

using track::Where;

// "MODEL_VERSION_ALIAS" and "CREATED" here are "model_version_alias.created" there.
std::string event_name(const EventIn& in) { return lower(in.entity) + "." + lower(in.action); }

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

models::WebhookChange change_of(const WebhookIn& in) {
  models::WebhookChange change{in.name, in.description, in.url, {}, {}, in.secret};
  if (in.events) {
    change.events.emplace();
    for (const auto& event : *in.events) change.events->push_back(event_name(event));
  }
  if (in.status) {
    if (*in.status != "ACTIVE" && *in.status != "DISABLED" && *in.status != "1" && *in.status != "2")
      throw Error(Code::invalid, fmt::format("status: ACTIVE or DISABLED, not '{}'", in.status->substr(0, 40)));
    change.active = *in.status == "ACTIVE" || *in.status == "1";
  }
  return change;
}

void put(Text& out, const models::Webhook& w) {
  out.open('{').key("webhook_id").string(w.id).key("name").string(w.name).text_member("description", w.description);
  out.key("url").string(w.url).key("events").open('[');
  for (const auto& event : w.events) {
    const auto dot = event.find('.');
    out.open('{').key("entity").string(upper(event.substr(0, dot))).key("action").string(upper(event.substr(dot + 1)));
    out.close('}');
  }
  out.close(']').key("status").string(w.active ? "ACTIVE" : "DISABLED");
  out.key("creation_timestamp").number(w.created_ms).key("last_updated_timestamp").number(w.updated_ms).close('}');
}

std::string answer(const models::Webhook& webhook) {
  Text out;
  put(out.open('{').key("webhook"), webhook);
  return out.close('}').take();
}

Declaration declare(Method method, std::string_view path, std::string_view verb, std::string_view summary) {
  return {method,
          path,
          allowed_in_project(verb.empty() ? "webhook.read" : "webhook.write"),
          kMessageMax,
          verb.empty() ? Audit::read() : Audit::verb(verb),
          Place::worker,
          summary};
}

}  // namespace

void add_webhook_routes(Routes& routes, Platform& platform) {
  auto& webhooks = platform.webhooks;
  const auto thing = [](const Where& where, const std::string& id) {
    return iam::Scope::of(where.tenant.str(), where.project.str(), "webhook", id).str();
  };
  rpc<WebhookIn>(routes, declare(Method::post, "/api/2.0/mlflow/webhooks", "webhook.create", "MLflow: make a webhook."),
                 [&](Call& call, const Where& where, const WebhookIn& in) {
                   return answer(webhooks.create(where, change_of(in), call.act(where.scope().str())));
                 });
  rpc<WebhookIn>(routes, declare(Method::get, "/api/2.0/mlflow/webhooks", "", "MLflow: the webhooks of a project."),
                 [&](Call&, const Where& where, const WebhookIn&) {
                   Text out;
                   out.open('{').key("webhooks").open('[');
                   for (const auto& webhook : webhooks.list(where)) put(out, webhook);
                   return out.close(']').close('}').take();
                 });
  rpc<WebhookIn>(routes, declare(Method::get, "/api/2.0/mlflow/webhooks/{webhook_id}", "", "MLflow: a webhook."),
                 [&](Call& call, const Where& where, const WebhookIn&) {
                   return answer(webhooks.get(where, call.parameter("webhook_id")));
                 });
  rpc<WebhookIn>(
      routes,
      declare(Method::patch, "/api/2.0/mlflow/webhooks/{webhook_id}", "webhook.update", "MLflow: change a webhook."),
      [&, thing](Call& call, const Where& where, const WebhookIn& in) {
        const auto& id = call.parameter("webhook_id");
        return answer(webhooks.update(where, id, change_of(in), call.act(thing(where, id))));
      });
  rpc<WebhookIn>(
      routes,
      declare(Method::del, "/api/2.0/mlflow/webhooks/{webhook_id}", "webhook.delete", "MLflow: remove a webhook."),
      [&, thing](Call& call, const Where& where, const WebhookIn&) {
        const auto& id = call.parameter("webhook_id");
        webhooks.remove(where, id, call.act(thing(where, id)));
        return std::string(kEmpty);
      });
  rpc<WebhookIn>(routes,
                 declare(Method::post, "/api/2.0/mlflow/webhooks/{webhook_id}/test", "webhook.test",
                         "MLflow: send a made-up event; the answer's body is not shown."),
                 [&, thing](Call& call, const Where& where, const WebhookIn& in) {
                   const auto& id = call.parameter("webhook_id");
                   const auto webhook = webhooks.get(where, id);
                   const auto event = in.event                 ? event_name(*in.event)
                                      : webhook.events.empty() ? std::string(models::kWebhookEvents[0])
                                                               : webhook.events.front();
                   platform.database.write(call.act(thing(where, id)),
                                           [](sql::Writer&) {});  // on record before it leaves
                   const auto tested = platform.deliveries.test(where, id, event);
                   Text out;
                   out.open('{').key("result").open('{').key("success").boolean(tested.success);
                   if (tested.status != 0) out.key("response_status").number(std::int64_t{tested.status});
                   return out.text_member("error_message", tested.error).close('}').close('}').take();
                 });
}

}  // namespace falaj::api::mlflow
