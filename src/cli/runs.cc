// SPDX-License-Identifier: Apache-2.0
// experiment, run

#include "cli/runs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/plot.h"
#include "cli/plot_png.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

constexpr std::size_t kPage = 100, kSparklinesMax = 40;
constexpr std::string_view kDiffers = "≠";

std::string text_at(const json::value& value, std::string_view path) {
  const auto& found = at_path(value, path);
  return found.is_string() ? std::string(found.as_string()) : "";
}

std::string duration_of(const json::value& run) {
  const auto& start = at_path(run, "start_ms");
  const auto& end = at_path(run, "end_ms");
  if (!start.is_int64() || !end.is_int64()) return "";
  const auto ms = static_cast<double>(end.as_int64()) - static_cast<double>(start.as_int64());
  return ms >= 0 && ms < 1e15 ? format_duration_us(static_cast<std::int64_t>(ms) * 1000) : "";
}

std::string run_path(const std::string& id, std::string_view more = "") {
  return fmt::format("/v1/runs/{}{}", client::path_element(id), more);
}

// A key may have slashes, which stay what they are.
std::string metric_path(const std::string& id, const std::string& key) {
  std::string path = run_path(id, "/metrics");
  for (const auto element : split(key, '/')) path += "/" + client::path_element(element);
  return path;
}

struct RunListOptions {
  std::vector<std::string> experiments, order_by;
  std::string filter, metric, view = "active", name;
  std::int64_t limit = 20;
};

void list_experiments(Session& session, const RunListOptions& options) {
  client::Query query{{"scope", session.project_scope()}, {"view", options.view}};
  if (!options.filter.empty()) query.emplace_back("filter", options.filter);
  for (const auto& order : options.order_by) query.emplace_back("order_by", order);
  const auto items = get_items(session, "/v1/experiments", query, static_cast<std::size_t>(options.limit));
  const auto output = session.output();
  if (!output.for_people()) return output.value(items);
  json::array rows;
  for (const auto& item : items)
    rows.push_back({{"number", at_path(item, "number")},
                    {"name", at_path(item, "name")},
                    {"stage", at_path(item, "stage")},
                    {"updated", time_ms(at_path(item, "updated_ms"))},
                    {"tags", at_path(item, "tags")}});
  output.table(
      rows, {{"number", "number"}, {"name", "name"}, {"stage", "stage"}, {"last change", "updated"}, {"tags", "tags"}});
}

void show_experiment(Session& session, const std::string& name) {
  std::string path = "/v1/experiments";
  for (const auto element : split(name, '/')) path += "/" + client::path_element(element);
  const auto found = session.api().get(path, {{"scope", session.project_scope()}});
  const auto output = session.output();
  if (!output.for_people()) return output.value(found);
  const json::object row{{"number", at_path(found, "number")},
                         {"name", at_path(found, "name")},
                         {"stage", at_path(found, "stage")},
                         {"created", time_ms(at_path(found, "created_ms"))},
                         {"updated", time_ms(at_path(found, "updated_ms"))},
                         {"tags", at_path(found, "tags")}};
  output.details(row, {{"number", "number"},
                       {"name", "name"},
                       {"stage", "stage"},
                       {"created", "created"},
                       {"last change", "updated"},
                       {"tags", "tags"}});
}

void list_runs(Session& session, const RunListOptions& options) {
  client::Query query{{"scope", session.project_scope()}, {"view", options.view}};
  for (const auto& experiment : options.experiments) query.emplace_back("experiment", experiment);
  for (const auto& order : options.order_by) query.emplace_back("order_by", order);
  if (!options.filter.empty()) query.emplace_back("filter", options.filter);
  if (!options.metric.empty()) query.emplace_back("line", options.metric);
  const auto runs = get_items(session, "/v1/runs", query, static_cast<std::size_t>(options.limit));
  const auto output = session.output();
  if (!output.for_people()) return output.value(runs);
  json::array rows;
  for (const auto& run : runs) {
    json::object row{{"id", at_path(run, "run_id")},
                     {"name", at_path(run, "name")},
                     {"experiment", at_path(run, "experiment")},
                     {"status", at_path(run, "status")},
                     {"started", time_ms(at_path(run, "start_ms"))},
                     {"took", duration_of(run)}};
    if (!options.metric.empty()) {
      const auto* metric = at_path(run, "metrics").as_object().if_contains(options.metric);
      row["metric"] = metric ? measure(at_path(*metric, "value")) : "-";
      row["line"] = sparkline_of(at_path(run, "line"));
    }
    rows.push_back(std::move(row));
  }
  std::vector<Column> columns{{"run", "id"},        {"name", "name"},       {"experiment", "experiment"},
                              {"status", "status"}, {"started", "started"}, {"took", "took"}};
  const auto title = harmless(options.metric);
  if (!options.metric.empty()) {
    columns.push_back({title, "metric"});
    columns.push_back({"line", "line"});
  }
  output.table(rows, columns);
}

