// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "foundation/expr/syntax.h"

namespace falaj::expr {
namespace {

using O = Opcode;

constexpr Operation kOperators[] = {
    {"or", Rule::logic, 2, 2, O::either, O::move, O::move},
    {"and", Rule::logic, 2, 2, O::both, O::move, O::move},
    {"not", Rule::logic, 1, 1, O::negated, O::move, O::move},
    {"=", Rule::equality, 2, 2, O::eq_i, O::eq_r, O::eq_s},
    {"!=", Rule::equality, 2, 2, O::ne_i, O::ne_r, O::ne_s},
    {"<>", Rule::equality, 2, 2, O::ne_i, O::ne_r, O::ne_s},
    {"<", Rule::order, 2, 2, O::lt_i, O::lt_r, O::move},
    {"<=", Rule::order, 2, 2, O::le_i, O::le_r, O::move},
    {">", Rule::order, 2, 2, O::gt_i, O::gt_r, O::move},
    {">=", Rule::order, 2, 2, O::ge_i, O::ge_r, O::move},
    {"is null", Rule::presence, 1, 1, O::is_null, O::is_null, O::is_null},
    {"in", Rule::membership, 2, kAnyNumber, O::in_i, O::in_r, O::in_s},
    {"+", Rule::numbers, 2, 2, O::add_i, O::add_r, O::move},
    {"-", Rule::difference, 2, 2, O::sub_i, O::sub_r, O::move},
    {"*", Rule::numbers, 2, 2, O::mul_i, O::mul_r, O::move},
    {"/", Rule::reals, 2, 2, O::move, O::div_r, O::move},
    {"%", Rule::numbers, 2, 2, O::mod_i, O::mod_r, O::move},
    {"unary -", Rule::numbers, 1, 1, O::neg_i, O::neg_r, O::move},
    {"case", Rule::choice, 3, kAnyNumber, O::move, O::move, O::move},
};

constexpr Operation kFunctions[] = {
    {"if", Rule::choice, 3, 3, O::move, O::move, O::move},
    {"coalesce", Rule::alike, 2, kAnyNumber, O::coalesce, O::coalesce, O::coalesce},
    {"least", Rule::ordered, 2, kAnyNumber, O::least_i, O::least_r, O::move},
    {"greatest", Rule::ordered, 2, kAnyNumber, O::greatest_i, O::greatest_r, O::move},
    {"clip", Rule::clip, 3, 3, O::move, O::move, O::move},
    {"bucket", Rule::bucket, 2, kAnyNumber, O::bucket_i, O::bucket_r, O::move},
    {"abs", Rule::numbers, 1, 1, O::abs_i, O::abs_r, O::move},
    {"floor", Rule::numbers, 1, 1, O::move, O::floor_r, O::move},
    {"ceil", Rule::numbers, 1, 1, O::move, O::ceil_r, O::move},
    {"round", Rule::numbers, 1, 1, O::move, O::round_r, O::move},
    {"sqrt", Rule::reals, 1, 1, O::move, O::sqrt_r, O::move},
    {"ln", Rule::reals, 1, 1, O::move, O::ln_r, O::move},
    {"log10", Rule::reals, 1, 1, O::move, O::log10_r, O::move},
    {"exp", Rule::reals, 1, 1, O::move, O::exp_r, O::move},
    {"pow", Rule::reals, 2, 2, O::move, O::pow_r, O::move},
    {"year", Rule::date, 1, 1, O::year, O::move, O::move},
    {"month", Rule::date, 1, 1, O::month, O::move, O::move},
    {"day", Rule::date, 1, 1, O::day, O::move, O::move},
    {"hour", Rule::date, 1, 1, O::hour, O::move, O::move},
    {"minute", Rule::date, 1, 1, O::minute, O::move, O::move},
    {"day_of_week", Rule::date, 1, 1, O::day_of_week, O::move, O::move},
    {"day_of_year", Rule::date, 1, 1, O::day_of_year, O::move, O::move},
    {"epoch", Rule::epoch, 1, 1, O::epoch, O::move, O::move},
    {"length", Rule::text, 1, 1, O::move, O::move, O::length},
};

const Operation* find(std::span<const Operation> table, std::string_view name) {
  const auto it = std::find_if(table.begin(), table.end(), [&](const Operation& o) { return o.name == name; });
  return it == table.end() ? nullptr : &*it;
}

}  // namespace

const Operation* find_operator(std::string_view name) { return find(kOperators, name); }
const Operation* find_function(std::string_view name) { return find(kFunctions, name); }

std::vector<std::string_view> function_names() {
  std::vector<std::string_view> out;
  for (const auto& function : kFunctions) out.push_back(function.name);
  return out;
}

}  // namespace falaj::expr
