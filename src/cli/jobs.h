// SPDX-License-Identifier: Apache-2.0
// Private to cli: the commands about jobs, by file.
#pragma once

#include "cli/session.h"

namespace falaj::cli {

void add_top_command(CLI::App& job, Session& session);
void add_queue_commands(CLI::App& app, Session& session);   // queue, pool, usage
void add_secret_commands(CLI::App& app, Session& session);  // secret

}  // namespace falaj::cli
