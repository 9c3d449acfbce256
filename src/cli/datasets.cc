// SPDX-License-Identifier: Apache-2.0
// dataset

#include "cli/datasets.h"

#include <iostream>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/progress.h"
#include "cli/runs.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

using As = Column::As;

struct DatasetOptions {
  std::string name, run, sql, out, format, time = "60s", export_time = "1h";
  std::int64_t limit = 10, from = 0, to = 0;
};

client::Query query_of(Session& session) { return {{"scope", session.project_scope()}}; }

std::string version_path(const std::string& text, std::string_view more = "") {
  const auto [name, version] = version_of(text);
  return dataset_path(name, fmt::format("/versions/{}{}", version, more));
}

void list(Session& session) {
  const auto items = get_items(session, "/v1/datasets", query_of(session), 100'000);
  session.output().table(items, {{"name", "name"},
                                 {"versions", "versions"},
                                 {"newest", "newest.number"},
                                 {"rows", "newest.rows"},
                                 {"bytes", "newest.bytes", As::bytes},
                                 {"changed", "newest.created_us", As::time},
                                 {"by", "newest.created_by"}});
}

std::string number(const json::value& value) {
  return value.is_null() ? "-" : fmt::format("{:.6g}", value.to_number<double>());
}

void print_statistics(const Output& output, const json::value& version) {
  json::array rows;
  for (const auto& s : version.at("stats").as_array()) {
    const auto& quantiles = s.at("quantiles").as_array();
    json::array top;
    for (std::size_t i = 0; i < s.at("top").as_array().size() && i < 3; ++i)
      top.push_back(json::value(fmt::format("{} ({})", std::string_view(s.at("top").at(i).as_string()),
                                            s.at("top_counts").at(i).as_int64())));
    rows.push_back({{"name", s.at("name")},
                    {"type", s.at("type")},
                    {"nulls", s.at("nulls")},
                    {"distinct", s.at("distinct")},
                    {"min", at_path(s, "min")},
                    {"median", quantiles.size() == 7 ? number(quantiles[3]) : "-"},
                    {"mean", number(at_path(s, "mean"))},
                    {"max", at_path(s, "max")},
                    {"top", top}});
  }
  output.table(rows, {{"column", "name"},
                      {"type", "type"},
                      {"missing", "nulls"},
                      {"distinct", "distinct"},
                      {"least", "min"},
                      {"median", "median"},
                      {"mean", "mean"},
                      {"greatest", "max"},
                      {"most frequent", "top"}});
}

// A dataset: its newest version and the others. A version: all that is known of it.
void show(Session& session, const DatasetOptions& options) {
  const auto output = session.output();
  if (options.name.find('@') != std::string::npos) {
    const auto version = session.api().get(version_path(options.name), query_of(session));
    if (!output.for_people()) return output.value(version);
    print_version(session, version);
    if (at_path(version, "erased_us").is_int64())
      return output.line(fmt::format("erased on {}; what is left of it is in version {}",
                                     format_time(version.at("erased_us").as_int64()).substr(0, 10),
                                     number(at_path(version, "replaced_by"))));
    output.line("");
    return print_statistics(output, version);
  }
  auto dataset = session.api().get(dataset_path(options.name), query_of(session)).as_object();
  const auto versions = get_items(session, dataset_path(options.name, "/versions"), query_of(session), 1000);
  if (!output.for_people()) {
    dataset["all"] = versions;
    return output.value(dataset);
  }
  output.details(dataset, {{"name", "name"}, {"versions", "versions"}});
  output.line("");
  output.table(versions, {{"version", "number"},
                          {"mode", "mode"},
                          {"rows", "rows"},
                          {"bytes", "bytes", As::bytes},
                          {"created", "created_us", As::time},
                          {"by", "created_by"},
                          {"source", "source"},
                          {"warnings", "warnings"},
                          {"erased", "erased_us", As::time}});
  if (versions.empty()) return;
  output.line(
      fmt::format("\ncolumns of version {}, and the values that came in with it", versions[0].at("number").as_int64()));
  print_statistics(output, versions[0]);
}

// Values as they are, not as tables of ours round them.
json::value cell(const json::value& value) {
  if (const auto* real = value.if_double()) return json::value(fmt::format("{}", *real));
  if (const auto* yes = value.if_bool()) return *yes ? "true" : "false";
  return value;
}

void print_rows(const Output& output, const json::value& answer) {
  if (!output.for_people()) return output.value(answer);
  const auto& columns = answer.at("columns").as_array();
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < columns.size(); ++i) keys.push_back(std::to_string(i));
  std::vector<Column> shown;
  for (std::size_t i = 0; i < columns.size(); ++i) shown.push_back({columns[i].at("name").as_string(), keys[i]});
  json::array rows;
  for (const auto& row : answer.at("rows").as_array()) {
    json::object out;
    for (std::size_t i = 0; i < keys.size(); ++i) out[keys[i]] = cell(row.at(i));
    rows.push_back(std::move(out));
  }
  output.table(rows, shown);
}

