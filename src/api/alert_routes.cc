// SPDX-License-Identifier: Apache-2.0
// alerts: what fires, what happened, silences, channels and what they were told

#include <fmt/format.h>

#include "api/call.h"
#include "api/page.h"
#include "lifecycle/alerts/alerts.h"
#include "lifecycle/alerts/notifications.h"

namespace falaj::api {
namespace {

constexpr std::string_view kDeliveryStates[] = {"waiting", "done", "dead"};

struct AlertOut {
  std::int64_t id = 0;
  std::string rule, state, severity, subject, text, since;
  double value = 0;
  std::int64_t signals = 1;
  std::map<std::string, std::string> labels;
  std::vector<std::string> notify;
  std::optional<std::string> fired, resolved, told, acknowledged;
  std::string acknowledged_by, note;
};
struct AlertEventOut {
  std::int64_t id = 0, alert = 0;
  std::string at, what, rule, subject, severity, text, by, why;
  double value = 0;
  bool told = false;
};
struct AlertDetails {
  AlertOut alert;
  std::vector<AlertEventOut> events;
};
struct AlertQuery {
  bool resolved = false;
  std::string cursor;
  std::int64_t limit = kPageItems;
};
struct AlertEventQuery {
  std::string cursor;
  std::int64_t limit = kPageItems;
};
struct AckIn {
  std::string note;
};
struct AlertRuleOut {
  std::string name, on, severity, problem;
  std::int64_t pending = 0, firing = 0;
};
struct AlertRulesOut {
  std::vector<AlertRuleOut> items;
};
struct SilenceIn {
  std::string match, reason;
  std::int64_t for_us = 0;
};
struct SilenceOut {
  std::int64_t id = 0;
  std::string match, reason, created_by, created, until;
  std::optional<std::string> ended;
  std::string ended_by;
};
struct SilencesOut {
  std::vector<SilenceOut> items;
};
struct SilenceQuery {
  bool all = false;
};
struct AlertDeliveryQuery {
  std::optional<std::string> state;
  std::int64_t limit = kPageItems;
};
struct AlertDeliveryOut {
  std::string id, channel, what, state, created, due, error;
  std::int64_t event = 0, alert = 0, tries = 0, status = 0;
};
struct AlertDeliveriesOut {
  std::vector<AlertDeliveryOut> items;
};
struct TestedChannel {
  bool success = false;
  std::int64_t status = 0;
  std::string answer, error;
};

}  // namespace
}  // namespace falaj::api

