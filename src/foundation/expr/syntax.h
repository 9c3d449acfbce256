// SPDX-License-Identifier: Apache-2.0
#pragma once

// From text to a tree, and the types of the tree. Private to this directory.

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "foundation/expr/program.h"

namespace falaj::expr {

// What an operation takes and gives. "One type" means that all are the same, where int64 widens to float64.
enum class Rule : std::uint8_t {
  numbers,     // numbers of one type, gives that type
  difference,  // the same, or two timestamps, which gives float64
  reals,       // numbers as float64, gives float64
  ordered,     // numbers or timestamps of one type, gives that type
  alike,       // anything of one type, gives that type
  equality,    // anything of one type, gives boolean
  membership,
  order,  // numbers or timestamps of one type, gives boolean
  logic,
  presence,  // anything, gives boolean
  choice,    // condition, result, condition, result ..., result otherwise
  clip,
  bucket,
  date,   // timestamp, gives int64
  epoch,  // timestamp, gives float64
  text,   // text, gives int64
};

struct Operation {
  std::string_view name;
  Rule rule;
  std::size_t least, most;  // operands
  Opcode whole, real, text;
};
inline constexpr std::size_t kAnyNumber = kTextMax;

// Operators and functions alike; null when there is none of that name, which is in lower case.
const Operation* find_operator(std::string_view name);
const Operation* find_function(std::string_view name);
std::vector<std::string_view> function_names();

struct Node {
  std::size_t at = 0;                    // in the text, for messages
  const Operation* operation = nullptr;  // or else a leaf:
  std::optional<std::size_t> input;      // an input, or
  Value literal;                         // a constant
  std::vector<std::size_t> operands;     // nodes, all before this one
  std::optional<Type> type;              // nothing where it is the literal null, or made of nothing else
  std::optional<Type> over;              // the one type its operands are widened to; set with type by check()
};

struct Tree {
  std::vector<Node> nodes;           // the last is the root
  std::deque<std::string> literals;  // what text literals point into
};

Tree parse(std::string_view text, std::span<const Input> inputs);  // throws invalid

// Finds the types of operations, the operands before what they are operands of. Throws invalid.
void check(std::string_view text, Tree& tree);

// Throws invalid, naming the place as a person counts.
[[noreturn]] void refuse(std::string_view text, std::size_t at, const std::string& what);

}  // namespace falaj::expr