void print_pairs(const Output& output, std::string_view title, const json::value& pairs, bool hide_ours) {
  json::array rows;
  for (const auto& [key, value] : pairs.as_object())
    if (!hide_ours || !(std::string_view(key).starts_with("mlflow.") || std::string_view(key).starts_with("falaj.")))
      rows.push_back({{"key", key}, {"value", value}});
  if (rows.empty()) return;
  output.line("");
  output.table(rows, {{title, "key"}, {"value", "value"}});
}

// What `run exec`, `run start` and MLflow's clients note about where a run came from and how it ended.
void print_source(const Output& output, const json::object& tags) {
  const auto tag = [&](std::string_view key) {
    const auto* value = tags.if_contains(key);
    return value && value->is_string() ? std::string(value->as_string()) : "";
  };
  json::object row{{"command", tag("mlflow.source.name")},
                   {"directory", tag("falaj.source.directory")},
                   {"host", tag("falaj.source.host")},
                   {"commit", tag("mlflow.source.git.commit")},
                   {"branch", tag("mlflow.source.git.branch")},
                   {"exit", tag("falaj.exit")},
                   {"cpu", tag("falaj.cpu_seconds")}};
  if (tag("falaj.source.dirty") == "true") row["commit"] = tag("mlflow.source.git.commit") + " and source/diff.patch";
  if (const auto peak = parse_int(tag("falaj.memory_peak_bytes"))) row["memory"] = *peak;
  std::vector<Column> rows;
  for (const auto& [title, path] :
       {std::pair("command", "command"), std::pair("directory", "directory"), std::pair("host", "host"),
        std::pair("git commit", "commit"), std::pair("git branch", "branch"), std::pair("ended with", "exit"),
        std::pair("cpu seconds", "cpu")})
    if (!row[path].as_string().empty()) rows.push_back({title, path});
  if (row.contains("memory")) rows.push_back({"memory peak", "memory", Column::As::bytes});
  if (rows.empty()) return;
  output.line("");
  output.details(row, rows);
}

void show_run(Session& session, const std::string& which) {
  const auto id = run_id_of(session, which);
  const client::Query query{{"scope", session.project_scope()}};
  const auto run = session.api().get(run_path(id), query);
  const auto output = session.output();
  if (!output.for_people()) return output.value(run);
  json::object row{{"id", id}, {"took", duration_of(run)}, {"started", time_ms(at_path(run, "start_ms"))}};
  for (const auto* key :
       {"name", "experiment", "status", "stage", "user", "artifact_uri", "model_inputs", "model_outputs"})
    row[key] = at_path(run, key);
  json::array datasets;
  for (const auto& dataset : at_path(run, "datasets").as_array())
    datasets.push_back(json::value(text_at(dataset, "name") + "@" + text_at(dataset, "digest")));
  row["datasets"] = std::move(datasets);
  output.details(row, {{"run", "id"},
                       {"name", "name"},
                       {"experiment", "experiment"},
                       {"status", "status"},
                       {"stage", "stage"},
                       {"user", "user"},
                       {"started", "started"},
                       {"took", "took"},
                       {"datasets", "datasets"},
                       {"models in", "model_inputs"},
                       {"models out", "model_outputs"},
                       {"artifacts", "artifact_uri"}});
  print_source(output, at_path(run, "tags").as_object());
  print_pairs(output, "param", at_path(run, "params"), false);
  json::array metrics;
  for (const auto& [key, point] : at_path(run, "metrics").as_object()) {
    json::object metric{
        {"key", key}, {"value", measure(at_path(point, "value"))}, {"step", at_path(point, "step")}, {"line", ""}};
    if (metrics.size() < kSparklinesMax) {
      auto thinned = query;
      thinned.emplace_back("points", "24");
      json::array line;
      const auto history = session.api().get(metric_path(id, std::string(key)), thinned);
      for (const auto& p : history.at("items").as_array()) line.push_back(at_path(p, "value"));
      metric["line"] = sparkline_of(line);
    }
    metrics.push_back(std::move(metric));
  }
  if (!metrics.empty()) {
    output.line("");
    output.table(metrics, {{"metric", "key"}, {"value", "value"}, {"step", "step"}, {"line", "line"}});
  }
  print_pairs(output, "tag", at_path(run, "tags"), true);
}

