// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "foundation/sys/clock.h"
#include "storage/sql/connection.h"

namespace falaj::sql {

// What Database::migrate promises, on the writer's connection.
void migrate(Connection& connection, std::span<const Migration> migrations, sys::Micros wall);

}  // namespace falaj::sql
