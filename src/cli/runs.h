// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/session.h"

namespace falaj::cli {

struct Source;  // runs_source.h

// What the commands about runs and models share.

// The metric's value as a number: JSON has no NaN and no infinities, so those come as text.
double number_of(const json::value& value);
std::string measure(const json::value& value);    // six digits, or "-"
std::string time_ms(const json::value& unix_ms);  // or "-"
std::string sparkline_of(const json::value& line);

// At most `limit` items of a list, page by page.
json::array get_items(Session& session, const std::string& path, client::Query query, std::size_t limit);

// The id of a run given by it, or by a name that only one run has.
std::string run_id_of(Session& session, const std::string& text);

// A path of MLflow's protocol for the chosen project.
std::string mlflow_path(Session& session, std::string_view call);
std::string experiment_id(Session& session, const std::string& name);  // made when missing; "" is Default
// Begins a run that knows its source, and returns its id. Of the same tag, the one given by hand counts.
std::string start_run(Session& session, const std::string& experiment, const std::string& name,
                      const std::vector<std::string>& tags, const Source& source);
// Where a run's files are put.
std::string artifacts_root(Session& session, const std::string& experiment, const std::string& run_id);
void put_artifact(Session& session, const std::string& root, const std::string& path, std::string_view text);

void add_exec_command(CLI::App& run, Session& session);
void add_transfer_commands(CLI::App& run, Session& session);
void add_tail_command(CLI::App& run, Session& session);
void add_logging_commands(CLI::App& run, Session& session);

}  // namespace falaj::cli