namespace falaj {
using namespace api;

template <>
struct Shape<AlertOut> {
  using T = AlertOut;
  static constexpr std::string_view name = "Alert";
  static Fields fields() {
    return {field("id", &T::id, "Its number in the project."),
            field("rule", &T::rule, "The rule that made it."),
            field("state", &T::state, "pending, firing or resolved."),
            field("severity", &T::severity, "How bad it is."),
            field("subject", &T::subject, "What it is about."),
            field("value", &T::value, "Of its worst signal."),
            field("text", &T::text, "In words."),
            field("signals", &T::signals, "How many are grouped in it."),
            field("labels", &T::labels, "To silence by."),
            field("notify", &T::notify, "Channels that are told."),
            field("since", &T::since, "It has been so since."),
            field("fired", &T::fired, "When it fired."),
            field("resolved", &T::resolved, "When it was over."),
            field("told", &T::told, "When channels were last told."),
            field("acknowledged", &T::acknowledged, "When somebody said that they have seen it."),
            field("acknowledged_by", &T::acknowledged_by, "Who."),
            field("note", &T::note, "What they said.")};
  }
};
template <>
struct Shape<AlertEventOut> {
  using T = AlertEventOut;
  static constexpr std::string_view name = "AlertEvent";
  static Fields fields() {
    return {field("id", &T::id, "Counts up."),
            field("alert", &T::alert, "The alert."),
            field("at", &T::at, "When."),
            field("what", &T::what, "fired, unsilenced, repeated, resolved or acknowledged."),
            field("rule", &T::rule, "Its rule."),
            field("subject", &T::subject, "What it is about."),
            field("severity", &T::severity, "How bad it is."),
            field("value", &T::value, "Then."),
            field("text", &T::text, "In words."),
            field("told", &T::told, "Whether channels were told."),
            field("by", &T::by, "Who did it."),
            field("why", &T::why, "In words.")};
  }
};
template <>
struct Shape<AlertDetails> {
  using T = AlertDetails;
  static constexpr std::string_view name = "AlertDetails";
  static Fields fields() {
    return {field("alert", &T::alert, "As it is now."),
            field("events", &T::events, "What happened to it, newest first.")};
  }
};
template <>
struct Shape<AlertQuery> {
  using T = AlertQuery;
  static constexpr std::string_view name = "AlertQuery";
  static Fields fields() {
    return {field("resolved", &T::resolved, "Those that are over, too."),
            field("cursor", &T::cursor, "From the page before.").length(0, 20),
            field("limit", &T::limit, "Most at once.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<AlertEventQuery> {
  using T = AlertEventQuery;
  static constexpr std::string_view name = "AlertEventQuery";
  static Fields fields() {
    return {field("cursor", &T::cursor, "From the page before.").length(0, 20),
            field("limit", &T::limit, "Most at once.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<AckIn> {
  static constexpr std::string_view name = "Acknowledgement";
  static Fields fields() { return {field("note", &AckIn::note, "What is done about it.").length(0, 1000)}; }
};
template <>
struct Shape<AlertRuleOut> {
  using T = AlertRuleOut;
  static constexpr std::string_view name = "AlertRuleView";
  static Fields fields() {
    return {field("name", &T::name, "Its name."),
            field("on", &T::on, "What it watches."),
            field("severity", &T::severity, "Of its alerts."),
            field("pending", &T::pending, "Alerts that are about to fire."),
            field("firing", &T::firing, "Alerts that fire."),
            field("problem", &T::problem, "Why it sees nothing; empty = it does.")};
  }
};
template <>
struct Shape<AlertRulesOut> {
  static constexpr std::string_view name = "AlertRuleViews";
  static Fields fields() { return {field("items", &AlertRulesOut::items, "All of the scope.")}; }
};
template <>
struct Shape<SilenceIn> {
  using T = SilenceIn;
  static constexpr std::string_view name = "NewSilence";
  static Fields fields() {
    return {field("match", &T::match, "Of which alerts, by labels: rule=slow,severity!=critical.")
                .required()
                .length(1, 1000),
            field("for", &T::for_us, "How long.").required().duration().range(alerts::kSecondUs, alerts::kSilenceUsMax),
            field("reason", &T::reason, "Why nobody needs to be told.").required().length(1, 1000)};
  }
};
template <>
struct Shape<SilenceOut> {
  using T = SilenceOut;
  static constexpr std::string_view name = "Silence";
  static Fields fields() {
    return {field("id", &T::id, "Its number."),
            field("match", &T::match, "Of which alerts."),
            field("reason", &T::reason, "Why."),
            field("created_by", &T::created_by, "Who made it."),
            field("created", &T::created, "When."),
            field("until", &T::until, "Until when."),
            field("ended", &T::ended, "When somebody took it back."),
            field("ended_by", &T::ended_by, "Who.")};
  }
};
template <>
struct Shape<SilencesOut> {
  static constexpr std::string_view name = "Silences";
  static Fields fields() { return {field("items", &SilencesOut::items, "Newest first.")}; }
};
template <>
struct Shape<SilenceQuery> {
  static constexpr std::string_view name = "SilenceQuery";
  static Fields fields() { return {field("all", &SilenceQuery::all, "Also those that hold no longer.")}; }
};
template <>
struct Shape<AlertDeliveryQuery> {
  using T = AlertDeliveryQuery;
  static constexpr std::string_view name = "AlertDeliveryQuery";
  static Fields fields() {
    return {field("state", &T::state, "Only these.").one_of(kDeliveryStates),
            field("limit", &T::limit, "Most at once.").range(1, kPageItemsMax)};
  }
};
template <>
struct Shape<AlertDeliveryOut> {
  using T = AlertDeliveryOut;
  static constexpr std::string_view name = "AlertDelivery";
  static Fields fields() {
    return {field("id", &T::id, "Receivers see it too; the same for every try."),
            field("channel", &T::channel, "Who is told."),
            field("event", &T::event, "Of which event."),
            field("alert", &T::alert, "Of which alert."),
            field("what", &T::what, "What happened."),
            field("state", &T::state, "waiting, done or dead."),
            field("tries", &T::tries, "So far."),
            field("created", &T::created, "When."),
            field("due", &T::due, "When it is tried next, or was last."),
            field("status", &T::status, "Of the last answer; 0 = none."),
            field("error", &T::error, "What was wrong.")};
  }
};
template <>
struct Shape<AlertDeliveriesOut> {
  static constexpr std::string_view name = "AlertDeliveries";
  static Fields fields() { return {field("items", &AlertDeliveriesOut::items, "Newest first.")}; }
};
template <>
struct Shape<TestedChannel> {
  using T = TestedChannel;
  static constexpr std::string_view name = "TestedChannel";
  static Fields fields() {
    return {field("success", &T::success, "Whether it was taken."), field("status", &T::status, "The answer's."),
            field("answer", &T::answer, "The first kilobyte of it."), field("error", &T::error, "What was wrong.")};
  }
};
}  // namespace falaj

namespace falaj::api {
namespace {

// A project, or the platform for rules about this server itself.
alerts::Where alerts_of(const Call& call) {
  const auto scope = call.scope();
  if (!scope.kind().empty() || (scope.project().empty() && !scope.tenant().empty()))
    throw Error(Code::invalid,
                fmt::format("scope: must be a project, such as /t/acme/p/flights, or /, not {}", scope.str()));
  return {std::string(scope.tenant()), std::string(scope.project())};
}

std::int64_t number_in_path(const Call& call, std::string_view what) {
  const auto number = parse_int(call.parameter("id"));
  if (!number || *number < 1) throw Error(Code::not_found, fmt::format("no such {} here", what));
  return *number;
}

std::int64_t before_of(const std::string& cursor) {
  if (cursor.empty()) return 0;
  const auto before = parse_int(cursor);
  if (!before || *before < 1) throw Error(Code::invalid, "cursor: not one that a page gave");
  return *before;
}

std::optional<std::string> time_or_none(std::int64_t us) {
  if (us <= 0) return std::nullopt;
  return format_time(us);
}

AlertOut out_of(const alerts::Alert& a) {
  AlertOut out;
  out.id = a.number;
  out.rule = a.rule;
  out.state = name(a.phase);
  out.severity = a.about.severity;
  out.subject = a.about.subject;
  out.text = a.about.text;
  out.value = a.about.value;
  out.signals = a.about.signals;
  out.labels = a.about.labels;
  out.notify = a.about.notify;
  out.since = format_time(a.since_us);
  out.fired = time_or_none(a.fired_us);
  out.resolved = time_or_none(a.resolved_us);
  out.told = time_or_none(a.told_us);
  out.acknowledged = time_or_none(a.acked_us);
  out.acknowledged_by = a.acked_by;
  out.note = a.ack_note;
  return out;
}

AlertEventOut out_of(const alerts::PastEvent& e) {
  AlertEventOut out;
  out.id = e.id;
  out.alert = e.alert;
  out.at = format_time(e.at_us);
  out.what = name(e.what);
  out.rule = e.rule;
  out.subject = e.about.subject;
  out.severity = e.about.severity;
  out.text = e.about.text;
  out.value = e.about.value;
  out.told = e.told;
  out.by = e.by;
  out.why = e.why;
  return out;
}

SilenceOut out_of(const alerts::Silence& s) {
  return {s.id,
          s.match,
          s.reason,
          s.created_by,
          format_time(s.created_us),
          format_time(s.until_us),
          time_or_none(s.ended_us),
          s.ended_by};
}

AlertDeliveryOut out_of(const alerts::Delivery& d) {
  AlertDeliveryOut out;
  out.id = d.id;
  out.channel = d.channel;
  out.what = d.what;
  out.state = outbox::name(d.state);
  out.created = format_time(d.created_us);
  out.due = format_time(d.due_us);
  out.error = d.error;
  out.event = d.event;
  out.alert = d.alert;
  out.tries = d.tries;
  out.status = d.status;
  return out;
}

Declaration reads_alerts(std::string_view path, std::string_view action, std::string_view summary) {
  return {Method::get,   path,   Permission::of(action, "{scope}"), BodyLimit::none(), Audit::read(),
          Place::worker, summary};
}
Declaration changes_alerts(Method method, std::string_view path, std::string_view action, std::string_view verb,
                           std::string_view summary) {
  return {method, path, Permission::of(action, "{scope}"), kSmallBody, Audit::verb(verb), Place::worker, summary};
}

std::string alert_thing(const alerts::Where& where, std::string_view kind, std::string_view name) {
  return iam::Scope::of(where.tenant, where.project, kind, name).str();
}

void add_alert_views(Routes& routes, Platform& platform) {
  auto& alerts = platform.alerts;
  routes.add<AlertQuery, Page<AlertOut>>(
      reads_alerts("/v1/alerts", "alert.list", "Alerts that fire or are about to, newest first."),
      [&alerts](Call& call, const AlertQuery& in) {
        const auto limit = static_cast<std::size_t>(in.limit);
        Page<AlertOut> page;
        for (const auto& a : alerts.list(alerts_of(call), {in.resolved, before_of(in.cursor), limit}))
          page.items.push_back(out_of(a));
        if (page.items.size() == limit) page.next = std::to_string(page.items.back().id);
        return page;
      });
  routes.add<AlertEventQuery, Page<AlertEventOut>>(
      reads_alerts("/v1/alerts/history", "alert.list", "What happened to alerts, newest first."),
      [&alerts](Call& call, const AlertEventQuery& in) {
        const auto limit = static_cast<std::size_t>(in.limit);
        Page<AlertEventOut> page;
        for (const auto& e : alerts.events(alerts_of(call), {0, before_of(in.cursor), limit}))
          page.items.push_back(out_of(e));
        if (page.items.size() == limit) page.next = std::to_string(page.items.back().id);
        return page;
      });
  routes.add<Nothing, AlertRulesOut>(
      reads_alerts("/v1/alerts/rules", "alert.list", "Rules, what they fire and why they see nothing."),
      [&alerts](Call& call, const Nothing&) {
        AlertRulesOut out;
        for (const auto& r : alerts.rules(alerts_of(call)))
          out.items.push_back({r.name, r.on, r.severity, r.problem, r.pending, r.firing});
        return out;
      });
  routes.add<Nothing, AlertDetails>(reads_alerts("/v1/alerts/{id}", "alert.read", "An alert and what happened to it."),
                                    [&alerts](Call& call, const Nothing&) {
                                      const auto where = alerts_of(call);
                                      const auto number = number_in_path(call, "alert");
                                      AlertDetails out{out_of(alerts.get(where, number)), {}};
                                      for (const auto& e : alerts.events(where, {number, 0, kPageItems}))
                                        out.events.push_back(out_of(e));
                                      return out;
                                    });
}

void add_silences(Routes& routes, Platform& platform) {
  auto& alerts = platform.alerts;
  routes.add<AckIn, AlertOut>(changes_alerts(Method::post, "/v1/alerts/{id}/ack", "alert.write", "alert.acknowledge",
                                             "Say that an alert was seen: it is not repeated."),
                              [&alerts](Call& call, const AckIn& in) {
                                const auto where = alerts_of(call);
                                const auto number = number_in_path(call, "alert");
                                return call.write(
                                    alert_thing(where, "alert", std::to_string(number)), [&](sql::Writer& writer) {
                                      return out_of(alerts.acknowledge(writer, where, number, call.actor(), in.note));
                                    });
                              });
  routes.add<SilenceQuery, SilencesOut>(
      reads_alerts("/v1/silences", "silence.list", "Of which alerts nobody is told for a while."),
      [&alerts](Call& call, const SilenceQuery& in) {
        SilencesOut out;
        for (const auto& s : alerts.silences(alerts_of(call), in.all)) out.items.push_back(out_of(s));
        return out;
      });
  routes.add<SilenceIn, SilenceOut>(
      changes_alerts(Method::post, "/v1/silences", "silence.write", "silence.create",
                     "Tell nobody of some alerts for a while."),
      [&alerts](Call& call, const SilenceIn& in) {
        const auto where = alerts_of(call);
        return call.write(where.scope().str(), [&](sql::Writer& writer) {
          return out_of(alerts.silence(writer, where, in.match, in.for_us, in.reason, call.actor()));
        });
      });
  routes.add<Nothing, SilenceOut>(
      changes_alerts(Method::del, "/v1/silences/{id}", "silence.write", "silence.delete", "Take a silence back."),
      [&alerts](Call& call, const Nothing&) {
        const auto where = alerts_of(call);
        const auto id = number_in_path(call, "silence");
        return call.write(alert_thing(where, "silence", std::to_string(id)), [&](sql::Writer& writer) {
          return out_of(alerts.unsilence(writer, where, id, call.actor()));
        });
      });
}

void add_channels(Routes& routes, Platform& platform) {
  auto& notifications = platform.notifications;
  routes.add<Nothing, TestedChannel>(changes_alerts(Method::post, "/v1/channels/{name}/test", "channel.write",
                                                    "channel.test", "Send a made-up alert now, once."),
                                     [&notifications](Call& call, const Nothing&) {
                                       const auto where = alerts_of(call);
                                       const std::string name(call.parameter("name"));
                                       if (!is_name(name)) throw Error(Code::not_found, "no such channel here");
                                       const auto tested = notifications.test(where, name);
                                       call.write(alert_thing(where, "channel", name), [](sql::Writer&) {});
                                       return TestedChannel{tested.success, tested.status, tested.answer, tested.error};
                                     });
  routes.add<AlertDeliveryQuery, AlertDeliveriesOut>(
      reads_alerts("/v1/alert-deliveries", "alert.list", "What channels were told and what waits, newest first."),
      [&notifications](Call& call, const AlertDeliveryQuery& in) {
        std::optional<outbox::State> state;
        if (in.state) state = outbox::parse_state(*in.state);
        AlertDeliveriesOut out;
        for (const auto& d : notifications.list(alerts_of(call), state, static_cast<std::size_t>(in.limit)))
          out.items.push_back(out_of(d));
        return out;
      });
  routes.add<Nothing, Nothing>(changes_alerts(Method::post, "/v1/alert-deliveries/{id}/retry", "alert.write",
                                              "alert.retry", "Try a dead one again."),
                               [&notifications](Call& call, const Nothing&) {
                                 const auto where = alerts_of(call);
                                 const std::string id(call.parameter("id"));
                                 call.write(where.scope().str(),
                                            [&](sql::Writer& writer) { notifications.retry(writer, where, id); });
                                 return Nothing{};
                               });
}

}  // namespace

void add_alert_routes(Routes& routes, Platform& platform) {
  add_alert_views(routes, platform);
  add_silences(routes, platform);
  add_channels(routes, platform);
}

}  // namespace falaj::api