void sql(Session& session, const DatasetOptions& options) {
  const auto time = parse_duration_us(options.time);
  if (!time) throw Error(Code::invalid, fmt::format("--time: such as 30s or 5m, not '{}'", options.time));
  const auto answer = session.api().post(
      "/v1/datasets/sql", {{"sql", options.sql}, {"rows", options.limit}, {"time", *time}}, query_of(session));
  print_rows(session.output(), answer);
  if (answer.at("whole").as_bool()) return;
  std::fflush(stdout);  // the rows stand before what is said of them
  fmt::print(stderr, "there are more rows than these {}: -n takes up to 100000, 'falaj dataset export' all\n",
             answer.at("rows").as_array().size());
}

void diff(Session& session, const DatasetOptions& options) {
  auto query = query_of(session);
  query.emplace_back("from", std::to_string(options.from));
  query.emplace_back("to", std::to_string(options.to));
  session.output().details(session.api().get(dataset_path(options.name, "/diff"), query),
                           {{"columns", "schema"},
                            {"rows before", "rows_before"},
                            {"rows after", "rows_after"},
                            {"added", "added"},
                            {"removed", "removed"},
                            {"changed", "changed"}});
}

std::string format_of_name(const std::string& file) {
  for (const std::string_view format : {"csv", "jsonl", "parquet"})
    if (file.ends_with(fmt::format(".{}", format))) return std::string(format);
  throw Error(Code::invalid, "--format csv, jsonl or parquet, or a file whose name ends so");
}