void compare(Session& session, const std::vector<std::string>& which, bool differences_only) {
  client::Query query{{"scope", session.project_scope()}};
  for (const auto& one : which) query.emplace_back("ids", run_id_of(session, one));
  const auto answer = session.api().get("/v1/runs/compare", query);
  const auto output = session.output();
  if (!output.for_people()) return output.value(answer);

  const auto& runs = answer.at("runs").as_array();
  std::vector<std::string> titles, paths;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    titles.push_back(harmless(text_at(runs[i], "name")));
    paths.push_back(fmt::format("v{}", i));
  }
  std::vector<Column> columns{{"", "mark"}, {"", "key"}};
  for (std::size_t i = 0; i < runs.size(); ++i) columns.push_back({titles[i], paths[i]});
  json::array rows;
  const auto add = [&](std::string key, bool differs, auto value_of) {
    if (differences_only && !differs) return;
    json::object row{{"mark", differs ? json::value(kDiffers) : json::value(" ")}, {"key", std::move(key)}};
    for (std::size_t i = 0; i < runs.size(); ++i) row[paths[i]] = value_of(i);
    rows.push_back(std::move(row));
  };
  const auto differ = [&](auto value_of) {
    for (std::size_t i = 1; i < runs.size(); ++i)
      if (value_of(i) != value_of(0)) return true;
    return false;
  };
  const auto id = [&](std::size_t i) { return text_at(runs[i], "run_id"); };
  const auto status = [&](std::size_t i) { return text_at(runs[i], "status"); };
  const auto took = [&](std::size_t i) { return duration_of(runs[i]); };
  add("run", false, id);
  add("status", differ(status), status);
  add("took", false, took);
  for (const auto& row : answer.at("params").as_array())
    add("param " + text_at(row, "key"), row.at("differs").as_bool(),
        [&](std::size_t i) { return row.at("values").as_array()[i]; });
  for (const auto& row : answer.at("metrics").as_array())
    add("metric " + text_at(row, "key"), row.at("differs").as_bool(),
        [&](std::size_t i) { return measure(row.at("values").as_array()[i]); });
  output.table(rows, columns);
}

void remove(Session& session, const std::string& which, bool for_good) {
  const client::Query query{{"scope", session.project_scope()}};
  const auto id = run_id_of(session, which);
  const bool was_active = text_at(session.api().get(run_path(id), query), "stage") == "active";
  session.api().post(run_path(id, "/delete"), json::object{}, query);
  if (!for_good) return session.output().line(fmt::format("deleted {}; falaj run restore takes it back", id));
  json::value removed;
  try {
    removed = session.api().del(run_path(id), query);
  } catch (const Error& e) {
    if (was_active && e.code() != Code::not_found) session.api().post(run_path(id, "/restore"), json::object{}, query);
    throw;  // refused, and as it was before
  }
  using As = Column::As;
  session.output().details(removed, {{"removed", "run_id"},
                                     {"points", "points"},
                                     {"files", "files"},
                                     {"bytes reclaimed", "bytes", As::bytes},
                                     {"bytes that models keep", "kept_bytes", As::bytes}});
}

struct PlotOptions {
  std::vector<std::string> runs;
  std::string metric, out, x = "step";
  std::int64_t points = 1000;
  bool log = false;
};

