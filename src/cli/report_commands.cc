// SPDX-License-Identifier: Apache-2.0
// report, timeline

#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/report.h"
#include "cli/session.h"
#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

struct ReportOptions {
  std::string model, alias = "champion", out, since;
  std::int64_t version = 0, limit = 1000;
};

// Answers of the API put together. What the caller may not see is left out and named.
class Gathering {
 public:
  explicit Gathering(Session& session) : session_(session), scope_(session.project_scope()) {}

  std::optional<json::value> get(const std::string& path, client::Query query = {}) {
    query.emplace_back("scope", scope_);
    try {
      return session_.api().get(path, query);
    } catch (const Error& e) {
      if (e.code() != Code::denied && e.code() != Code::not_found) throw;
      not_shown_.emplace_back(fmt::format("{}: {}", path, e.what()));
      return std::nullopt;
    }
  }
  json::array items(const std::string& path, client::Query query = {}) {
    const auto answer = get(path, std::move(query));
    return answer ? answer->at("items").as_array() : json::array();
  }
  const json::array& not_shown() const { return not_shown_; }

 private:
  Session& session_;
  const std::string scope_;
  json::array not_shown_;
};

std::string limit_of(const ReportOptions& options) { return std::to_string(options.limit); }

json::array gather_timeline(Gathering& gathering, const ReportOptions& options) {
  const auto limit = limit_of(options);
  json::object endpoints;
  for (const auto& endpoint : gathering.items("/v1/serving/endpoints")) {
    const std::string name(endpoint.at("name").as_string());
    if (auto history =
            gathering.get("/v1/serving/endpoints/" + client::path_element(name) + "/history", {{"limit", limit}}))
      endpoints[name] = std::move(*history);
  }
  auto happened = timeline_of({{"alerts", gathering.items("/v1/alerts/history", {{"limit", limit}})},
                               {"findings", gathering.items("/v1/findings", {{"all", "true"}, {"limit", limit}})},
                               {"loop", gathering.items("/v1/loop/history", {{"limit", limit}})},
                               {"runs", gathering.items("/v1/pipeline-runs", {{"limit", limit}})},
                               {"endpoints", std::move(endpoints)}});
  if (options.since.empty()) return happened;
  json::array out;
  for (auto& item : happened)
    if (std::string_view(item.at("time").as_string()) >= options.since) out.push_back(std::move(item));
  return out;
}

std::int64_t version_of(const json::value& model, const ReportOptions& options) {
  if (options.version > 0) return options.version;
  const auto& versions = model.at("versions").as_array();
  if (versions.empty()) throw Error(Code::not_found, fmt::format("model '{}' has no version yet", options.model));
  for (const auto& version : versions)
    for (const auto& alias : version.at("aliases").as_array())
      if (alias.as_string() == options.alias) return version.at("version").as_int64();
  return versions.front().at("version").as_int64();
}

bool serves(const json::value& endpoint, const std::string& model) {
  for (const auto& variant : endpoint.at("variants").as_array())
    if (const auto* name = variant.as_object().if_contains("model"); name && name->as_string() == model) return true;
  return false;
}

json::object gather_report(Session& session, const ReportOptions& options) {
  Gathering gathering(session);
  const auto path = "/v1/models/" + client::path_element(options.model);
  json::object out{{"made", format_time(session.clock().wall().count())}};
  auto model = session.api().get(path, {{"scope", session.project_scope()}});
  const auto version = version_of(model, options);
  out["model"] = std::move(model);
  if (auto found = gathering.get(fmt::format("{}/versions/{}", path, version))) {
    const std::string run(found->at("version").at("origin_run").as_string());
    out["version"] = std::move(*found);
    if (!run.empty())
      if (auto logged = gathering.get("/v1/runs/" + client::path_element(run))) out["run"] = std::move(*logged);
  }
  if (auto found =
          gathering.get("/v1/lineage", {{"thing", fmt::format("{}/{}", options.model, version)}, {"way", "up"}}))
    out["lineage"] = std::move(*found);
  if (auto found = gathering.get(path + "/history", {{"limit", limit_of(options)}})) {
    for (auto& change : found->at("changes").as_array())
      change.as_object()["at"] = format_time(change.at("at_us").as_int64());
    out["history"] = std::move(*found);
  }
  json::array endpoints, monitors;
  for (auto& endpoint : gathering.items("/v1/serving/endpoints")) {
    if (!serves(endpoint, options.model)) continue;
    for (auto& monitor : gathering.items("/v1/monitors")) {
      auto& declared = monitor.as_object();
      if (declared.at("spec").at("endpoint") != endpoint.at("name")) continue;
      const auto of_monitor = "/v1/monitors/" + client::path_element(std::string(declared.at("name").as_string()));
      declared["findings"] = gathering.items(of_monitor + "/findings", {{"all", "true"}, {"limit", "100"}});
      declared["windows"] = gathering.items(of_monitor + "/windows", {{"limit", "100"}});
      monitors.push_back(std::move(monitor));
    }
    endpoints.push_back(std::move(endpoint));
  }
  out["endpoints"] = std::move(endpoints);
  out["monitors"] = std::move(monitors);
  out["timeline"] = gather_timeline(gathering, options);
  out["not_shown"] = gathering.not_shown();
  return out;
}

void report_model(Session& session, const ReportOptions& options) {
  const auto report = gather_report(session, options);
  if (!options.out.empty()) {
    ResultFile file(options.out);
    file.write(as_bytes(report_page(report)));
    file.keep();
  }
  const auto output = session.output();
  if (!output.for_people()) return output.value(report);
  if (options.out.empty()) throw Error(Code::invalid, "where to? --out FILE.html for a page, or -o json");
  output.line(fmt::format("{} holds what is known of model {}", options.out, options.model));
}

}  // namespace

void add_report_commands(CLI::App& app, Session& session) {
  const auto options = std::make_shared<ReportOptions>();
  auto* report = app.add_subcommand("report", "What is known of something, as a page for people or as JSON");
  report->require_subcommand(1);
  auto* model = report->add_subcommand(
      "model", "A model: what it was made from, how good it is, who approved it, where it is served, what drifted");
  model->add_option("name", options->model, "The model")->required();
  model->add_option("--version", options->version, "Of which version; the champion's, or the newest")
      ->check(CLI::PositiveNumber);
  model->add_option("--alias", options->alias, "Of which alias")->capture_default_str();
  model->add_option("--out", options->out, "The page: one HTML file that needs nothing else");
  model->callback([&session, options] { report_model(session, *options); });

  auto* timeline =
      app.add_subcommand("timeline", "What happened in a project: findings, alerts, policies, pipelines, endpoints");
  timeline->add_option("--since", options->since, "Only from then on, RFC 3339");
  timeline->add_option("--limit", options->limit, "Most of each kind")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  timeline->callback([&session, options] {
    Gathering gathering(session);
    session.output().table(gather_timeline(gathering, *options),
                           {{"TIME", "time"}, {"WHAT", "what"}, {"THING", "thing"}, {"LOOK", "look"}, {"WHY", "why"}});
  });
}

}  // namespace falaj::cli
