// SPDX-License-Identifier: Apache-2.0
// monitor: what endpoints are asked and answer, beside what their models were trained on

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/plot.h"
#include "cli/session.h"
#include "foundation/base/error.h"

namespace falaj::cli {
namespace {

std::string monitor_path(const std::string& name, std::string_view more = "") {
  return fmt::format("/v1/monitors/{}{}", client::path_element(name), more);
}

const std::vector<Column> kFindingColumns = {{"COLUMN", "column"}, {"KIND", "kind"}, {"SINCE", "since"},
                                             {"VARIANT", "who"},   {"SEEN", "text"}, {"DIAGNOSIS", "diagnosis"},
                                             {"ENDED", "ended"}};

json::array finding_rows(const json::value& items) {
  json::array rows;
  for (const auto& item : items.as_array()) {
    auto row = item.as_object();
    row["who"] = fmt::format("{}/{}", std::string_view(item.at("variant").as_string()),
                             item.at("version").to_number<std::int64_t>());
    rows.push_back(std::move(row));
  }
  return rows;
}

// "3.1e-07", "0.42": few digits, and never a long row of zeros.
std::string short_number(const json::value& value) {
  return value.is_number() ? fmt::format("{:.3g}", value.to_number<double>()) : "";
}

void list_monitors(Session& session) {
  const auto answer = session.api().get("/v1/monitors", {{"scope", session.project_scope()}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer.at("items"));
  json::array rows;
  for (const auto& item : answer.at("items").as_array()) {
    std::int64_t windows = 0;
    std::string last;
    for (const auto& stream : item.at("streams").as_array()) {
      windows += stream.at("windows").to_number<std::int64_t>();
      last = std::max(last, std::string(stream.at("last").as_string()));
    }
    std::string found;
    for (const auto& finding : item.at("findings").as_array()) {
      const auto name = fmt::format("{} {}", std::string_view(finding.at("column").as_string()),
                                    std::string_view(finding.at("kind").as_string()));
      if (found.size() < 60) found += (found.empty() ? "" : ", ") + name;
    }
    rows.push_back(json::object{{"name", item.at("name")},
                                {"endpoint", at_path(item, "spec.endpoint")},
                                {"windows", windows},
                                {"last", last},
                                {"standing", item.at("findings").as_array().size()},
                                {"found", found}});
  }
  output.table(rows, {{"MONITOR", "name"},
                      {"ENDPOINT", "endpoint"},
                      {"WINDOWS", "windows"},
                      {"LAST", "last"},
                      {"FINDINGS", "standing"},
                      {"WHICH", "found"}});
}

void show_monitor(Session& session, const std::string& name) {
  const auto answer = session.api().get(monitor_path(name), {{"scope", session.project_scope()}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer);
  output.details(answer, {{"monitor", "name"},
                          {"endpoint", "spec.endpoint"},
                          {"window rows", "spec.window.rows"},
                          {"level", "spec.level"},
                          {"horizon", "spec.horizon"}});
  output.line("");
  output.table(answer.at("streams").as_array(), {{"VARIANT", "variant"},
                                                 {"VERSION", "version"},
                                                 {"WINDOWS", "windows"},
                                                 {"WAITING", "waiting"},
                                                 {"LAST", "last"},
                                                 {"COMPARED WITH", "reference"}});
  if (const auto& performance = answer.at("performance").as_array(); !performance.empty()) {
    output.line("\nby labels");
    output.table(performance, {{"VARIANT", "variant"},
                               {"VERSION", "version"},
                               {"WINDOWS", "windows"},
                               {"WAITING", "waiting"},
                               {"UNMATCHED", "unmatched"},
                               {"LATE", "late"},
                               {"LAST", "last"},
                               {"COMPARED WITH", "reference"}});
  }
  output.line("");
  if (answer.at("findings").as_array().empty()) return output.line("nothing found");
  output.table(finding_rows(answer.at("findings")), kFindingColumns);
}

struct FindingsOptions {
  std::string name, column, kind;
  bool all = false;
};
void print_findings(Session& session, const FindingsOptions& options) {
  client::Query query{{"scope", session.project_scope()}};
  if (options.all) query.emplace_back("all", "true");
  if (!options.column.empty()) query.emplace_back("column", options.column);
  if (!options.kind.empty()) query.emplace_back("kind", options.kind);
  const auto answer =
      session.api().get(options.name.empty() ? "/v1/findings" : monitor_path(options.name, "/findings"), query);
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer.at("items"));
  if (answer.at("items").as_array().empty()) return output.line("nothing found");
  output.table(finding_rows(answer.at("items")), kFindingColumns);
}

void print_windows(Session& session, const std::string& name, std::int64_t limit) {
  const auto answer = session.api().get(monitor_path(name, "/windows"),
                                        {{"scope", session.project_scope()}, {"limit", std::to_string(limit)}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer.at("items"));
  json::array rows;
  for (const auto& item : answer.at("items").as_array()) {
    auto row = item.as_object();
    const json::value* least = nullptr;
    for (const auto& column : item.at("columns").as_array())
      if (!least || column.at("chance").to_number<double>() < least->at("chance").to_number<double>()) least = &column;
    row["least"] = least ? least->at("column") : json::value("");
    row["chance"] = least ? short_number(least->at("chance")) : "";
    row["psi"] = least ? short_number(at_path(*least, "distances.psi")) : "";
    row.erase("columns");
    rows.push_back(std::move(row));
  }
  output.table(rows, {{"WINDOW", "number"},
                      {"VARIANT", "variant"},
                      {"VERSION", "version"},
                      {"UNTIL", "until"},
                      {"ROWS", "rows"},
                      {"LOOKED AT", "looked_at"},
                      {"FARTHEST", "least"},
                      {"CHANCE", "chance"},
                      {"PSI", "psi"}});
}

// A row for each metric of each window.
void print_performance(Session& session, const std::string& name, std::int64_t limit) {
  const auto answer = session.api().get(monitor_path(name, "/performance"),
                                        {{"scope", session.project_scope()}, {"limit", std::to_string(limit)}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer.at("items"));
  json::array rows;
  for (const auto& item : answer.at("items").as_array())
    for (const auto& metric : item.at("metrics").as_array()) {
      auto row = item.as_object();
      row["metric"] = metric.at("name");
      row["value"] = short_number(metric.at("value"));
      row["bounds"] = fmt::format("{} to {}", short_number(metric.at("low")), short_number(metric.at("high")));
      row["was"] = short_number(at_path(metric, "was"));
      row["chance"] = short_number(at_path(metric, "chance"));
      row.erase("metrics");
      rows.push_back(std::move(row));
    }
  if (rows.empty()) return output.line("no window of labelled predictions yet: see falaj monitor show " + name);
  output.table(rows, {{"WINDOW", "number"},
                      {"VARIANT", "variant"},
                      {"VERSION", "version"},
                      {"FROM", "from"},
                      {"UNTIL", "until"},
                      {"LABELS", "labels"},
                      {"METRIC", "metric"},
                      {"VALUE", "value"},
                      {"95 %", "bounds"},
                      {"WAS", "was"},
                      {"CHANCE", "chance"}});
}

struct ColumnOptions {
  std::string name, column, variant;
  std::int64_t version = 0;
  std::optional<std::int64_t> window;
};
void print_column(Session& session, const ColumnOptions& options) {
  client::Query query{{"scope", session.project_scope()}};
  if (!options.variant.empty()) query.emplace_back("variant", options.variant);
  if (options.version > 0) query.emplace_back("version", std::to_string(options.version));
  if (options.window) query.emplace_back("window", std::to_string(*options.window));
  const auto answer =
      session.api().get(monitor_path(options.name, "/columns/" + client::path_element(options.column)), query);
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer);
  output.details(answer, {{"column", "column"},
                          {"variant", "variant"},
                          {"version", "version"},
                          {"window", "window"},
                          {"from", "from"},
                          {"until", "until"},
                          {"compared with", "compared_with"},
                          {"rows then", "reference.rows"},
                          {"rows now", "seen.rows"},
                          {"missing then", "reference.missing"},
                          {"missing now", "seen.missing"}});
  output.line("");
  if (const auto& bars = answer.at("bars").as_array(); !bars.empty()) {
    std::vector<double> was, is;
    for (const auto& bar : bars) {
      was.push_back(bar.at("reference").to_number<double>());
      is.push_back(bar.at("window").to_number<double>());
    }
    output.line(fmt::format("then  {}", sparkline(was)));
    output.line(fmt::format("now   {}", sparkline(is)));
    output.line(
        fmt::format("      {} to {}\n", short_number(bars.front().at("from")), short_number(bars.back().at("until"))));
  }
  json::array rows;
  for (const auto& one : answer.at("quantiles").as_array())
    rows.push_back(json::object{{"what", fmt::format("{:g} %", 100 * one.at("share").to_number<double>())},
                                {"reference", short_number(at_path(one, "reference"))},
                                {"window", short_number(at_path(one, "window"))}});
  if (!rows.empty()) output.table(rows, {{"BELOW", "what"}, {"THEN", "reference"}, {"NOW", "window"}});
  rows.clear();
  for (const auto& one : answer.at("values").as_array())
    rows.push_back(json::object{{"what", one.at("value")},
                                {"reference", fmt::format("{:.2f} %", 100 * one.at("reference").to_number<double>())},
                                {"window", fmt::format("{:.2f} %", 100 * one.at("window").to_number<double>())}});
  if (!rows.empty()) output.table(rows, {{"VALUE", "what"}, {"THEN", "reference"}, {"NOW", "window"}});
}

}  // namespace

void add_monitor_commands(CLI::App& app, Session& session) {
  auto* monitor = app.add_subcommand(
      "monitor", "Monitors: what endpoints are asked and answer, beside what models were trained on");
  monitor->require_subcommand(1);
  monitor->add_subcommand("ls", "Monitors of the project, and what they found")->callback([&session] {
    list_monitors(session);
  });
  const auto name = std::make_shared<std::string>();
  auto* show = monitor->add_subcommand("show", "One monitor: what it has seen, and what stands");
  show->add_option("name", *name, "Its name")->required();
  show->callback([&session, name] { show_monitor(session, *name); });

  const auto wanted = std::make_shared<FindingsOptions>();
  auto* findings =
      monitor->add_subcommand("findings", "What was found: drift, faults of data, skew, worse performance");
  findings->add_option("name", wanted->name, "Of the monitor; all of the project when absent");
  findings->add_flag("--all", wanted->all, "Also what has ended");
  findings->add_option("--column", wanted->column, "Only of this input, or of out_NAME for an output");
  findings->add_option("--kind", wanted->kind, "Only drift, quality, performance or skew");
  findings->callback([&session, wanted] { print_findings(session, *wanted); });

  const auto limit = std::make_shared<std::int64_t>(20);
  auto* windows = monitor->add_subcommand("windows", "Windows of rows, newest first, each with its farthest column");
  windows->add_option("name", *name, "Of the monitor")->required();
  windows->add_option("--limit", *limit, "Most windows")->capture_default_str();
  windows->callback([&session, name, limit] { print_windows(session, *name, *limit); });

  auto* performance = monitor->add_subcommand("performance", "How well models did, by labels: windows, newest first");
  performance->add_option("name", *name, "Of the monitor")->required();
  performance->add_option("--limit", *limit, "Most windows")->capture_default_str();
  performance->callback([&session, name, limit] { print_performance(session, *name, *limit); });

  const auto column = std::make_shared<ColumnOptions>();
  auto* one =
      monitor->add_subcommand("column", "One column then and now: its distribution in the reference and a window");
  one->add_option("name", column->name, "Of the monitor")->required();
  one->add_option("column", column->column, "An input, or out_NAME for an output")->required();
  one->add_option("--variant", column->variant, "Of the endpoint; the last that was asked when absent");
  one->add_option("--model-version", column->version, "Of its model; the last when absent");
  one->add_option("--window", column->window, "Number of the window; the newest when absent");
  one->callback([&session, column] { print_column(session, *column); });
}

}  // namespace falaj::cli