void plot(Session& session, const PlotOptions& options) {
  Chart chart{options.metric, options.x == "step" ? "step" : "seconds since the first point", {}, options.log};
  for (const auto& which : options.runs) {
    const auto id = run_id_of(session, which);
    const client::Query query{{"scope", session.project_scope()}};
    const auto run = session.api().get(run_path(id), query);
    const auto history =
        session.api().get(metric_path(id, options.metric),
                          {{"scope", session.project_scope()}, {"points", std::to_string(options.points)}});
    const auto& points = history.at("items").as_array();
    if (points.empty())
      throw Error(Code::not_found, fmt::format("run {} has no metric '{}'", id, harmless(options.metric)));
    Line line{fmt::format("{} ({})", text_at(run, "name"), id.substr(0, 8)), {}, {}};
    const auto ms = [](const json::value& p) { return static_cast<double>(p.at("unix_ms").as_int64()); };
    for (const auto& p : points) {
      line.x.push_back(options.x == "step" ? static_cast<double>(p.at("step").as_int64())
                                           : (ms(p) - ms(points.front())) / 1000);
      line.y.push_back(number_of(p.at("value")));
    }
    chart.lines.push_back(std::move(line));
  }
  const auto svg = to_svg(chart);
  if (options.out == "-") return session.output().raw(svg);
  ResultFile file(options.out);
  file.write(as_bytes(options.out.ends_with(".png") ? svg_to_png(svg) : svg));
  file.keep();
  session.output().line(fmt::format("wrote {}", options.out));
}

