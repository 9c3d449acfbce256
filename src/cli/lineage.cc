// SPDX-License-Identifier: Apache-2.0
// lineage, webhook

#include <set>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/runs.h"

namespace falaj::cli {
namespace {

using As = Column::As;

struct LineageOptions {
  std::string thing;
  bool up = false, down = false, open_lineage = false;
};
struct WebhookOptions {
  std::string id, name, url, secret_file, event = "model_version.created";
  std::vector<std::string> events;
};

// Each thing below the one it was reached from; what hangs below a thing is drawn once.
class Tree {
 public:
  Tree(const json::value& answer, bool up) : answer_(answer), up_(up) {}
  std::string draw() {
    const auto& things = answer_.at("things").as_array();
    const std::string root(things.at(0).as_string());
    out_ = harmless(root) + "\n";
    branches(root, "");
    if (!answer_.at("whole").as_bool()) out_ += fmt::format("and more: only the nearest {} are shown\n", things.size());
    return out_;
  }

 private:
  void branches(const std::string& thing, const std::string& indent) {
    if (!drawn_.insert(thing).second) return;
    std::vector<std::pair<std::string, std::string>> next;  // thing, how
    for (const auto& edge : answer_.at("edges").as_array())
      if (edge.at(up_ ? "to" : "from").as_string() == thing)
        next.emplace_back(edge.at(up_ ? "from" : "to").as_string(), edge.at("how").as_string());
    for (std::size_t i = 0; i < next.size(); ++i) {
      const bool last = i + 1 == next.size(), again = drawn_.contains(next[i].first);
      out_ += fmt::format("{}{}{} {}{}\n", indent, last ? "└─ " : "├─ ", next[i].second, harmless(next[i].first),
                          again ? " (see above)" : "");
      // The limit of the answer bounds the depth too; deeper than this nobody reads a tree.
      if (indent.size() < kIndentMax) branches(next[i].first, indent + (last ? "   " : "│  "));
    }
  }

  static constexpr std::size_t kIndentMax = 400;
  const json::value& answer_;
  const bool up_;
  std::set<std::string> drawn_;
  std::string out_;
};

void show(Session& session, const LineageOptions& options) {
  client::Query query{{"scope", session.project_scope()}, {"thing", options.thing}};
  if (options.open_lineage) {
    query.emplace_back("format", "openlineage");
    return session.output().raw(pretty(session.api().get("/v1/lineage", query).at("events")) + "\n");
  }
  query.emplace_back("way", options.down ? "down" : "up");
  const auto answer = session.api().get("/v1/lineage", query);
  const auto output = session.output();
  output.for_people() ? output.raw(Tree(answer, !options.down).draw()) : output.value(answer);
}

std::string webhook_path(const std::string& id, std::string_view more = "") {
  return fmt::format("/v1/webhooks/{}{}", client::path_element(id), more);
}

void create_webhook(Session& session, const WebhookOptions& options) {
  json::object body{{"name", options.name}, {"url", options.url}};
  json::array events;
  for (const auto& event : options.events) events.emplace_back(event);
  body["events"] = std::move(events);
  if (!options.secret_file.empty()) {
    std::ifstream in(options.secret_file, std::ios::binary);
    std::string secret;
    if (!in || !std::getline(in, secret) || secret.empty())
      throw Error(Code::not_found, fmt::format("--secret-file: no secret in {}", options.secret_file));
    body["secret"] = secret;
  }
  session.output().details(session.api().post("/v1/webhooks", body, {{"scope", session.project_scope()}}),
                           {{"id", "id"},
                            {"name", "name"},
                            {"url", "url"},
                            {"events", "events"},
                            {"signed", "has_secret"},
                            {"active", "active"}});
}

void add_webhook(CLI::App& app, Session& session) {
  auto options = std::make_shared<WebhookOptions>();
  auto* webhook = app.add_subcommand("webhook", "Who is told of what happens to models");
  webhook->require_subcommand(1);
  webhook->add_subcommand("ls", "Webhooks of the project")->callback([&session] {
    const auto answer = session.api().get("/v1/webhooks", {{"scope", session.project_scope()}});
    session.output().table(
        answer.at("items").as_array(),
        {{"id", "id"}, {"name", "name"}, {"url", "url"}, {"active", "active"}, {"events", "events"}});
  });
  auto* create = webhook->add_subcommand("create", "Tell an address of events");
  create->add_option("name", options->name, "Its name")->required();
  create->add_option("url", options->url, "Where to; webhooks.hosts of the server's settings must allow it")
      ->required();
  create->add_option("--event", options->events, "Of what, such as model_version.created; may be repeated")->required();
  create->add_option("--secret-file", options->secret_file, "File of the secret with which deliveries are signed");
  create->callback([&session, options] { create_webhook(session, *options); });
  auto* rm = webhook->add_subcommand("rm", "Tell it no more");
  rm->add_option("id", options->id, "Its id")->required();
  rm->callback([&session, options] {
    session.api().del(webhook_path(options->id), {{"scope", session.project_scope()}});
    session.output().line("removed " + options->id);
  });
  auto* deliveries = webhook->add_subcommand("deliveries", "What was sent and what waits, newest first");
  deliveries->add_option("id", options->id, "Its id")->required();
  deliveries->callback([&session, options] {
    const auto answer =
        session.api().get(webhook_path(options->id, "/deliveries"), {{"scope", session.project_scope()}});
    session.output().table(answer.at("items").as_array(), {{"delivery", "id"},
                                                           {"event", "event"},
                                                           {"state", "state"},
                                                           {"tries", "tries"},
                                                           {"created", "created_us", As::time},
                                                           {"answer", "status"},
                                                           {"problem", "error"}});
  });
  auto* test = webhook->add_subcommand("test", "Send a made-up event now, once");
  test->add_option("id", options->id, "Its id")->required();
  test->add_option("--event", options->event, "Which event")->capture_default_str();
  test->callback([&session, options] {
    session.output().details(
        session.api().post(webhook_path(options->id, "/test"), json::object{{"event", options->event}},
                           {{"scope", session.project_scope()}}),
        {{"taken", "success"}, {"answer", "status"}, {"says", "body"}, {"problem", "error"}});
  });
}

}  // namespace

void add_lineage_commands(CLI::App& app, Session& session) {
  auto options = std::make_shared<LineageOptions>();
  auto* lineage = app.add_subcommand("lineage", "What things were made of, and what was made of them");
  lineage->require_subcommand(1);
  auto* show_command = lineage->add_subcommand("show", "Upward (what it was made of) or downward, through every step");
  show_command
      ->add_option("thing", options->thing, "run/ID, version/MODEL/NUMBER, logged_model/ID or dataset/NAME@DIGEST")
      ->required();
  auto* up = show_command->add_flag("--up", options->up, "What it was made of (the default)");
  show_command->add_flag("--down", options->down, "What was made of it")->excludes(up);
  show_command->add_flag("--open-lineage", options->open_lineage, "A run's events as OpenLineage has them, as JSON");
  show_command->callback([&session, options] { show(session, *options); });
  add_webhook(app, session);
}

}  // namespace falaj::cli
