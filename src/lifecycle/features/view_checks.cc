// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/features/view_checks.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/json.h"

namespace falaj::features {
namespace {

constexpr const char* kCheckedRows = "falaj_checked";

// Rows in a table while they are checked. Temporary: seen by the room's own statements only, and no prepared one has to
// be looked at again for it.
class CheckedRows {
 public:
  CheckedRows(table::Workspace& room, const std::string& select, std::int64_t now_us,
              const table::Workspace::Watch& watch)
      : in_{room, kCheckedRows, "", "", now_us, watch} {
    room.run(fmt::format("CREATE OR REPLACE TEMP TABLE {} AS SELECT * FROM ({})", kCheckedRows, select), {}, watch);
  }
  void check(const data::RuleSpec& rule, std::string expectation, const std::string& action, ViewChecks& out) const {
    auto result = data::run_rule(in_, rule);
    result.expectation = std::move(expectation);
    result.action = action;
    if (!result.held && action == "refuse") {
      out.refused.push_back({fmt::format("expectation {}", result.expectation), result.said});
      for (const auto& example : result.examples) out.refused.push_back({result.column, example});
    }
    out.results.push_back(std::move(result));
  }

 private:
  const data::Checked in_;
};

struct KeptCheck {
  std::string view;
  std::int64_t number = 0;
  data::CheckResult result;
};
std::vector<KeptCheck> checks_with_examples(sql::Reader& r, const Where& where) {
  auto all = r.all("SELECT view, number, result FROM feature_check WHERE tenant = ? AND project = ?",
                   {where.tenant.str(), where.project.str()}, [](const sql::Row& row) {
                     return KeptCheck{std::string(row.text(0)), row.integer(1),
                                      decode<data::CheckResult>(parse_json(row.text(2)), "reading a check of a view")};
                   });
  std::erase_if(all, [](const KeptCheck& kept) { return kept.result.examples.empty(); });
  return all;
}

}  // namespace

ViewChecks run_expectations(table::Workspace& room, const Definition& of, Rules which, std::int64_t now_us,
                            const table::Workspace::Watch& watch) {
  ViewChecks out;
  if (of.spec.expectations.empty()) return out;
  const CheckedRows rows(room, of.select, now_us, watch);
  for (std::size_t e = 0; e < of.spec.expectations.size(); ++e) {
    const auto& expectation = of.spec.expectations[e];
    for (const auto& rule : expectation.rules)
      if (which == Rules::all || data::looks_at_one_row(rule))
        rows.check(rule, fmt::format("{}[{}]", of.name, e), expectation.action, out);
  }
  return out;
}

ViewChecks run_rules(table::Workspace& room, const std::string& dataset,
                     const std::vector<std::pair<std::string, data::RuleSpec>>& rules, std::int64_t now_us) {
  ViewChecks out;
  const CheckedRows rows(room, "SELECT * FROM " + table::identifier(dataset), now_us, {});
  for (const auto& [expectation, rule] : rules) rows.check(rule, expectation, "refuse", out);
  return out;
}

void keep_view_checks(sql::Writer& w, const Where& where, const std::string& view, std::optional<std::int64_t> version,
                      std::int64_t at_us, const std::vector<data::CheckResult>& results) {
  if (results.empty()) return;
  const auto last = w.first("SELECT max(number) FROM feature_check WHERE tenant = ? AND project = ? AND view = ?",
                            {where.tenant.str(), where.project.str(), view},
                            [](const sql::Row& row) { return row.is_null(0) ? 0 : row.integer(0); });
  auto number = last.value_or(0);
  for (auto kept : results) {
    kept.version = version;
    kept.at_us = at_us;
    w.execute("INSERT INTO feature_check(tenant, project, view, number, result) VALUES(?, ?, ?, ?, ?)",
              {where.tenant.str(), where.project.str(), view, ++number, json::serialize(encode(kept))});
  }
  w.execute("DELETE FROM feature_check WHERE tenant = ? AND project = ? AND view = ? AND number <= ?",
            {where.tenant.str(), where.project.str(), view, number - kViewChecksMax});
}

bool has_view_examples(sql::Reader& r, const Where& where) { return !checks_with_examples(r, where).empty(); }

void forget_view_examples(sql::Writer& w, const Where& where) {
  for (auto& kept : checks_with_examples(w, where)) {
    kept.result.examples.clear();
    w.execute("UPDATE feature_check SET result = ? WHERE tenant = ? AND project = ? AND view = ? AND number = ?",
              {json::serialize(encode(kept.result)), where.tenant.str(), where.project.str(), kept.view, kept.number});
  }
}

std::vector<data::CheckResult> list_view_checks(sql::Reader& r, const Where& where, const std::string& view,
                                                std::int64_t limit) {
  return r.all(
      "SELECT result FROM feature_check WHERE tenant = ? AND project = ? AND view = ? ORDER BY number DESC LIMIT ?",
      {where.tenant.str(), where.project.str(), view, limit}, [](const sql::Row& row) {
        return decode<data::CheckResult>(parse_json(row.text(0)), "reading a check of a view");
      });
}

}  // namespace falaj::features
