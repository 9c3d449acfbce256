// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/session.h"

namespace falaj::cli {
namespace {

void add_global_options(CLI::App& app, Session& session) {
  const auto choose_format = [&session](const std::string& name) {
    session.format = name == "json" ? Format::json : name == "yaml" ? Format::yaml : Format::table;
  };
  app.add_option_function<std::string>("-o,--output", choose_format, "How to print: table, json or yaml")
      ->check(CLI::IsMember({"table", "json", "yaml"}))
      ->option_text("FORMAT");
  app.add_option("--url", session.url, "Server to call (or FALAJ_URL)");
  app.add_option("--token", session.token, "API token (or FALAJ_TOKEN)");
  app.add_option("--context", session.context, "Context to use");
  app.add_option("--ca-file", session.ca_file, "Certificates to trust (or FALAJ_CA_FILE)");
  app.add_option("--tenant,-t", session.tenant, "Tenant (or FALAJ_TENANT)");
  app.add_option("--project,-p", session.project, "Project (or FALAJ_PROJECT)");
  app.add_flag("-q,--quiet", session.quiet, "No progress display");
}

// Global options may stand after the command too, where people type them.
void let_options_fall_through(CLI::App& app) {
  for (auto* sub : app.get_subcommands([](CLI::App*) { return true; })) {
    sub->fallthrough();
    let_options_fall_through(*sub);
  }
}

void print_error(const Error& error, Format format) {
  if (format == Format::json) {
    json::array details;
    for (const auto& fault : error.faults()) details.push_back({{"field", fault.where}, {"problem", fault.what}});
    const json::object body{{"error", {{"code", name(error.code())}, {"message", error.what()}, {"details", details}}}};
    fmt::print(stderr, "{}\n", json::serialize(body));
    return;
  }
  fmt::print(stderr, "error: {}: {}\n", name(error.code()), harmless(error.what()));
  if (error.faults().size() > 1)
    for (const auto& fault : error.faults())
      fmt::print(stderr, "  {}: {}\n", harmless(fault.where), harmless(fault.what));
}

}  // namespace

int run(int argc, char** argv, Session& session, const std::function<void(CLI::App&)>& more) {
  CLI::App app("Falaj takes a team from raw data to a monitored model in production.", "falaj");
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  add_global_options(app, session);
  more(app);
  add_server_commands(app, session);
  add_access_commands(app, session);
  add_resource_commands(app, session);
  add_blob_commands(app, session);
  add_dataset_commands(app, session);
  add_feature_commands(app, session);
  add_track_commands(app, session);
  add_model_commands(app, session);
  add_simulate_commands(app, session);
  add_job_commands(app, session);
  add_endpoint_commands(app, session);
  add_monitor_commands(app, session);
  add_pipeline_commands(app, session);
  add_loop_commands(app, session);
  add_report_commands(app, session);
  add_bench_commands(app, session);
  add_alert_commands(app, session);
  add_lineage_commands(app, session);
  add_retention_commands(app, session);
  add_data_commands(app, session);
  add_audit_commands(app, session);
  let_options_fall_through(app);
  // What follows is somebody else's command line: CLI11 would look for our options in it.
  const auto dashes = std::find(argv, argv + argc, std::string_view("--"));
  const auto runs_another = [](std::string_view word) { return word == "exec" || word == "submit"; };
  if (dashes != argv + argc && std::any_of(argv, dashes, runs_another)) {
    session.after_dashes.assign(dashes + 1, argv + argc);
    argc = static_cast<int>(dashes - argv);
  }
  try {
    app.parse(argc, argv);
    return session.status;
  } catch (const CLI::ParseError& e) {
    const int status = app.exit(e);
    return status == 0 ? EXIT_SUCCESS : exit_status(Code::invalid);
  } catch (const Error& e) {
    std::fflush(stdout);  // what led to the error stands before it
    print_error(e, session.format);
    return exit_status(e.code());
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return EXIT_FAILURE;
  }
}

}  // namespace falaj::cli
