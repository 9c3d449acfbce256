// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "storage/sql/connection.h"

namespace falaj::sql {

// What Reader::dump and Database::load_into_empty promise, on one connection.
void dump(Connection& connection, TableSink& into);
void load_into_empty(Connection& connection, const std::function<void(TableSink&)>& fill);

}  // namespace falaj::sql
