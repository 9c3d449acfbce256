// SPDX-License-Identifier: Apache-2.0
// Private to lifecycle/features: what a view expects of the rows that its features are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "foundation/base/shape.h"
#include "lifecycle/data/checks.h"
#include "lifecycle/features/definitions.h"
#include "storage/table/workspace.h"

namespace falaj::features {

struct ViewChecks {
  std::vector<data::CheckResult> results;
  Faults refused;  // by rules that do not hold and whose action is to refuse
};

// `rows`: only rules that look at one row at a time, for rows that are a part of what is to come.
enum class Rules { all, rows };
// Over the rows of a view, in a room that has the dataset under its name.
ViewChecks run_expectations(table::Workspace& room, const Definition& of, Rules which, std::int64_t now_us,
                            const table::Workspace::Watch& watch = {});

// Rules of the dataset itself, by the names of their expectations, over its rows in such a room.
ViewChecks run_rules(table::Workspace& room, const std::string& dataset,
                     const std::vector<std::pair<std::string, data::RuleSpec>>& rules, std::int64_t now_us);

// ---- results are kept, also of rows that were refused; the last kViewChecksMax of a view
inline constexpr std::int64_t kViewChecksMax = 1000;
void keep_view_checks(sql::Writer& w, const Where& where, const std::string& view, std::optional<std::int64_t> version,
                      std::int64_t at_us, const std::vector<data::CheckResult>& results);
std::vector<data::CheckResult> list_view_checks(sql::Reader& r, const Where& where, const std::string& view,
                                                std::int64_t limit);  // last first
// Values that were shown of rows: of a project, whatever became of the views.
bool has_view_examples(sql::Reader& r, const Where& where);
void forget_view_examples(sql::Writer& w, const Where& where);

}  // namespace falaj::features
