// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an expression is compiled to. Private to this directory.

#include <deque>
#include <string>
#include <vector>

#include "foundation/expr/expression.h"

namespace falaj::expr {

// _i takes booleans, int64 and timestamps, which are all whole numbers inside; _r float64; _s text. Unless it says
// otherwise, an instruction gives null when one of its operands is.
enum class Opcode : std::uint8_t {
  jump,         // to instruction `out`
  jump_unless,  // a is true: to instruction `out`; the last jump
  move,
  to_real,  // int64 to float64
  add_i,
  add_r,
  sub_i,
  sub_r,
  seconds,  // between timestamps
  mul_i,
  mul_r,
  div_r,
  mod_i,
  mod_r,
  neg_i,
  neg_r,
  abs_i,
  abs_r,
  floor_r,
  ceil_r,
  round_r,
  sqrt_r,
  ln_r,
  log10_r,
  exp_r,
  pow_r,
  eq_i,
  eq_r,
  eq_s,
  ne_i,
  ne_r,
  ne_s,
  lt_i,
  lt_r,
  le_i,
  le_r,
  gt_i,
  gt_r,
  ge_i,
  ge_r,
  both,     // three-valued and
  either,   // three-valued or
  negated,  // three-valued not
  is_null,  // never null
  in_i,     // out = out or a = b
  in_r,
  in_s,
  least_i,  // least and greatest leave nulls out
  least_r,
  greatest_i,
  greatest_r,
  min_i,  // min and max do not
  min_r,
  max_i,
  max_r,
  coalesce,  // a, or b when a is null
  bucket_i,  // b is a constant: how many bounds follow it, ascending
  bucket_r,
  year,
  month,
  day,
  hour,
  minute,
  day_of_week,
  day_of_year,
  epoch,
  length,
};

// An operand: a register, a constant or an input.
class Ref {
 public:
  enum Place : std::uint16_t { registers, constants, inputs };
  Ref() = default;
  Ref(Place place, std::size_t index) : bits_(static_cast<std::uint16_t>(place << kIndexBits | index)) {
    CHECK(index <= kIndexMask, "an operand is within reach");
  }
  std::size_t place() const { return bits_ >> kIndexBits; }
  std::size_t index() const { return bits_ & kIndexMask; }

 private:
  static constexpr unsigned kIndexBits = 14, kIndexMask = (1U << kIndexBits) - 1;
  std::uint16_t bits_ = 0;
};

struct Instruction {
  Opcode code = Opcode::move;
  std::uint16_t out = 0;  // a register, or where to jump
  Ref a, b;               // b is a copy of a where there is one operand
};

// What an instruction that is no jump makes of constants.
Value compute(Opcode code, const Value& a, const Value& b);

struct Program {
  // At each level of nesting six values at most wait for others: one at each precedence, and one in a list.
  static constexpr std::size_t kRegistersMax = 512;

  struct Use {
    std::size_t input;
    Type type;
  };

  Program() = default;
  Program(const Program&) = delete;  // constants point into literals
  Program& operator=(const Program&) = delete;

  std::string text;
  std::deque<std::string> literals;
  std::vector<Value> constants;
  std::vector<Instruction> code;
  Ref result;
  Type type = Type::boolean;
  std::vector<Use> used;  // ascending
  std::size_t inputs = 0;

  Value run(std::span<const Value> values) const noexcept;
};

}  // namespace falaj::expr
