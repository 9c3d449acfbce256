// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/data/checks.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/data/tables.h"

namespace falaj::data {
namespace {

using table::identifier;
using table::literal;

constexpr std::size_t kValueBytesMax = 100;  // of a value that is shown
constexpr int kBins = 10;

struct Pattern {
  std::string_view name, full;  // the second is ours and constant: RE2 takes time that is linear in the value
};
constexpr Pattern kFull[] = {{"digits", "[0-9]*"},
                             {"letters", "\\pL*"},
                             {"upper", "\\p{Lu}*"},
                             {"lower", "\\p{Ll}*"},
                             {"alphanumeric", "[\\pL\\p{Nd}]*"},
                             {"ascii", "[\\x00-\\x7f]*"},
                             {"email", "[^@\\s]+@[^@\\s.]+(\\.[^@\\s.]+)+"},
                             {"uuid", "(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
                             {"iso-date", "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"},
                             {"url", "(?i)https?://[^\\s/?#]+([/?#]\\S*)?"},
                             {"any", "(?s).*"}};

std::string text_of(const json::value& bound) {
  return bound.is_string() ? std::string(bound.as_string()) : json::serialize(bound);
}

std::string bounds(const RuleSpec& rule) {
  if (rule.min.is_null()) return fmt::format("at most {}", text_of(rule.max));
  if (rule.max.is_null()) return fmt::format("at least {}", text_of(rule.min));
  return fmt::format("from {} to {}", text_of(rule.min), text_of(rule.max));
}

// What a row that fails is like, and what it lacks. For rules that look at one row at a time.
struct RowRule {
  std::string fails, expected;
};

RowRule row_rule(const RuleSpec& rule) {
  const auto c = identifier(rule.column);
  if (rule.check == "nulls") return {c + " IS NULL", "is there"};
  if (rule.check == "type") {
    const auto type = table::sql_name(*table::parse_type(rule.type));
    return {fmt::format("{0} IS NOT NULL AND TRY_CAST({0}::VARCHAR AS {1}) IS NULL", c, type),
            "is of type " + rule.type};
  }
  if (rule.check == "range") {
    // Text is read as what the column holds: a time, most often.
    const auto side = [&](const json::value& b, std::string_view than) {
      if (b.is_null()) return std::string("false");
      if (b.is_number()) return fmt::format("{}::DOUBLE {} {}::DOUBLE", c, than, text_of(b));
      return fmt::format("{} {} {}", c, than, literal(text_of(b)));
    };
    return {fmt::format("({}) OR ({})", side(rule.min, "<"), side(rule.max, ">")), "is " + bounds(rule)};
  }
  if (rule.check == "set") {
    std::string list;
    for (const auto& value : rule.values) list += (list.empty() ? "" : ", ") + literal(value);
    return {fmt::format("{0} IS NOT NULL AND {0}::VARCHAR NOT IN ({1})", c, list), "is one of those listed"};
  }
  CHECK(rule.check == "pattern", "every check of rows is here");
  const auto* pattern =
      std::find_if(std::begin(kFull), std::end(kFull), [&](const auto& p) { return p.name == rule.pattern; });
  auto fails = fmt::format("NOT regexp_full_match({}::VARCHAR, {})", c, literal(pattern->full));
  std::string expected = "is " + rule.pattern;
  if (rule.shortest) {
    fails += fmt::format(" OR length({}::VARCHAR) < {}", c, *rule.shortest);
    expected += fmt::format(", of {} characters or more", *rule.shortest);
  }
  if (rule.longest) {
    fails += fmt::format(" OR length({}::VARCHAR) > {}", c, *rule.longest);
    expected += fmt::format(", of {} characters or fewer", *rule.longest);
  }
  return {fmt::format("{} IS NOT NULL AND ({})", c, fails), expected};
}

class Rule {
 public:
  Rule(const Checked& in, const RuleSpec& rule) : in_(in), rule_(rule) {
    out_.check = rule.check;
    out_.column = rule.column.empty() ? fmt::format("{}", fmt::join(rule.columns, ", ")) : rule.column;
    out_.rows = number("SELECT count(*) FROM " + in_.rows).value_or(0);
  }

  CheckResult run() {
    if (rule_.check == "rows")
      count();
    else if (rule_.check == "unique")
      unique();
    else if (rule_.check == "freshness")
      freshness();
    else if (rule_.check == "distribution")
      distribution();
    else
      each_row();
    return std::move(out_);
  }

 private:
  void query(const std::string& sql, const std::function<void(const table::Chunk&)>& each) {
    in_.room.query(
        sql, {}, [&](const table::Chunk& chunk) { return each(chunk), true; }, in_.watch);
  }
  std::optional<double> real(const std::string& sql) {
    std::optional<double> out;
    query(sql, [&](const table::Chunk& chunk) {
      if (!chunk.is_null(0, 0)) out = chunk.real(0, 0);
    });
    return out;
  }
  std::optional<std::int64_t> number(const std::string& sql) {
    std::optional<std::int64_t> out;
    query(sql, [&](const table::Chunk& chunk) {
      if (!chunk.is_null(0, 0)) out = chunk.integer(0, 0);
    });
    return out;
  }
  // `sql` gives the row's number, from 0, and its value as text.
  void examples(const std::string& sql) {
    query(fmt::format("SELECT * FROM ({}) LIMIT {}", sql, kExamplesMax), [&](const table::Chunk& chunk) {
      for (std::size_t i = 0; i < chunk.rows(); ++i)
        out_.examples.push_back(
            fmt::format("row {}: {}", chunk.integer(0, i) + 1, chunk.is_null(1, i) ? "missing" : chunk.text(1, i)));
    });
  }
  void judge_rows(const std::string& expected) {
    out_.held = static_cast<double>(out_.failing) <= rule_.share * static_cast<double>(out_.rows);
    out_.said = fmt::format("{} of {} rows fail: {} {}", out_.failing, out_.rows, out_.column, expected);
  }

  void each_row() {
    const auto rule = row_rule(rule_);
    out_.failing = number(fmt::format("SELECT count(*) FROM {} WHERE {}", in_.rows, rule.fails)).value_or(0);
    judge_rows(rule.expected);
    if (out_.failing > 0)
      examples(fmt::format("SELECT rowid, left({}::VARCHAR, {}) FROM {} WHERE {} ORDER BY rowid",
                           identifier(rule_.column), kValueBytesMax, in_.rows, rule.fails));
  }

  void count() {
    const auto rows = static_cast<double>(out_.rows);
    out_.held = (rule_.min.is_null() || rows >= rule_.min.to_number<double>()) &&
                (rule_.max.is_null() || rows <= rule_.max.to_number<double>());
    out_.said = fmt::format("{} rows; expected {}", out_.rows, bounds(rule_));
  }

  // Rows are told apart from those before them, in the same batch and in the version they are appended to.
  void unique() {
    std::string columns;
    for (const auto& c : rule_.columns) columns += (columns.empty() ? "" : ", ") + identifier(c);
    auto again =
        fmt::format("SELECT rowid AS r, {0} FROM {1} QUALIFY row_number() OVER (PARTITION BY {0} ORDER BY rowid) > 1",
                    columns, in_.rows);
    if (!in_.stored.empty())
      again +=
          fmt::format(" UNION SELECT {0}.rowid, {1} FROM {0} SEMI JOIN {2} USING ({1})", in_.rows, columns, in_.stored);
    out_.failing = number(fmt::format("SELECT count(*) FROM ({})", again)).value_or(0);
    judge_rows("occurs once");
    if (out_.failing > 0)
      examples(
          fmt::format("SELECT r, left(concat_ws(', ', {}), {}) FROM ({}) ORDER BY r", columns, kValueBytesMax, again));
  }

  void freshness() {
    const auto newest =
        number(fmt::format("SELECT epoch_us(max({})::TIMESTAMP) FROM {}", identifier(rule_.column), in_.rows));
    const auto age = newest ? in_.now_us - *newest : 0;
    out_.held = newest && age <= *rule_.within_us;
    out_.said =
        newest ? fmt::format("newest {} is {} old; expected at most {}", rule_.column,
                             format_duration_us(std::max<std::int64_t>(age, 0)), format_duration_us(*rule_.within_us))
               : fmt::format("no row has a {}", rule_.column);
  }

  // Population stability index: both are counted in the same bins, which hold about equal parts of the reference.
  void distribution() {
    if (in_.reference.empty()) {
      out_.said = "nothing to compare with yet";
      return;
    }
    const auto bins = bin_expression();
    const auto counts = [&](const std::string& relation) {
      return fmt::format("SELECT {} AS bin, count(*) AS n FROM {} GROUP BY 1", bins, relation);
    };
    const auto psi = real(fmt::format(
        "WITH a AS ({0}), b AS ({1}), s AS (SELECT (SELECT sum(n) FROM a) AS x, (SELECT sum(n) FROM b) AS y),"
        " j AS (SELECT greatest(coalesce(a.n, 0) / s.x, 0.0001) AS p, greatest(coalesce(b.n, 0) / s.y, 0.0001) AS q"
        " FROM a FULL JOIN b ON a.bin IS NOT DISTINCT FROM b.bin, s) SELECT sum((p - q) * ln(p / q)) FROM j",
        counts(in_.rows), counts(in_.reference)));
    out_.held = psi.value_or(0) <= rule_.distance;
    out_.said = fmt::format("{} is {:.3f} from the reference; expected at most {}", rule_.column, psi.value_or(0),
                            rule_.distance);
  }
  std::string bin_expression() {
    const auto c = identifier(rule_.column);
    const auto type = in_.room.describe(fmt::format("SELECT {} FROM {}", c, in_.rows)).front().type;
    if (type == table::Type::text || type == table::Type::boolean || type == table::Type::bytes) {
      std::string top;
      query(fmt::format(
                "SELECT {0}::VARCHAR FROM {1} WHERE {0} IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 50", c,
                in_.reference),
            [&](const table::Chunk& chunk) {
              for (std::size_t i = 0; i < chunk.rows(); ++i)
                top += (top.empty() ? "" : ", ") + literal(chunk.text(0, i));
            });
      return fmt::format(
          "CASE WHEN {0} IS NULL THEN 'missing' WHEN {0}::VARCHAR IN ({1}) THEN '=' || {0}::VARCHAR ELSE"
          " 'other' END",
          c, top.empty() ? "NULL" : top);
    }
    const bool time = type == table::Type::timestamp || type == table::Type::date;
    const auto v = time ? fmt::format("epoch_us({}::TIMESTAMP)::DOUBLE", c) : c + "::DOUBLE";
    std::string out = fmt::format("CASE WHEN {} IS NULL THEN -1", v);
    for (int i = 1; i < kBins; ++i)
      if (const auto edge = real(fmt::format("SELECT approx_quantile({}, {}) FROM {} WHERE isfinite({})", v,
                                             static_cast<double>(i) / kBins, in_.reference, v)))
        out += fmt::format(" WHEN {} <= {} THEN {}", v, *edge, i);
    return out + fmt::format(" ELSE {} END", kBins);
  }

  const Checked& in_;
  const RuleSpec& rule_;
  CheckResult out_;
};

}  // namespace

CheckResult run_rule(const Checked& in, const RuleSpec& rule) { return Rule(in, rule).run(); }

bool looks_at_one_row(const RuleSpec& rule) {
  constexpr std::string_view kOfRows[] = {"type", "range", "set", "pattern", "nulls"};
  return std::find(std::begin(kOfRows), std::end(kOfRows), rule.check) != std::end(kOfRows);
}

void keep_checks(sql::Writer& w, std::int64_t dataset, std::optional<std::int64_t> version, std::int64_t at_us,
                 const std::vector<CheckResult>& results) {
  for (const auto& result : results) {
    auto kept = result;
    kept.version = version;
    kept.at_us = at_us;
    const auto id = next_number(w, "check");
    w.execute(
        "INSERT INTO data_check(id, dataset, version, at_us, result) VALUES(?, ?, ?, ?, ?)",
        {id, dataset, version ? sql::Param(*version) : sql::Param(sql::Null{}), at_us, json::serialize(encode(kept))});
  }
}

std::vector<CheckResult> list_checks(sql::Reader& r, std::int64_t dataset, std::optional<std::int64_t> version,
                                     std::size_t limit) {
  const auto read = [](const sql::Row& row) { return decode<CheckResult>(parse_json(row.text(0)), "reading a check"); };
  const auto most = static_cast<std::int64_t>(limit);
  if (version)
    return r.all("SELECT result FROM data_check WHERE dataset = ? AND version = ? ORDER BY id LIMIT ?",
                 {dataset, *version, most}, read);
  return r.all("SELECT result FROM data_check WHERE dataset = ? ORDER BY id DESC LIMIT ?", {dataset, most}, read);
}

}  // namespace falaj::data
