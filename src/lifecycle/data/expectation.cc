// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/expectation.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lifecycle/data/types.h"

namespace falaj::data {

// The type is null for a column that is not there.
void check_rule(const RuleSpec& rule, const table::Schema& schema, const std::string& at, Faults& faults) {
  const auto fault = [&](std::string_view field, std::string text) {
    faults.push_back({fmt::format("{}.{}", at, field), std::move(text)});
  };
  const bool of_column = rule.check != "unique" && rule.check != "rows";
  const auto* column = of_column ? table::find(schema, rule.column) : nullptr;
  if (of_column && !column) return fault("column", fmt::format("'{}' is none of the dataset's columns", rule.column));
  for (const auto& name : rule.columns)
    if (!table::find(schema, name)) fault("columns", fmt::format("'{}' is none of the dataset's columns", name));
  if (rule.share < 0 || rule.share > 1) fault("share", "must be from 0 to 1");
  if (rule.distance < 0) fault("distance", "must not be negative");
  for (const auto* bound : {&rule.min, &rule.max})
    if (!bound->is_null() && !bound->is_number() && !bound->is_string())
      fault(bound == &rule.min ? "min" : "max", "must be a number, or text such as a time");
  if (rule.check == "unique" && rule.columns.empty()) fault("columns", "which ones?");
  if ((rule.check == "range" || rule.check == "rows") && rule.min.is_null() && rule.max.is_null())
    fault("min", "min, max or both are needed");
  if (rule.check == "rows" && (rule.min.is_string() || rule.max.is_string())) fault("min", "must be a number");
  if (rule.check == "set" && rule.values.empty()) fault("values", "which ones?");
  if (rule.check == "type" && !table::parse_type(rule.type))
    fault("type", fmt::format("must be one of {}", fmt::join(kTypeNames, ", ")));
  if (rule.check == "pattern" &&
      std::find(std::begin(kPatterns), std::end(kPatterns), rule.pattern) == std::end(kPatterns))
    fault("pattern", fmt::format("must be one of {}", fmt::join(kPatterns, ", ")));
  if (rule.check != "freshness") return;
  if (!rule.within_us) fault("within", "how old may it be?");
  if (column->type != table::Type::timestamp && column->type != table::Type::date)
    fault("column", fmt::format("'{}' is not a timestamp or date", rule.column));
}

namespace {

void check_expectation(const resource::World& world, const resource::Metadata& metadata, const ExpectationSpec& spec,
                       Faults& faults) {
  const auto dataset = world.spec({"Dataset", metadata.tenant, metadata.project, spec.dataset});
  if (!dataset) return;  // said by the reference
  const auto schema = decode<DatasetSpec>(*dataset, "reading a dataset's spec").schema();
  for (std::size_t i = 0; i < spec.rules.size(); ++i)
    check_rule(spec.rules[i], schema, fmt::format("spec.rules[{}]", i), faults);
}

std::vector<resource::Reference> refers_to(const resource::World&, const resource::Metadata& metadata,
                                           const ExpectationSpec& spec) {
  return {{{"Dataset", metadata.tenant, metadata.project, spec.dataset}, "spec.dataset"}};
}

}  // namespace

resource::Kind expectation_kind() {
  return resource::make_kind(resource::KindOf<ExpectationSpec>{"Expectation",
                                                               "expectations",
                                                               "What must hold of rows that come into a dataset.",
                                                               {.project = true},
                                                               check_expectation,
                                                               refers_to,
                                                               {}});
}

}  // namespace falaj::data
