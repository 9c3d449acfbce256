// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/session.h"

namespace falaj::app {

// The commands that need the whole program rather than a server to call: up, restore, config, completion, version.
void add_local_commands(CLI::App& app, cli::Session& session);

}  // namespace falaj::app
