// SPDX-License-Identifier: Apache-2.0
// alerts

#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/session.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

struct AlertOptions {
  bool platform = false, all = false;
  std::string id, note, match, span, reason, state, name;
  std::int64_t limit = 100;
};
using SharedAlertOptions = std::shared_ptr<AlertOptions>;

// Rules about the server itself are the platform's.
std::string alert_scope(Session& session, const AlertOptions& o) { return o.platform ? "/" : session.project_scope(); }

void list_alerts(Session& session, const AlertOptions& o) {
  client::Query query{{"scope", alert_scope(session, o)}, {"limit", std::to_string(o.limit)}};
  if (o.all) query.emplace_back("resolved", "true");
  session.output().table(session.api().get("/v1/alerts", query).at("items").as_array(), {{"ALERT", "id"},
                                                                                         {"STATE", "state"},
                                                                                         {"SEVERITY", "severity"},
                                                                                         {"RULE", "rule"},
                                                                                         {"SUBJECT", "subject"},
                                                                                         {"SINCE", "since"},
                                                                                         {"SEEN BY", "acknowledged_by"},
                                                                                         {"WHAT", "text"}});
}

const std::vector<Column> kEventColumns = {{"EVENT", "id"},  {"TIME", "at"},   {"ALERT", "alert"},
                                           {"WHAT", "what"}, {"RULE", "rule"}, {"SUBJECT", "subject"},
                                           {"TOLD", "told"}, {"BY", "by"},     {"WHY", "why"}};

void show_alert(Session& session, const AlertOptions& o) {
  const auto answer =
      session.api().get("/v1/alerts/" + client::path_element(o.id), {{"scope", alert_scope(session, o)}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer);
  output.details(answer.at("alert"), {{"alert", "id"},
                                      {"state", "state"},
                                      {"severity", "severity"},
                                      {"rule", "rule"},
                                      {"subject", "subject"},
                                      {"what", "text"},
                                      {"value", "value"},
                                      {"labels", "labels"},
                                      {"since", "since"},
                                      {"fired", "fired"},
                                      {"resolved", "resolved"},
                                      {"told", "told"},
                                      {"channels", "notify"},
                                      {"seen by", "acknowledged_by"},
                                      {"note", "note"}});
  output.line("");
  output.table(answer.at("events").as_array(), kEventColumns);
}

const std::vector<Column> kSilenceColumns = {{"SILENCE", "id"},    {"MATCH", "match"}, {"UNTIL", "until"},
                                             {"BY", "created_by"}, {"ENDED", "ended"}, {"REASON", "reason"}};

void silence(Session& session, const AlertOptions& o) {
  const auto span = parse_duration_us(o.span);
  if (!span) throw Error(Code::invalid, fmt::format("--for: a time such as 30m or 2h, not '{}'", o.span));
  const auto made =
      session.api().post("/v1/silences", json::object{{"match", o.match}, {"for", o.span}, {"reason", o.reason}},
                         {{"scope", alert_scope(session, o)}});
  if (!session.output().for_people()) return session.output().value(made);
  session.output().line(
      fmt::format("silence {} until {}", made.at("id").as_int64(), std::string_view(made.at("until").as_string())));
}

void test_channel(Session& session, const AlertOptions& o) {
  const auto tested = session.api().post("/v1/channels/" + client::path_element(o.name) + "/test", json::object{},
                                         {{"scope", alert_scope(session, o)}});
  session.output().details(tested,
                           {{"taken", "success"}, {"status", "status"}, {"answer", "answer"}, {"problem", "error"}});
  if (!tested.at("success").as_bool()) session.status = exit_status(Code::unavailable);
}

void add_silence_commands(CLI::App& alerts, Session& session, const SharedAlertOptions& options) {
  auto* make = alerts.add_subcommand("silence", "Tell nobody of some alerts for a while");
  make->add_option("--match", options->match, "Of which, by labels: rule=slow,severity!=critical")->required();
  make->add_option("--for", options->span, "How long, such as 2h")->required();
  make->add_option("--reason", options->reason, "Why")->required();
  make->callback([&session, options] { silence(session, *options); });
  auto* list = alerts.add_subcommand("silences", "Silences that hold, and who made them");
  list->add_flag("--all", options->all, "Also those that hold no longer");
  list->callback([&session, options] {
    client::Query query{{"scope", alert_scope(session, *options)}};
    if (options->all) query.emplace_back("all", "true");
    session.output().table(session.api().get("/v1/silences", query).at("items").as_array(), kSilenceColumns);
  });
  auto* end = alerts.add_subcommand("unsilence", "Take a silence back");
  end->add_option("id", options->id, "Its number")->required();
  end->callback([&session, options] {
    session.api().del("/v1/silences/" + client::path_element(options->id), {{"scope", alert_scope(session, *options)}});
    session.output().line(fmt::format("ended silence {}", options->id));
  });
}

void add_channel_commands(CLI::App& alerts, Session& session, const SharedAlertOptions& options) {
  auto* test = alerts.add_subcommand("test-channel", "Send a made-up alert through a channel, once");
  test->add_option("name", options->name, "The channel")->required();
  test->callback([&session, options] { test_channel(session, *options); });
  auto* list = alerts.add_subcommand("deliveries", "What channels were told and what waits, newest first");
  list->add_option("--state", options->state, "waiting, done or dead")
      ->check(CLI::IsMember({"waiting", "done", "dead"}));
  list->add_option("--limit", options->limit, "Most of them")->capture_default_str();
  list->callback([&session, options] {
    client::Query query{{"scope", alert_scope(session, *options)}, {"limit", std::to_string(options->limit)}};
    if (!options->state.empty()) query.emplace_back("state", options->state);
    session.output().table(session.api().get("/v1/alert-deliveries", query).at("items").as_array(),
                           {{"DELIVERY", "id"},
                            {"CHANNEL", "channel"},
                            {"ALERT", "alert"},
                            {"WHAT", "what"},
                            {"STATE", "state"},
                            {"TRIES", "tries"},
                            {"CREATED", "created"},
                            {"ANSWER", "status"},
                            {"PROBLEM", "error"}});
  });
  auto* retry = alerts.add_subcommand("retry", "Try a delivery that was given up again");
  retry->add_option("id", options->id, "The delivery")->required();
  retry->callback([&session, options] {
    session.api().post("/v1/alert-deliveries/" + client::path_element(options->id) + "/retry", json::object{},
                       {{"scope", alert_scope(session, *options)}});
    session.output().line(fmt::format("tried again: {}", options->id));
  });
}

}  // namespace

