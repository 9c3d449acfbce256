// SPDX-License-Identifier: Apache-2.0
// loop

#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/session.h"

namespace falaj::cli {
namespace {

struct LoopOptions {
  std::string name;
  std::int64_t limit = 100;
};

const std::vector<Column> kPolicyColumns = {
    {"POLICY", "name"},       {"STATE", "state"},         {"PIPELINE", "pipeline"}, {"RUN", "run"},
    {"FAILURES", "failures"}, {"RUNS LEFT", "runs_left"}, {"DRY RUN", "dry_run"},   {"WHY", "why"}};

void show_policy(Session& session, const LoopOptions& options) {
  const client::Query scope{{"scope", session.project_scope()}};
  const auto policy = session.api().get("/v1/loop/policies/" + client::path_element(options.name), scope);
  const auto output = session.output();
  if (!output.for_people()) return output.value(policy);
  output.details(policy, {{"policy", "name"},
                          {"state", "state"},
                          {"why", "why"},
                          {"next", "next"},
                          {"on", "on"},
                          {"blocked by", "blocked_by"},
                          {"pipeline", "pipeline"},
                          {"endpoint", "endpoint"},
                          {"run", "run"},
                          {"failures", "failures"},
                          {"runs left", "runs_left"},
                          {"cool until", "cool_until"},
                          {"dry run", "dry_run"}});
}

void show_loop_history(Session& session, const LoopOptions& options) {
  client::Query query{{"scope", session.project_scope()}, {"limit", std::to_string(options.limit)}};
  if (!options.name.empty()) query.emplace_back("policy", options.name);
  session.output().table(
      session.api().get("/v1/loop/history", query).at("items").as_array(),
      {{"TIME", "at"}, {"POLICY", "policy"}, {"WHAT", "what"}, {"ALERT", "alert"}, {"RUN", "run"}, {"WHY", "why"}});
}

}  // namespace

void add_loop_commands(CLI::App& app, Session& session) {
  const auto options = std::make_shared<LoopOptions>();
  auto* loop = app.add_subcommand("loop", "What is done by itself when a model gets worse, and why");
  loop->require_subcommand(1);
  loop->add_subcommand("ls", "Policies and what they are about")->callback([&session] {
    const client::Query scope{{"scope", session.project_scope()}};
    session.output().table(session.api().get("/v1/loop/policies", scope).at("items").as_array(), kPolicyColumns);
  });
  auto* show = loop->add_subcommand("show", "One policy");
  show->add_option("name", options->name, "The policy")->required();
  show->callback([&session, options] { show_policy(session, *options); });
  auto* history = loop->add_subcommand("history", "What policies did and did not do, and why, newest first");
  history->add_option("name", options->name, "Only of this policy");
  history->add_option("--limit", options->limit, "Most of them")->capture_default_str()->check(CLI::Range(1, 1000));
  history->callback([&session, options] { show_loop_history(session, *options); });
  auto* resume = loop->add_subcommand("resume", "Let a policy that stopped go on, with its budget anew");
  resume->add_option("name", options->name, "The policy")->required();
  resume->callback([&session, options] {
    session.api().post("/v1/loop/policies/" + client::path_element(options->name) + "/resume", json::object{},
                       {{"scope", session.project_scope()}});
    session.output().line(fmt::format("policy {} goes on", options->name));
  });
}

}  // namespace falaj::cli
