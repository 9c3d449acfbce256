// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "storage/table/workspace.h"

namespace falaj::table {

// The engine sorts what is larger than memory, but holds what it merges of texts in it. In how many pieces the rows of
// `table` can be sorted, or `rows` that are as long as its rows are on average.
std::int64_t pieces_to_sort(Workspace& room, const std::string& table, std::optional<std::int64_t> rows = {},
                            const Workspace::Watch& watch = {});

// Makes table `into`: the rows of table `from` in the order of `by`, short columns of it, or rowid, that tell its rows
// apart. Piece by piece where needed, each of which is looked for in the whole.
void put_in_order(Workspace& room, const std::string& from, const std::string& by, const std::string& into,
                  const Workspace::Watch& watch = {});

}  // namespace falaj::table
