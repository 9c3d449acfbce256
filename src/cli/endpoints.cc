// SPDX-License-Identifier: Apache-2.0
// deploy, endpoint, predict

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/batch_predict.h"
#include "cli/datasets.h"
#include "cli/feedback.h"
#include "cli/replay.h"
#include "cli/session.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};

std::string endpoint_path(const std::string& name, std::string_view more = "") {
  return fmt::format("/v1/serving/endpoints/{}{}", client::path_element(name), more);
}

// "MODEL@ALIAS", "MODEL/VERSION", each with "=WEIGHT".
struct Wanted {
  std::string model, alias;
  std::optional<std::int64_t> version;
  std::optional<double> weight;
};
Wanted parse_wanted(std::string text) {
  Wanted out;
  if (const auto equals = text.rfind('='); equals != std::string::npos) {
    try {
      out.weight = std::stod(text.substr(equals + 1));
    } catch (const std::exception&) {
      throw Error(Code::invalid, fmt::format("'{}': a weight is a number, such as MODEL@ALIAS=10", text));
    }
    text.resize(equals);
  }
  if (const auto at = text.rfind('@'); at != std::string::npos) {
    out.model = text.substr(0, at);
    out.alias = text.substr(at + 1);
  } else if (const auto slash = text.rfind('/'); slash != std::string::npos) {
    out.model = text.substr(0, slash);
    out.version = parse_int(text.substr(slash + 1));
  }
  if (out.model.empty() || (out.alias.empty() && !out.version))
    throw Error(Code::invalid, fmt::format("'{}': which version? MODEL@ALIAS or MODEL/VERSION", text));
  return out;
}

json::object variant_of(const Wanted& wanted, std::string name, double weight, bool shadow) {
  json::object out{{"name", std::move(name)}, {"model", wanted.model}, {"weight", wanted.weight.value_or(weight)}};
  if (wanted.version)
    out["version"] = *wanted.version;
  else
    out["alias"] = wanted.alias;
  if (shadow) out["shadow"] = true;
  return out;
}

struct DeployOptions {
  std::string model, name, challenger, shadow, sticky, features;
  std::optional<double> log;
  double wait_s = 60;
};

const std::vector<Column> kVariantColumns = {{"VARIANT", "name"},      {"MODEL", "model"},     {"VERSION", "version"},
                                             {"WEIGHT", "weight"},     {"SHADOW", "shadow"},   {"STATE", "state"},
                                             {"REQUESTS", "requests"}, {"FAILED", "failures"}, {"P50 US", "p50_us"},
                                             {"P99 US", "p99_us"},     {"NOTE", "note"}};

json::array variant_rows(const json::value& endpoint) {
  json::array rows;
  for (const auto& variant : endpoint.at("variants").as_array()) {
    auto row = variant.as_object();
    std::string note(at_path(variant, "problem").is_string() ? variant.at("problem").as_string().c_str() : "");
    std::string state = note.empty() ? "waiting" : "problem";
    std::int64_t requests = 0, failures = 0;
    double p50 = 0, p99 = 0;
    if (const auto* servers = row.if_contains("servers"))
      for (const auto& server : servers->as_array()) {
        state = std::string(server.at("state").as_string());
        if (const auto& reason = at_path(server, "reason"); reason.is_string() && !reason.as_string().empty())
          note = std::string(reason.as_string());
        const auto number = [&](const char* key) {
          const auto& value = at_path(server, key);
          return value.is_number() ? value.to_number<double>() : 0;
        };
        requests += static_cast<std::int64_t>(number("requests"));
        failures += static_cast<std::int64_t>(number("failures"));
        p50 = std::max(p50, number("p50_us"));
        p99 = std::max(p99, number("p99_us"));
      }
    row["state"] = state;
    row["requests"] = requests;
    row["failures"] = failures;
    row["p50_us"] = p50;
    row["p99_us"] = p99;
    row["note"] = note;
    rows.push_back(std::move(row));
  }
  return rows;
}

void print_endpoint(Session& session, const json::value& endpoint) {
  const auto output = session.output();
  if (!output.for_people()) return output.value(endpoint);
  output.details(endpoint, {{"endpoint", "name"},
                            {"ready", "ready"},
                            {"revision", "revision"},
                            {"stopped", "stopped"},
                            {"sticky", "sticky"},
                            {"features", "features.service"},
                            {"features problem", "features.problem"},
                            {"http", "urls"},
                            {"grpc", "grpc"}});
  output.line("");
  output.table(variant_rows(endpoint), kVariantColumns);
}

