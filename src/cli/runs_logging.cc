// SPDX-License-Identifier: Apache-2.0
// run start, log, end: for scripts that are not written in a language with an MLflow client

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/progress.h"
#include "cli/runs.h"
#include "cli/runs_source.h"
#include "foundation/base/text.h"

namespace falaj::cli {
namespace {

namespace fs = std::filesystem;

struct LogOptions {
  std::string run, experiment, name, status = "FINISHED", directory;
  std::vector<std::string> params, metrics, tags, files;
};

std::pair<std::string, std::string> pair_of(std::string_view option, const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw Error(Code::invalid, fmt::format("{}: KEY=VALUE, not '{}'", option, text));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

json::array pairs_of(std::string_view option, const std::vector<std::string>& texts) {
  json::array out;
  for (const auto& text : texts) {
    const auto [key, value] = pair_of(option, text);
    out.push_back({{"key", key}, {"value", value}});
  }
  return out;
}

// KEY=VALUE or KEY=VALUE@STEP
json::array metrics_of(const std::vector<std::string>& texts, std::int64_t now_ms) {
  json::array out;
  for (const auto& text : texts) {
    auto [key, value] = pair_of("--metric", text);
    std::int64_t step = 0;
    if (const auto at = value.rfind('@'); at != std::string::npos) {
      const auto parsed = parse_int(std::string_view(value).substr(at + 1));
      if (!parsed)
        throw Error(Code::invalid, fmt::format("--metric: the step after '@' is a whole number: '{}'", text));
      step = *parsed;
      value.resize(at);
    }
    out.push_back({{"key", key}, {"value", value}, {"timestamp", now_ms}, {"step", step}});
  }
  return out;
}

// The script that calls us.
std::vector<std::string> parent_command() {
  std::ifstream in(fmt::format("/proc/{}/cmdline", ::getppid()), std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

void start(Session& session, const LogOptions& options) {
  sys::RealProcesses processes;
  const auto source = source_of(processes, session.clock(), parent_command());
  const auto experiment = experiment_id(session, options.experiment);
  const auto id = start_run(session, experiment, options.name, options.tags, source);
  const auto root = artifacts_root(session, experiment, id);
  put_artifact(session, root, "source/source.json", pretty(to_json(source)) + "\n");
  if (!source.diff.empty()) put_artifact(session, root, "source/diff.patch", source.diff);
  if (session.format == Format::table) return session.output().raw(id + "\n");  // for RUN=$(falaj run start)
  const auto run = session.api().get(mlflow_path(session, "mlflow/runs/get"), {{"run_id", id}});
  session.output().details(run.at("run").at("info"), {});
}

void put_file(Session& session, const std::string& root, const std::string& file, const std::string& directory) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(Code::not_found, fmt::format("cannot read {}", file));
  const auto size = fs::file_size(file);
  const auto name = fs::path(file).filename().string();
  std::string path = root;
  for (const auto element : split(directory, '/'))
    if (!element.empty()) path += "/" + client::path_element(element);
  Progress progress("storing " + name, size, Progress::Unit::bytes, session.clock(), session.quiet);
  session.api().upload(
      path + "/" + client::path_element(name), {},
      [&] {
        Bytes piece(kPieceBytes);
        in.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
        piece.resize(static_cast<std::size_t>(in.gcount()));
        progress.add(piece.size());
        return piece;
      },
      size, net::Method::put);
  progress.finish();
}

void log(Session& session, const LogOptions& options) {
  const auto id = run_id_of(session, options.run);
  const json::object batch{{"run_id", id},
                           {"params", pairs_of("--param", options.params)},
                           {"tags", pairs_of("--tag", options.tags)},
                           {"metrics", metrics_of(options.metrics, session.clock().wall().count() / 1000)}};
  if (!options.params.empty() || !options.metrics.empty() || !options.tags.empty())
    session.api().post(mlflow_path(session, "mlflow/runs/log-batch"), batch);
  if (options.files.empty()) return;
  const auto run = session.api().get(mlflow_path(session, "mlflow/runs/get"), {{"run_id", id}});
  const auto experiment = run.at("run").at("info").at("experiment_id").as_string();
  const auto root = artifacts_root(session, std::string(experiment), id);
  for (const auto& file : options.files) put_file(session, root, file, options.directory);
}

}  // namespace

std::string mlflow_path(Session& session, std::string_view call) {
  const auto scope = session.project_scope();
  const auto parts = split(scope, '/');  // "", "t", TENANT, "p", PROJECT
  return fmt::format("/mlflow/{}/{}/api/2.0/{}", parts[2], parts[4], call);
}

std::string experiment_id(Session& session, const std::string& name) {
  if (name.empty()) return "0";
  try {
    const auto found =
        session.api().get(mlflow_path(session, "mlflow/experiments/get-by-name"), {{"experiment_name", name}});
    return std::string(found.at("experiment").at("experiment_id").as_string());
  } catch (const Error& e) {
    if (e.code() != Code::not_found) throw;
  }
  const auto made = session.api().post(mlflow_path(session, "mlflow/experiments/create"), json::object{{"name", name}});
  return std::string(made.at("experiment_id").as_string());
}

std::string start_run(Session& session, const std::string& experiment, const std::string& name,
                      const std::vector<std::string>& tags, const Source& source) {
  auto all = to_tags(source);
  for (const auto& tag : pairs_of("--tag", tags)) {
    // What is given by hand counts.
    const auto same = std::find_if(all.begin(), all.end(),
                                   [&](const json::value& other) { return other.at("key") == tag.at("key"); });
    if (same != all.end()) all.erase(same);
    all.push_back(tag);
  }
  json::object body{{"experiment_id", experiment},
                    {"start_time", session.clock().wall().count() / 1000},
                    {"user_id", source.user},
                    {"tags", std::move(all)}};
  if (!name.empty()) body["run_name"] = name;
  const auto made = session.api().post(mlflow_path(session, "mlflow/runs/create"), body);
  return std::string(made.at("run").at("info").at("run_id").as_string());
}

std::string artifacts_root(Session& session, const std::string& experiment, const std::string& run_id) {
  return mlflow_path(session, fmt::format("mlflow-artifacts/artifacts/{}/{}/artifacts", experiment, run_id));
}

void put_artifact(Session& session, const std::string& root, const std::string& path, std::string_view text) {
  std::string at = root;
  for (const auto element : split(path, '/')) at += "/" + client::path_element(element);
  bool sent = false;
  session.api().upload(
      at, {}, [&] { return std::exchange(sent, true) ? Bytes() : to_bytes(text); }, text.size(), net::Method::put);
}

void add_logging_commands(CLI::App& run, Session& session) {
  const auto options = std::make_shared<LogOptions>();
  auto* begin = run.add_subcommand("start", "Begin a run and print its id: RUN=$(falaj run start --name ingest)");
  begin->add_option("-e,--experiment", options->experiment, "Its experiment, made when missing; Default when absent");
  begin->add_option("--name", options->name, "A name; one is made up when absent");
  begin->add_option("--tag", options->tags, "KEY=VALUE; may be repeated");
  begin->callback([&session, options] { start(session, *options); });

  auto* more =
      run.add_subcommand("log", "Log params, metrics, tags and files of a run: all of a call's values or none");
  more->add_option("run", options->run, "Its id, or a name that only it has")->required();
  more->add_option("-p,--param", options->params, "KEY=VALUE; may be repeated");
  more->add_option("-m,--metric", options->metrics, "KEY=NUMBER or KEY=NUMBER@STEP; may be repeated");
  more->add_option("--tag", options->tags, "KEY=VALUE; may be repeated");
  more->add_option("-f,--file", options->files, "A file to keep with the run; may be repeated");
  more->add_option("--directory", options->directory, "Where the files go among the run's");
  more->callback([&session, options] { log(session, *options); });

  auto* end = run.add_subcommand("end", "Say how a run ended");
  end->add_option("run", options->run, "Its id, or a name that only it has")->required();
  end->add_option("--status", options->status, "How")
      ->check(CLI::IsMember({"FINISHED", "FAILED", "KILLED"}))
      ->capture_default_str();
  end->callback([&session, options] {
    session.api().post(mlflow_path(session, "mlflow/runs/update"),
                       json::object{{"run_id", run_id_of(session, options->run)},
                                    {"status", options->status},
                                    {"end_time", session.clock().wall().count() / 1000}});
  });
}

}  // namespace falaj::cli
