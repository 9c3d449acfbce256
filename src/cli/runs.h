// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/session.h"

namespace falaj::cli {

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

void add_tail_command(CLI::App& run, Session& session);
void add_logging_commands(CLI::App& run, Session& session);

}  // namespace falaj::cli