// Until servers say that the newest plan is served, or one of its variants cannot be.
json::value wait_ready(Session& session, const std::string& name, double wait_s) {
  const auto until = session.clock().now() + sys::Micros(static_cast<std::int64_t>(wait_s * 1e6));
  for (;;) {
    auto endpoint = session.api().get(endpoint_path(name), {{"scope", session.project_scope()}});
    if (endpoint.at("ready").as_bool() || endpoint.at("stopped").as_bool()) return endpoint;
    for (const auto& row : variant_rows(endpoint)) {
      const auto state = row.at("state").as_string();
      if (state == "problem" || state == "failed" || state == "quarantined")
        throw Error(Code::unavailable, fmt::format("variant {}: {}", std::string_view(row.at("name").as_string()),
                                                   std::string_view(row.at("note").as_string())));
    }
    if (session.clock().now() >= until)
      throw Error(Code::deadline,
                  fmt::format("endpoint {} was not ready after {} s: see falaj endpoint show {}", name, wait_s, name));
    std::this_thread::sleep_for(kLookEvery);
  }
}

void deploy(Session& session, const DeployOptions& options) {
  const auto champion = parse_wanted(options.model);
  const auto name = options.name.empty() ? champion.model : options.name;
  json::array variants;
  variants.push_back(variant_of(champion, "champion", options.challenger.empty() ? 1 : 90, false));
  if (!options.challenger.empty())
    variants.push_back(variant_of(parse_wanted(options.challenger), "challenger", 10, false));
  if (!options.shadow.empty()) variants.push_back(variant_of(parse_wanted(options.shadow), "shadow", 1, true));
  json::object spec{{"variants", std::move(variants)}};
  if (!options.sticky.empty()) spec["sticky"] = options.sticky;
  if (options.log) spec["log"] = json::object{{"share", *options.log}};
  if (!options.features.empty()) spec["features"] = json::object{{"service", options.features}};
  const auto project = session.project_scope();
  const auto scope = split(project, '/');  // "", t, TENANT, p, PROJECT
  json::object document{{"apiVersion", "falaj/v1"},
                        {"kind", "Endpoint"},
                        {"metadata", json::object{{"name", name}, {"tenant", scope.at(2)}, {"project", scope.at(4)}}},
                        {"spec", std::move(spec)}};
  const json::object source{{"file", "deploy"}, {"text", json::serialize(document)}};  // JSON is YAML
  session.api().post("/v1/apply", json::object{{"sources", json::array{source}}, {"dry_run", false}});
  print_endpoint(session, wait_ready(session, name, options.wait_s));
}

void add_deploy(CLI::App& app, Session& session) {
  auto options = std::make_shared<DeployOptions>();
  auto* command = app.add_subcommand("deploy", "Serve a version of a model: deploy MODEL@ALIAS or MODEL/VERSION");
  command->add_option("model", options->model, "MODEL@ALIAS, which is followed when it moves, or MODEL/VERSION")
      ->required();
  command->add_option("--name", options->name, "Of the endpoint; the model's name when absent");
  command->add_option("--challenger", options->challenger, "A second variant, MODEL@ALIAS=WEIGHT beside 90");
  command->add_option("--shadow", options->shadow, "A variant that gets copies of requests and answers nobody");
  command->add_option("--sticky", options->sticky, "header:NAME or input:NAME: equal values get the same variant");
  command->add_option("--features", options->features, "A feature service: rows name entities, the rest is looked up");
  command->add_option("--log", options->log, "Write that share of what it answers down: the dataset predictions-NAME");
  command->add_option("--wait", options->wait_s, "Seconds until it must be ready")->capture_default_str();
  command->callback([&session, options] { deploy(session, *options); });
}

