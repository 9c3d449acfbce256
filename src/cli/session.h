// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "foundation/client/api_client.h"
#include "foundation/sys/clock.h"

namespace CLI {
class App;
}

namespace falaj::cli {

// What every command has: where to call, how to print, what time it is.
class Session {
 public:
  Session(const sys::Clock& clock, std::FILE* out) : clock_(clock), out_(out) {}

  // Set by the global options before a command runs.
  Format format = Format::table;
  std::string url, token, context, ca_file;  // "" = not given
  bool quiet = false;
  std::string tenant, project;
  std::vector<std::string> after_dashes;  // of a command that runs another: what stands after "--"
  int status = 0;  // what the program ends with when no error is thrown: of a command that it ran

  client::ApiClient&
  api();  // made on first use from the options, the environment, the context, or this machine's own server
  Output output() const { return Output(out_, format); }
  const sys::Clock& clock() const { return clock_; }
  // "/", "/t/TENANT" or "/t/TENANT/p/PROJECT", from --tenant and --project or the context.
  std::string scope();
  std::string project_scope();  // throws invalid when no project is chosen

 private:
  const sys::Clock& clock_;
  std::FILE* out_;
  std::optional<client::ApiClient> api_;
};

// Several servers by name, in a file that only its owner may read: $FALAJ_CONFIG or ~/.config/falaj/contexts.json.
struct Context {
  std::string name, url, token, ca_file, tenant, project;
};
struct Contexts {
  std::string current;
  std::vector<Context> all;
  static Contexts load();
  void save() const;
  const Context* find(std::string_view name) const;
  void put(Context context);  // replaces one of that name
};

// A file that appears under its name only when all of it was written; until then, and when that fails, a file that was
// there before stays as it is.
class ResultFile {
 public:
  explicit ResultFile(std::string path);
  ~ResultFile();
  void write(BytesView piece);
  void keep();  // throws unavailable when the bytes did not reach the file

 private:
  const std::string path_, partial_;
  std::ofstream out_;
};

// Each adds its commands; what they do runs when the line is parsed.
void add_access_commands(CLI::App& app, Session& session);  // login, logout, whoami, context, token, user, certificate
void add_resource_commands(CLI::App& app,
                           Session& session);  // apply, diff, get, describe, delete, history, rollback, export
void add_blob_commands(CLI::App& app, Session& session);      // blob, key
void add_audit_commands(CLI::App& app, Session& session);     // audit
void add_feature_commands(CLI::App& app, Session& session);   // features
void add_simulate_commands(CLI::App& app, Session& session);  // simulate, what-if
void add_track_commands(CLI::App& app, Session& session);     // experiment, run
void add_model_commands(CLI::App& app, Session& session);     // model
void add_dataset_commands(CLI::App& app, Session& session);   // dataset
void add_job_commands(CLI::App& app, Session& session);       // submit, job, queue, usage
void add_endpoint_commands(CLI::App& app, Session& session);  // deploy, endpoint, predict
void add_monitor_commands(CLI::App& app, Session& session);   // monitor
void add_loop_commands(CLI::App& app, Session& session);      // loop
void add_report_commands(CLI::App& app, Session& session);    // report, timeline
void add_apply(CLI::App& app, Session& session);              // apply, also below another command
void add_pipeline_commands(CLI::App& app, Session& session);  // pipeline
void add_bench_commands(CLI::App& app, Session& session);     // bench
void add_alert_commands(CLI::App& app, Session& session);     // alerts
void add_lineage_commands(CLI::App& app, Session& session);   // lineage, webhook
void add_retention_commands(CLI::App& app, Session& session);
void add_data_commands(CLI::App& app, Session& session);    // data: erasure of a person's rows
void add_server_commands(CLI::App& app, Session& session);  // status, api, backup, config show

// Parses and runs one command line. `more` adds the commands that only the composition root can: up, restore, config.
int run(int argc, char** argv, Session& session, const std::function<void(CLI::App&)>& more);

}  // namespace falaj::cli
