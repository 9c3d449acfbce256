// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "api/platform.h"

namespace falaj::api {

// What the routes about runs share. Private to this directory.

// By number, else by name: names may look like numbers, but clients give experiments by number. Throws not_found.
std::int64_t experiment_of(track::Track& track, const track::Where& where, const std::string& text);

void add_run_transfer_routes(Routes& routes, Platform& platform);  // export, import

}  // namespace falaj::api