void add_endpoint_looking(CLI::App& endpoint, Session& session) {
  endpoint.add_subcommand("ls", "Endpoints of the project")->callback([&session] {
    const auto answer = session.api().get("/v1/serving/endpoints", {{"scope", session.project_scope()}});
    const auto output = session.output();
    if (!output.for_people()) return output.value(answer.at("items"));
    json::array rows;
    for (const auto& item : answer.at("items").as_array()) {
      auto row = item.as_object();
      std::string shares;
      for (const auto& v : item.at("variants").as_array())
        shares += fmt::format("{}{}/{}={}", shares.empty() ? "" : ", ", std::string_view(v.at("model").as_string()),
                              v.at("version").to_number<std::int64_t>(), v.at("weight").to_number<double>());
      row["shares"] = shares;
      rows.push_back(std::move(row));
    }
    output.table(rows, {{"ENDPOINT", "name"}, {"READY", "ready"}, {"VARIANTS", "shares"}, {"URL", "urls"}});
  });
  const auto name = std::make_shared<std::string>();
  auto* show = endpoint.add_subcommand("show", "One endpoint: who answers, how often, how fast");
  show->add_option("name", *name, "Its name")->required();
  show->callback([&session, name] {
    print_endpoint(session, session.api().get(endpoint_path(*name), {{"scope", session.project_scope()}}));
  });
  const auto time = std::make_shared<std::string>();
  auto* history = endpoint.add_subcommand("history", "What it served, newest first; with --at, what it served then");
  history->add_option("name", *name, "Its name")->required();
  history->add_option("--at", *time, "A time such as 2026-01-31T12:00:00Z");
  history->callback([&session, name, time] {
    const client::Query scope{{"scope", session.project_scope()}};
    json::array items;
    if (time->empty()) {
      items = session.api().get(endpoint_path(*name, "/history"), scope).at("items").as_array();
    } else {
      auto query = scope;
      query.emplace_back("time", *time);
      const auto answer = session.api().get(endpoint_path(*name, "/served-at"), query);
      if (const auto& served = at_path(answer, "served"); served.is_object()) items.push_back(served);
    }
    const auto output = session.output();
    if (!output.for_people()) return output.value(items);
    json::array rows;
    for (const auto& item : items) {
      auto row = item.as_object();
      std::string shares;
      for (const auto& v : item.at("variants").as_array())
        shares += fmt::format("{}{}: {}/{}={}", shares.empty() ? "" : ", ", std::string_view(v.at("name").as_string()),
                              std::string_view(v.at("model").as_string()), v.at("version").to_number<std::int64_t>(),
                              v.at("weight").to_number<double>());
      row["shares"] = shares.empty() ? "nothing" : shares;
      rows.push_back(std::move(row));
    }
    output.table(rows, {{"NUMBER", "number"}, {"SINCE", "at"}, {"SERVED", "shares"}, {"BY", "by"}, {"WHY", "why"}});
  });
}

void add_endpoint_changing(CLI::App& endpoint, Session& session) {
  const auto name = std::make_shared<std::string>();
  const auto shares = std::make_shared<std::vector<std::string>>();
  auto* shift = endpoint.add_subcommand("shift", "Share requests otherwise: shift NAME challenger=20 champion=80");
  shift->add_option("name", *name, "Its name")->required();
  shift->add_option("shares", *shares, "VARIANT=WEIGHT; those left out keep theirs")->required();
  const auto at = std::make_shared<std::string>();
  shift->add_option("--at", *at, "When, such as 2026-12-01T08:00:00Z; now when absent");
  shift->callback([&session, name, shares, at] {
    json::object weights;
    for (const auto& share : *shares) {
      const auto equals = share.find('=');
      try {
        weights[share.substr(0, equals)] = std::stod(share.substr(equals + 1));
      } catch (const std::exception&) {
        throw Error(Code::invalid, fmt::format("'{}': must be VARIANT=WEIGHT", share));
      }
    }
    session.api().post(endpoint_path(*name, "/shift"), json::object{{"weights", std::move(weights)}, {"at", *at}},
                       {{"scope", session.project_scope()}});
    print_endpoint(session, wait_ready(session, *name, 30));
  });
  const auto to = std::make_shared<std::int64_t>(0);
  auto* rollback = endpoint.add_subcommand("rollback", "Serve what was served before");
  rollback->add_option("name", *name, "Its name")->required();
  rollback->add_option("--to", *to, "A number of its history; the state before when absent");
  rollback->callback([&session, name, to] {
    session.api().post(endpoint_path(*name, "/rollback"), json::object{{"to", *to}},
                       {{"scope", session.project_scope()}});
    print_endpoint(session, wait_ready(session, *name, 30));
  });
}