void export_rows(Session& session, const DatasetOptions& options) {
  const bool to_stdout = options.out.empty() || options.out == "-";
  auto query = query_of(session);
  query.emplace_back("format", !options.format.empty() ? options.format
                               : to_stdout             ? "csv"
                                                       : format_of_name(options.out));
  query.emplace_back("time", options.export_time);
  std::optional<ResultFile> file;
  if (!to_stdout) file.emplace(options.out);
  std::optional<Progress> progress;
  std::uint64_t bytes = 0;
  session.api().download(
      net::Method::get, version_path(options.name, "/export"), query, nullptr,
      [&](auto size) {
        progress.emplace("exporting " + options.name, size.value_or(0), Progress::Unit::bytes, session.clock(),
                         session.quiet || to_stdout);
      },
      [&](BytesView piece) {
        if (file)
          file->write(piece);
        else
          std::cout.write(reinterpret_cast<const char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
        bytes += piece.size();
        progress->add(piece.size());
      });
  if (file) file->keep();
  std::cout.flush();
  if (!std::cout) throw Error(Code::unavailable, "writing to standard output failed");
  progress->finish();
  if (file)
    session.output().details(json::object{{"file", options.out}, {"bytes", bytes}},
                             {{"exported to", "file"}, {"bytes", "bytes", As::bytes}});
}

// One version; or all of them with what declares the dataset.
void remove(Session& session, const DatasetOptions& options) {
  const bool one = options.name.find('@') != std::string::npos;
  const auto removed =
      session.api().del(one ? version_path(options.name) : dataset_path(options.name), query_of(session));
  const auto output = session.output();
  if (!output.for_people()) return output.value(removed);
  output.line(fmt::format("removed {}; {} are given back by the next 'falaj blob gc'", options.name,
                          format_bytes(removed.at("bytes").to_number<std::uint64_t>())));
}

// A run says what it was made of; lineage finds it both ways.
void use(Session& session, const std::string& dataset, const std::string& run) {
  const auto version = session.api().get(version_path(dataset), query_of(session));
  const auto name = std::string(version.at("dataset").as_string());
  const auto source = fmt::format("falaj:{}@{}", name, version.at("number").as_int64());
  const json::object input{{"name", name},
                           {"digest", std::string(version.at("id").as_string()).substr(0, 32)},
                           {"source_type", "falaj"},
                           {"source", source}};
  const auto id = run_id_of(session, run);
  session.api().post(mlflow_path(session, "mlflow/runs/log-inputs"),
                     {{"run_id", id}, {"datasets", json::array{json::object{{"dataset", input}}}}});
  session.output().line(fmt::format("run {} uses {}@{}", id, name, version.at("number").as_int64()));
}

void add_reading(CLI::App& dataset, Session& session, const std::shared_ptr<DatasetOptions>& options) {
  dataset.add_subcommand("ls", "Datasets of the project")->callback([&session] { list(session); });

  auto* show_command = dataset.add_subcommand("show", "A dataset with its versions, or one version with its columns");
  show_command->add_option("dataset", options->name, "NAME, or NAME@VERSION")->required();
  show_command->callback([&session, options] { show(session, *options); });

  auto* head = dataset.add_subcommand("head", "The first rows");
  head->add_option("dataset", options->name, "NAME for its newest version, or NAME@VERSION")->required();
  head->add_option("-n,--rows", options->limit, "How many")->capture_default_str()->check(CLI::Range(1, 100'000));
  head->callback([&session, options] {
    auto query = query_of(session);
    query.emplace_back("limit", std::to_string(options->limit));
    print_rows(session.output(), session.api().get(version_path(options->name, "/rows"), query));
  });

  auto* sql_command = dataset.add_subcommand(
      "sql", "Ask with SQL: SELECT ... FROM NAME, or FROM \"NAME@VERSION\"; sees only datasets that you may read");
  sql_command->add_option("select", options->sql, "One SELECT")->required();
  sql_command->add_option("-n,--rows", options->limit, "Most rows of the answer")
      ->default_val(1000)
      ->check(CLI::Range(1, 100'000));
  sql_command->add_option("--time", options->time, "Stop it after this long")->capture_default_str();
  sql_command->callback([&session, options] { sql(session, *options); });

  auto* diff_command = dataset.add_subcommand("diff", "How two versions differ: columns and rows");
  diff_command->add_option("dataset", options->name, "NAME")->required();
  diff_command->add_option("from", options->from, "A version")->required();
  diff_command->add_option("to", options->to, "Another")->required();
  diff_command->callback([&session, options] { diff(session, *options); });

  auto* checks = dataset.add_subcommand("checks", "What expectations found in rows that came in, or were refused");
  checks->add_option("dataset", options->name, "NAME, or NAME@VERSION")->required();
  checks->callback([&session, options] {
    auto query = query_of(session);
    const auto [name, version] = version_of(options->name);
    if (version != "newest") query.emplace_back("version", version);
    const auto found = session.api().get(dataset_path(name, "/checks"), query).at("checks");
    session.output().table(found.as_array(), {{"version", "version"},
                                              {"when", "at_us", As::time},
                                              {"expectation", "expectation"},
                                              {"check", "check"},
                                              {"column", "column"},
                                              {"held", "held"},
                                              {"action", "action"},
                                              {"said", "said"},
                                              {"examples", "examples"}});
  });

  auto* use_command = dataset.add_subcommand("use", "Note that a run was made with a version: lineage then shows both");
  use_command->add_option("dataset", options->name, "NAME for its newest version, or NAME@VERSION")->required();
  use_command->add_option("run", options->run, "The run's id, or a name that only one has")->required();
  use_command->callback([&session, options] { use(session, options->name, options->run); });

  auto* out = dataset.add_subcommand("export", "All rows as one file");
  out->add_option("dataset", options->name, "NAME for its newest version, or NAME@VERSION")->required();
  out->add_option("-O,--out", options->out, "Where to; its ending says the format (default: CSV to standard output)");
  out->add_option("--format", options->format, "csv, jsonl or parquet")
      ->check(CLI::IsMember({"csv", "jsonl", "parquet"}));
  out->add_option("--time", options->export_time, "Break it off after this long; 1h at most")->capture_default_str();
  out->callback([&session, options] { export_rows(session, *options); });
}

}  // namespace

std::string dataset_path(const std::string& name, std::string_view more) {
  return fmt::format("/v1/datasets/{}{}", client::path_element(name), more);
}

std::pair<std::string, std::string> version_of(const std::string& text) {
  const auto at = text.rfind('@');
  if (at == std::string::npos) return {text, "newest"};
  if (!parse_int(text.substr(at + 1)))
    throw Error(Code::invalid, fmt::format("'{}': after '@' comes the number of a version", text));
  return {text.substr(0, at), text.substr(at + 1)};
}

void print_version(Session& session, const json::value& version) {
  std::vector<Column> rows = {{"dataset", "dataset"},
                              {"version", "number"},
                              {"id", "id"},
                              {"mode", "mode"},
                              {"appended to", "parent"},
                              {"rows", "rows"},
                              {"bytes", "bytes", As::bytes},
                              {"source", "source"},
                              {"made of", "inputs"}};
  if (!at_path(version, "answered_by").is_null()) rows.push_back({"answers of", "answered_by"});
  rows.insert(rows.end(), {{"created", "created_us", As::time}, {"by", "created_by"}, {"warnings", "warnings"}});
  session.output().details(version, rows);
}

void add_dataset_commands(CLI::App& app, Session& session) {
  auto* dataset =
      app.add_subcommand("dataset", "Tables in versions that never change: bring rows in, look, ask, compare");
  dataset->require_subcommand(1);
  const auto options = std::make_shared<DatasetOptions>();
  add_ingest_commands(*dataset, session);
  add_reading(*dataset, session, options);
  auto* rm = dataset->add_subcommand("rm", "Remove a version for good, or a dataset with all its versions");
  rm->add_option("dataset", options->name, "NAME, or NAME@VERSION")->required();
  rm->callback([&session, options] { remove(session, *options); });
}

}  // namespace falaj::cli
