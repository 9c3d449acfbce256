// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <duckdb/parser/parser.hpp>
#include <duckdb/parser/simplified_token.hpp>
#include <duckdb/planner/expression.hpp>
#include <duckdb/planner/logical_operator.hpp>

#include <fmt/format.h>

#include "foundation/base/text.h"
#include "storage/table/rep.h"

namespace falaj::table {
namespace {

// Some run SQL that is hidden in a text; those of JSON go down as deep as the text says, and the stack ends first.
bool is_refused(std::string_view function) {
  static constexpr std::string_view kWhole[] = {"query",   "query_table",   "from_json",  "from_json_strict",
                                                "to_json", "array_to_json", "row_to_json"};
  return function.starts_with("json_") || function.starts_with("read_json") || function.starts_with("read_ndjson") ||
         std::find(std::begin(kWhole), std::end(kWhole), function) != std::end(kWhole);
}

std::string name_of(std::string_view token) {
  token = trim(token);
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"') token = token.substr(1, token.size() - 2);
  return lower(token);
}

bool looks_at_one_row(const duckdb::LogicalOperator& node) {
  using duckdb::LogicalOperatorType;
  if (node.type != LogicalOperatorType::LOGICAL_GET && node.type != LogicalOperatorType::LOGICAL_PROJECTION &&
      node.type != LogicalOperatorType::LOGICAL_FILTER)
    return false;
  if (node.type == LogicalOperatorType::LOGICAL_GET ? !node.children.empty() : node.children.size() != 1) return false;
  return std::all_of(node.expressions.begin(), node.expressions.end(),
                     [](const auto& expression) { return expression->IsConsistent() && !expression->IsVolatile(); }) &&
         std::all_of(node.children.begin(), node.children.end(),
                     [](const auto& child) { return looks_at_one_row(*child); });
}

}  // namespace

bool Workspace::is_row_by_row(const std::string& sql) {
  try {
    // As it was written: the optimizer would see that a table is empty, and leave out what the query does.
    duckdb::Connection plain(*rep_->database);
    plain.context->config.enable_optimizer = false;
    return looks_at_one_row(*plain.ExtractPlan(sql));
  } catch (const std::exception& e) {
    rep_->fail(duckdb::ErrorData(e));
  }
}

void Workspace::check_user_sql(const std::string& sql) {
  const auto statement = rep_->parse(sql);
  if (statement->type != duckdb::StatementType::SELECT_STATEMENT)
    throw Error(Code::denied, "only a SELECT that reads is allowed here");
  // By the words, not the tree: a tree has many places where a call can be, and one forgotten is a hole.
  const auto tokens = duckdb::Parser::Tokenize(sql);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    auto next = i + 1;
    while (next + 1 < tokens.size() && tokens[next].type == duckdb::SimplifiedTokenType::SIMPLIFIED_TOKEN_COMMENT)
      ++next;
    if (sql[tokens[next].start] != '(') continue;
    const auto text = std::string_view(sql).substr(tokens[i].start, tokens[i + 1].start - tokens[i].start);
    if (const auto name = name_of(text); is_refused(name))
      throw Error(Code::denied, fmt::format("{}() is not allowed here", name));
  }
}

}  // namespace falaj::table
