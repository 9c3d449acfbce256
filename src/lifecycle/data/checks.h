// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lifecycle/data/expectation.h"
#include "storage/sql/database.h"
#include "storage/table/workspace.h"

namespace falaj::data {

// What came of one rule.
struct CheckResult {
  std::string expectation, check, column, action;
  bool held = true;
  std::int64_t rows = 0, failing = 0;
  std::string said;                   // in words: "3 of 10 rows: delay is not within -60 and 1440"
  std::vector<std::string> examples;  // "row 7: 99999", at most kExamplesMax
  // Set when it is kept.
  std::optional<std::int64_t> version;  // that came of the rows; none when they were refused
  std::int64_t at_us = 0;
};
inline constexpr std::size_t kExamplesMax = 10;

struct Checked {
  table::Workspace& room;
  std::string rows;       // a table with the new rows
  std::string reference;  // a view to compare distributions with; "" when there is none yet
  std::string stored;     // a view of the rows that the new ones are appended to; "" when there is none
  std::int64_t now_us = 0;
  table::Workspace::Watch watch;
};
CheckResult run_rule(const Checked& in, const RuleSpec& rule);
bool looks_at_one_row(const RuleSpec& rule);  // rather than at all of them together

// ---- results are kept, also of rows that were refused
void keep_checks(sql::Writer& w, std::int64_t dataset, std::optional<std::int64_t> version, std::int64_t at_us,
                 const std::vector<CheckResult>& results);
std::vector<CheckResult> list_checks(sql::Reader& r, std::int64_t dataset, std::optional<std::int64_t> version,
                                     std::size_t limit);

}  // namespace falaj::data

template <>
struct falaj::Shape<falaj::data::CheckResult> {
  using S = data::CheckResult;
  static constexpr std::string_view name = "CheckResult";
  static Fields fields() {
    return {field("expectation", &S::expectation, "Whose rule it is."),
            field("check", &S::check, "What was checked."),
            field("column", &S::column, "Of which column, or columns."),
            field("action", &S::action, "warn or refuse, when it does not hold."),
            field("held", &S::held, "Whether it did."),
            field("rows", &S::rows, "That were checked."),
            field("failing", &S::failing, "Of those."),
            field("said", &S::said, "In words."),
            field("examples", &S::examples, "Rows that fail, with their values."),
            field("version", &S::version, "That came of the rows; absent when they were refused."),
            field("at_us", &S::at_us, "When, in microseconds since 1970.")};
  }
};
