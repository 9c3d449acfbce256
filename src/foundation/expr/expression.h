// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small typed expressions over named inputs: features computed at the moment of a request, conditions. The same code
// answers one request and makes millions of training rows, so that the two cannot disagree. docs/guide/expressions.md
// has the language. Nothing here loops, calls out, allocates while evaluating or takes long: every limit is below.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/expr/value.h"

namespace falaj::expr {

inline constexpr std::size_t kTextMax = 4'000;  // bytes
inline constexpr std::size_t kNestingMax = 64;
inline constexpr std::size_t kOperationsMax = 1'000;
inline constexpr std::size_t kInputsMax = 4'096;

struct Input {
  std::string name;
  Type type = Type::float64;
};

struct Program;

// Immutable, so any number of threads may evaluate it. Copies share what was compiled.
class Expression {
 public:
  // Throws invalid: the place, what was found there and what was expected, or the nearest name there is.
  static Expression compile(std::string_view text, std::span<const Input> inputs);

  // Null, or a value of type(). Requires: as many values as there were inputs, each null or of its input's type; those
  // not used are not looked at. A text that comes back lies in an input or in this expression.
  Value evaluate(std::span<const Value> inputs) const noexcept;

  Type type() const;
  std::vector<std::size_t> inputs_used() const;  // ascending; what a caller has to fetch
  const std::string& text() const;               // as it was compiled

 private:
  explicit Expression(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace falaj::expr