void add_run_reading(CLI::App& run, Session& session) {
  auto options = std::make_shared<RunListOptions>();
  auto* ls = run.add_subcommand("ls", "Runs that a filter finds, newest first");
  ls->add_option("-e,--experiment", options->experiments,
                 "Only of this experiment, by name or number; may be repeated");
  ls->add_option("-f,--filter", options->filter, "Such as \"metrics.loss < 0.3 AND params.depth = '5'\"");
  ls->add_option("--order-by", options->order_by, "Such as 'metrics.loss ASC'; may be repeated");
  ls->add_option("-m,--metric", options->metric, "Also show this metric and its line");
  ls->add_option("--view", options->view, "active, deleted or all")->check(CLI::IsMember({"active", "deleted", "all"}));
  ls->add_option("-n,--limit", options->limit, "How many")->capture_default_str()->check(CLI::Range(1, 50'000));
  ls->callback([&session, options] { list_runs(session, *options); });

  auto which = std::make_shared<std::vector<std::string>>();
  auto one = std::make_shared<std::string>();
  auto* show = run.add_subcommand("show", "A run: params, metrics with their lines, tags, datasets, models");
  show->add_option("run", *one, "Its id, or a name that only it has")->required();
  show->callback([&session, one] { show_run(session, *one); });

  auto only = std::make_shared<bool>(false);
  auto* compare_command = run.add_subcommand("compare", "Params and metrics of runs side by side; ≠ marks differences");
  compare_command->add_option("runs", *which, "Two or more runs")->required()->expected(2, 20);
  compare_command->add_flag("--differences", *only, "Only what differs");
  compare_command->callback([&session, which, only] { compare(session, *which, *only); });

  auto plotted = std::make_shared<PlotOptions>();
  auto* plot_command = run.add_subcommand("plot", "Draw a metric of one or more runs as a line chart, SVG or PNG");
  plot_command->add_option("runs", plotted->runs, "The runs")->required()->expected(1, 24);
  plot_command->add_option("-m,--metric", plotted->metric, "Which metric")->required();
  plot_command->add_option("-O,--out", plotted->out, "The file to write, .svg or .png; - is SVG on standard output")
      ->required();
  plot_command->add_option("--x", plotted->x, "step or time")->check(CLI::IsMember({"step", "time"}));
  plot_command->add_option("--points", plotted->points, "Most points of a line; lows and highs are kept")
      ->capture_default_str()
      ->check(CLI::Range(4, 100'000));
  plot_command->add_flag("--log", plotted->log, "Values on a logarithmic scale");
  plot_command->callback([&session, plotted] { plot(session, *plotted); });
}

void add_run_changing(CLI::App& run, Session& session) {
  auto one = std::make_shared<std::string>();
  auto for_good = std::make_shared<bool>(false);
  auto* rm = run.add_subcommand("rm", "Delete a run; --for-good removes it with its points and files");
  rm->add_option("run", *one, "Its id, or a name that only it has")->required();
  rm->add_flag("--for-good", *for_good, "Nothing brings it back; refused while a promoted model came from it");
  rm->callback([&session, one, for_good] { remove(session, *one, *for_good); });
  auto* restore = run.add_subcommand("restore", "Take a deleted run back");
  restore->add_option("run", *one, "Its id")->required();
  restore->callback([&session, one] {
    session.api().post(run_path(*one, "/restore"), json::object{}, {{"scope", session.project_scope()}});
    session.output().line("restored " + *one);
  });
}

}  // namespace

double number_of(const json::value& value) {
  if (value.is_double()) return value.as_double();
  if (value.is_int64()) return static_cast<double>(value.as_int64());
  if (value.is_uint64()) return static_cast<double>(value.as_uint64());
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nan("");
}

std::string measure(const json::value& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return std::string(value.as_string());
  return fmt::format("{:.6g}", number_of(value));
}

std::string time_ms(const json::value& unix_ms) {
  if (!unix_ms.is_int64() || std::abs(static_cast<double>(unix_ms.as_int64())) > 2.5e14) return "-";
  return format_time(unix_ms.as_int64() * 1000);
}

std::string sparkline_of(const json::value& line) {
  if (!line.is_array()) return "";
  std::vector<double> values;
  for (const auto& value : line.as_array()) values.push_back(number_of(value));
  return sparkline(values);
}

json::array get_items(Session& session, const std::string& path, client::Query query, std::size_t limit) {
  json::array items;
  for (std::string cursor;;) {
    auto page_query = query;
    page_query.emplace_back("limit", std::to_string(std::min(kPage, limit - items.size())));
    if (!cursor.empty()) page_query.emplace_back("cursor", cursor);
    const auto page = session.api().get(path, page_query);
    for (const auto& item : page.at("items").as_array()) items.push_back(item);
    cursor = text_at(page, "next");
    if (cursor.empty() || items.size() >= limit) return items;
  }
}

std::string run_id_of(Session& session, const std::string& text) {
  const bool id = text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (id) return text;
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  const auto found =
      get_items(session, "/v1/runs",
                {{"scope", session.project_scope()}, {"filter", "attributes.run_name = '" + quoted + "'"}}, 2);
  if (found.empty()) throw Error(Code::not_found, fmt::format("no run has the id or the name '{}'", text));
  if (found.size() > 1)
    throw Error(Code::invalid, fmt::format("several runs are named '{}', {} and {} among them: give the id", text,
                                           text_at(found[0], "run_id"), text_at(found[1], "run_id")));
  return text_at(found[0], "run_id");
}

void add_track_commands(CLI::App& app, Session& session) {
  auto options = std::make_shared<RunListOptions>();
  auto* experiment = app.add_subcommand("experiment", "Runs that belong together");
  experiment->require_subcommand(1);
  auto* ls = experiment->add_subcommand("ls", "Experiments of the project");
  ls->add_option("-f,--filter", options->filter, "Such as \"name LIKE 'fl%'\"");
  ls->add_option("--order-by", options->order_by, "Such as 'name ASC'; may be repeated");
  ls->add_option("--view", options->view, "active, deleted or all")->check(CLI::IsMember({"active", "deleted", "all"}));
  ls->add_option("-n,--limit", options->limit, "How many")->capture_default_str()->check(CLI::Range(1, 50'000));
  ls->callback([&session, options] { list_experiments(session, *options); });
  auto* show = experiment->add_subcommand("show", "One experiment");
  show->add_option("experiment", options->name, "Its name or number")->required();
  show->callback([&session, options] { show_experiment(session, options->name); });

  auto* run = app.add_subcommand("run", "What was tried: params, metrics, files");
  run->require_subcommand(1);
  add_run_reading(*run, session);
  add_tail_command(*run, session);
  add_logging_commands(*run, session);
  add_exec_command(*run, session);
  add_transfer_commands(*run, session);
  add_run_changing(*run, session);
}

}  // namespace falaj::cli
