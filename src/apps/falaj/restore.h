// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "apps/falaj/settings.h"
#include "cli/session.h"

namespace falaj::app {

// `falaj restore FILE`: makes a new data directory (or fills an empty PostgreSQL database) from a backup.
void add_restore_command(CLI::App& app, cli::Session& session,
                         const std::function<std::pair<Settings, std::vector<std::string>>()>& load_settings,
                         const std::function<void(CLI::App&)>& add_settings_options);

}  // namespace falaj::app
