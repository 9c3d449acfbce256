// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace falaj::track {

// The language in which MLflow's clients search: comparisons joined by AND, and what to order by.
//
//   filter     = [comparison {AND comparison}]                               keywords in any case
//   comparison = ident op value | ident [NOT] IN (text, ...) | ident IS [NOT] NULL
//   ident      = [entity.]key       no entity: an attribute; the first dot divides, so a bare key may have more of them
//   key        = bare (letters, digits, _ and .) | `quoted` | "quoted" | 'quoted' (the last not for an attribute alone)
//   value      = number | 'text' | "text"       inside quotes, the quote doubled stands for itself, and nothing else
//   does
//
// Everything that the reference means to accept is accepted, and read as it reads it. What it accepts by accident (a
// missing or dangling AND, a key of spaces) is refused; what it refuses by accident (-1.5e+3, a key named `from`,
// blanks around) is accepted.
enum class Entity { attribute, metric, param, tag, dataset };
enum class Op { eq, ne, lt, le, gt, ge, like, ilike, in, not_in, is_null, is_not_null };

std::string_view name(Entity entity);  // "metrics", as filters spell it best
std::string_view name(Op op);          // "NOT IN"

// Metrics and attributes that are times or counts have a number, in and not_in a list, is_null and is_not_null nothing,
// all others a text. An attribute's key is its canonical name ("start_time" for "created").
struct Comparison {
  Entity entity = Entity::attribute;
  std::string key;
  Op op = Op::eq;
  double number = 0;
  std::string text;
  std::vector<std::string> list;
  friend bool operator==(const Comparison&, const Comparison&) = default;
};

struct Order {
  Entity entity = Entity::attribute;
  std::string key;
  bool ascending = true;
  friend bool operator==(const Order&, const Order&) = default;
};

// What may be asked of one kind of thing: which attributes, of what type, with which operators, and what orders it.
struct Grammar;
extern const Grammar kRunGrammar, kExperimentGrammar, kRegisteredModelGrammar, kModelVersionGrammar,
    kLoggedModelGrammar;

inline constexpr std::size_t kFilterBytesMax = 64 * 1024;
inline constexpr std::size_t kFilterComparisonsMax = 100;
inline constexpr std::size_t kFilterListMax = 1000;
inline constexpr std::size_t kOrdersMax = 100;

// Each throws invalid, saying where, what was found there and what is allowed.
std::vector<Comparison> parse_filter(std::string_view text, const Grammar& grammar);
// Each item is "ident [ASC|DESC]"; nothing may be named twice.
std::vector<Order> parse_order_by(std::span<const std::string> items, const Grammar& grammar);
// For callers that send the field and the direction apart: all after "metrics." is the key, without quotes.
Order order_by_field(std::string_view field, bool ascending, const Grammar& grammar);

// SQL's LIKE without an escape: % is any run of characters, _ one UTF-8 character. Folding is that of ASCII. At most
// the product of both lengths in time.
bool like(std::string_view pattern, std::string_view text, bool fold_case);

// Of a value that is there; one that is missing matches is_null and nothing else. A NaN is unequal to every number and
// neither above nor below one. Requires: the value is of the type of the comparison's key.
bool matches(const Comparison& comparison, std::string_view value);
bool matches(const Comparison& comparison, double value);

}  // namespace falaj::track