void add_alert_commands(CLI::App& app, Session& session) {
  const auto options = std::make_shared<AlertOptions>();
  auto* alerts = app.add_subcommand("alerts", "What fires now, who was told, and who need not be");
  alerts->require_subcommand(0, 1);
  alerts->add_flag("--platform", options->platform, "Alerts about the server itself, rather than a project's");
  alerts->add_flag("--resolved", options->all, "Those that are over, too");
  alerts->callback([&session, options, alerts] {
    if (alerts->get_subcommands().empty()) list_alerts(session, *options);
  });
  auto* history = alerts->add_subcommand("history", "What happened to alerts, newest first");
  history->add_option("--limit", options->limit, "Most of them")->capture_default_str();
  history->callback([&session, options] {
    session.output().table(session.api()
                               .get("/v1/alerts/history", {{"scope", alert_scope(session, *options)},
                                                           {"limit", std::to_string(options->limit)}})
                               .at("items")
                               .as_array(),
                           kEventColumns);
  });
  alerts->add_subcommand("rules", "Alert rules, what they fire and why they see nothing")
      ->callback([&session, options] {
        session.output().table(
            session.api().get("/v1/alerts/rules", {{"scope", alert_scope(session, *options)}}).at("items").as_array(),
            {{"RULE", "name"},
             {"ON", "on"},
             {"SEVERITY", "severity"},
             {"PENDING", "pending"},
             {"FIRING", "firing"},
             {"PROBLEM", "problem"}});
      });
  auto* show = alerts->add_subcommand("show", "One alert, and what happened to it");
  show->add_option("id", options->id, "Its number")->required();
  show->callback([&session, options] { show_alert(session, *options); });
  auto* ack = alerts->add_subcommand("ack", "Say that you have seen an alert: it is not repeated");
  ack->add_option("id", options->id, "Its number")->required();
  ack->add_option("--note", options->note, "What is done about it");
  ack->callback([&session, options] {
    session.api().post("/v1/alerts/" + client::path_element(options->id) + "/ack",
                       json::object{{"note", options->note}}, {{"scope", alert_scope(session, *options)}});
    session.output().line(fmt::format("acknowledged alert {}", options->id));
  });
  add_silence_commands(*alerts, session, options);
  add_channel_commands(*alerts, session, options);
}

}  // namespace falaj::cli