void print_features(const Output& output, const json::value& features) {
  json::array rows;
  for (const auto& column : features.at("columns").as_array())
    for (std::size_t row = 0; row < column.at("values").as_array().size(); ++row)
      rows.push_back(json::object{{"row", row},
                                  {"view", column.at("view")},
                                  {"revision", column.at("revision")},
                                  {"feature", column.at("feature")},
                                  {"value", column.at("values").as_array()[row]},
                                  {"status", column.at("statuses").as_array()[row]},
                                  {"time", column.at("times").as_array()[row]}});
  output.line("");
  output.table(rows, {{"ROW", "row"},
                      {"VIEW", "view"},
                      {"REVISION", "revision"},
                      {"FEATURE", "feature"},
                      {"VALUE", "value"},
                      {"STATUS", "status"},
                      {"TIME", "time"}});
}

void add_predict(CLI::App& app, Session& session) {
  const auto name = std::make_shared<std::string>();
  const auto rows = std::make_shared<std::vector<std::string>>();
  const auto server = std::make_shared<std::string>();
  auto* command = app.add_subcommand("predict", "Ask an endpoint: predict NAME '{\"hour\": 8, \"distance\": 400}'");
  command->add_option("name", *name, "The endpoint")->required();
  command->add_option("rows", *rows, "Each a JSON object of named fields, or @FILE of one a line");
  command->add_option("--server", *server, "Which server to ask; the first that serves it when absent");
  const auto batch = add_batch_options(*command);
  const auto as_of = std::make_shared<std::string>();
  const auto explain = std::make_shared<bool>(false);
  command->add_option("--as-of", *as_of, "When features are looked up; now when absent, and not before the last write");
  command->add_flag("--explain", *explain, "Shows the features that were looked up, too");
  command->callback([&session, name, rows, server, as_of, explain, batch] {
    if (!batch->dataset.empty()) {
      if (!rows->empty()) throw Error(Code::invalid, "rows or --dataset: give one of them");
      batch->endpoint = *name;
      batch->server = *server;
      const auto made = predict_dataset(session, *batch);
      return session.output().for_people() ? print_version(session, made) : session.output().value(made);
    }
    if (rows->empty()) throw Error(Code::invalid, "which rows? give JSON objects, @FILE or --dataset");
    json::array asked;
    for (const auto& row : *rows) {
      if (!row.starts_with('@')) {
        asked.push_back(parse_json(row));
        continue;
      }
      std::ifstream in(row.substr(1), std::ios::binary);
      if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", row.substr(1)));
      for (std::string line; std::getline(in, line);)
        if (!trim(line).empty()) asked.push_back(parse_json(line));
    }
    auto target = session.api().target();
    target.url = *server;
    if (target.url.empty()) {
      const auto endpoint = session.api().get(endpoint_path(*name), {{"scope", session.project_scope()}});
      const auto& urls = endpoint.at("urls").as_array();
      if (urls.empty()) throw Error(Code::unavailable, fmt::format("no server serves endpoint {}", *name));
      target.url = std::string(urls.front().as_string());
    }
    client::ApiClient direct(target);
    const auto scope = session.project_scope();
    const auto parts = split(scope, '/');
    json::object body{{"rows", std::move(asked)}};
    if (*explain) body["explain"] = true;
    if (!as_of->empty()) body["as_of"] = *as_of;
    const auto answer = direct.post(
        "/v2/models/" + client::path_element(fmt::format("{}.{}.{}", parts.at(2), parts.at(4), *name)) + "/predict",
        body);
    const auto output = session.output();
    if (!output.for_people()) return output.value(answer);
    for (const auto& row : answer.at("rows").as_array()) output.line(json::serialize(row));
    if (const auto& features = at_path(answer, "features"); features.is_object()) print_features(output, features);
  });
}

}  // namespace

void add_endpoint_commands(CLI::App& app, Session& session) {
  add_deploy(app, session);
  auto* endpoint = app.add_subcommand("endpoint", "Endpoints: models behind one address, and how they share it");
  endpoint->require_subcommand(1);
  add_endpoint_looking(*endpoint, session);
  add_endpoint_changing(*endpoint, session);
  add_endpoint_feedback(*endpoint, session);
  add_endpoint_replay(*endpoint, session);
  add_predict(app, session);
}

}  // namespace falaj::cli
