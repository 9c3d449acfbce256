// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"
#include "governance/resource/kind.h"
#include "storage/table/schema.h"

namespace falaj::data {

// ---- what a person declares (kind Expectation)
struct RuleSpec {
  std::string check;                              // one of kChecks
  std::string column;                             // all but unique and rows are about one
  std::vector<std::string> columns;               // unique: those that together occur once
  std::string type;                               // type: the text of every value is one of that type
  json::value min, max;                           // range: numbers, or times as text; rows: how many
  std::vector<std::string> values;                // set
  std::string pattern;                            // pattern: one of kPatterns
  std::optional<std::int64_t> shortest, longest;  // pattern: characters
  double share = 0;                               // of the rows that may fail, 0 to 1
  std::optional<std::int64_t> within_us;          // freshness: the newest value is not older
  std::optional<std::int64_t> version;            // distribution: of this dataset, the reference
  double distance = 0.2;                          // distribution: population stability index
};
struct ExpectationSpec {
  std::string dataset;
  std::string action = "refuse";
  std::vector<RuleSpec> rules;
};

inline constexpr std::string_view kChecks[] = {"type",   "range",     "set",  "pattern",     "nulls",
                                               "unique", "freshness", "rows", "distribution"};
// Named classes instead of regular expressions: nobody has to read one, and none takes long.
inline constexpr std::string_view kPatterns[] = {"digits", "letters", "upper",    "lower", "alphanumeric", "ascii",
                                                 "email",  "uuid",    "iso-date", "url",   "any"};
inline constexpr std::string_view kActions[] = {"warn", "refuse"};

resource::Kind expectation_kind();
// Faults of a rule over rows of these columns; `at` is where it stands.
void check_rule(const RuleSpec& rule, const table::Schema& schema, const std::string& at, Faults& faults);

}  // namespace falaj::data

template <>
struct falaj::Shape<falaj::data::RuleSpec> {
  using S = data::RuleSpec;
  static constexpr std::string_view name = "RuleSpec";
  static Fields fields() {
    return {field("check", &S::check, "What is checked.").required().one_of(data::kChecks),
            field("column", &S::column, "Of which column.").length(0, 255),
            field("columns", &S::columns, "unique: these together.").length(0, 16),
            field("type", &S::type, "type: every value, as text, is one of this type.").length(0, 20),
            field("min", &S::min, "range and rows: the least allowed."),
            field("max", &S::max, "range and rows: the greatest allowed."),
            field("values", &S::values, "set: all that are allowed, as text.").length(0, 1000),
            field("pattern", &S::pattern,
                  "pattern: digits, letters, upper, lower, alphanumeric, ascii, email, uuid, iso-date, url or any.")
                .length(0, 20),
            field("shortest", &S::shortest, "pattern: least characters.").range(0, 1'000'000),
            field("longest", &S::longest, "pattern: most characters.").range(0, 1'000'000),
            field("share", &S::share, "Share of the rows that may fail, 0 to 1; nulls: that may be missing."),
            field("within", &S::within_us, "freshness: the newest value is at most this old.")
                .duration()
                .range(1'000'000, 3'153'600'000'000'000),
            field("version", &S::version, "distribution: the version to compare with; the newest when absent.")
                .range(1, INT64_MAX),
            field("distance", &S::distance, "distribution: greatest population stability index.")};
  }
};
template <>
struct falaj::Shape<falaj::data::ExpectationSpec> {
  using S = data::ExpectationSpec;
  static constexpr std::string_view name = "ExpectationSpec";
  static Fields fields() {
    return {field("dataset", &S::dataset, "Whose new rows are checked.").required().length(1, 63),
            field("action", &S::action, "refuse: rows that fail do not come in, nor any with them; warn: they do.")
                .one_of(data::kActions),
            field("rules", &S::rules, "What must hold of the rows that come in.").required().length(1, 200)};
  }
};
