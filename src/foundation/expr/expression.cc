// SPDX-License-Identifier: Apache-2.0
#include "foundation/expr/expression.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/expr/program.h"
#include "foundation/expr/syntax.h"

namespace falaj::expr {
namespace {

// Turns a checked tree into instructions. Registers are a stack: whatever emits is told the lowest that is free and
// uses none below. Recursion is as deep as the nesting times the few precedences of operators.
class Emitter {
 public:
  Emitter(const Tree& tree, Program& program) : tree_(tree), program_(program) {}

  void run() { program_.result = emit(tree_.nodes.size() - 1, 0); }

 private:
  static bool is_constant(Ref ref) { return ref.place() == Ref::constants; }
  static bool is_register(Ref ref, std::size_t n) { return ref.place() == Ref::registers && ref.index() == n; }
  static std::size_t free_above(Ref ref, std::size_t free) {
    return ref.place() == Ref::registers ? std::max(free, ref.index() + 1) : free;
  }
  static Opcode code_for(const Operation& operation, std::optional<Type> over) {
    if (operation.rule == Rule::difference && over == Type::timestamp) return Opcode::seconds;
    return over == Type::float64 ? operation.real : over == Type::text ? operation.text : operation.whole;
  }

  Ref constant(Value value) {
    program_.constants.push_back(value);
    return {Ref::constants, program_.constants.size() - 1};
  }

  std::size_t append(Opcode code, std::size_t out, Ref a, Ref b) {
    if (program_.code.size() == kOperationsMax)
      throw Error(Code::invalid, fmt::format("expression: takes more than {} operations", kOperationsMax));
    if (out >= Program::kRegistersMax) throw Error(Code::invalid, "expression: nested too deeply");
    program_.code.push_back({code, static_cast<std::uint16_t>(out), a, b});
    return program_.code.size() - 1;
  }
  // What is known now is computed now.
  Ref issue(Opcode code, std::size_t out, Ref a, Ref b) {
    if (is_constant(a) && is_constant(b))
      return constant(compute(code, program_.constants[a.index()], program_.constants[b.index()]));
    append(code, out, a, b);
    return {Ref::registers, out};
  }
  Ref widen(Ref ref, std::optional<Type> from, std::optional<Type> to, std::size_t free) {
    return from == Type::int64 && to == Type::float64 ? issue(Opcode::to_real, free, ref, ref) : ref;
  }
  Ref emit_as(std::size_t n, std::optional<Type> type, std::size_t free) {
    return widen(emit(n, free), tree_.nodes[n].type, type, free);
  }

  Ref emit(std::size_t n, std::size_t free) {
    // Chains like a + b - c lean to the left and are as long as the text: walked down and up, not recursed into.
    std::vector<const Node*> chain;
    while (tree_.nodes[n].type && folds(tree_.nodes[n])) {
      chain.push_back(&tree_.nodes[n]);
      n = tree_.nodes[n].operands[0];
    }
    Ref out = emit_whole(tree_.nodes[n], free);
    for (auto it = chain.rbegin(); it != chain.rend(); ++it) out = fold(**it, out, free);
    return out;
  }

  // Whether it is its first operand, joined with one after the other.
  static bool folds(const Node& node) {
    return node.operation != nullptr && node.operation->rule != Rule::choice &&
           node.operation->rule != Rule::membership && node.operation->rule != Rule::bucket;
  }
  Ref fold(const Node& node, Ref out, std::size_t free) {
    const Opcode code = code_for(*node.operation, node.over);
    out = widen(out, tree_.nodes[node.operands[0]].type, node.over, free);
    if (node.operands.size() == 1) return code == Opcode::move ? out : issue(code, free, out, out);
    for (std::size_t n = 1; n < node.operands.size(); ++n) {
      const Ref next = emit_as(node.operands[n], node.over, free_above(out, free));
      out = issue(node.operation->rule == Rule::clip ? code_for_clip(n, node.over) : code, free, out, next);
    }
    return out;
  }
  static Opcode code_for_clip(std::size_t n, std::optional<Type> over) {
    const bool real = over == Type::float64;
    if (n == 1) return real ? Opcode::max_r : Opcode::max_i;
    return real ? Opcode::min_r : Opcode::min_i;
  }

  Ref emit_whole(const Node& node, std::size_t free) {
    if (node.input) return {Ref::inputs, *node.input};
    if (node.operation == nullptr || !node.type) return constant(node.literal);  // null where there is no type
    switch (node.operation->rule) {
      case Rule::choice:
        return choice(node, free);
      case Rule::membership:
        return membership(node, free);
      default:
        return bucket(node, free);
    }
  }

  Ref choice(const Node& node, std::size_t free) {
    const Ref out(Ref::registers, free);
    const auto into_out = [&](std::size_t n) {
      const Ref result = emit_as(n, node.over, free);
      if (!is_register(result, free)) append(Opcode::move, free, result, result);
    };
    std::vector<std::size_t> to_end;
    std::size_t n = 0;
    for (; n + 1 < node.operands.size(); n += 2) {
      const Ref condition = emit(node.operands[n], free);
      const auto skip = append(Opcode::jump_unless, 0, condition, condition);
      into_out(node.operands[n + 1]);
      to_end.push_back(append(Opcode::jump, 0, out, out));
      land(skip);
    }
    into_out(node.operands[n]);
    for (const auto jump : to_end) land(jump);
    return out;
  }
  void land(std::size_t jump) { program_.code[jump].out = static_cast<std::uint16_t>(program_.code.size()); }

  Ref membership(const Node& node, std::size_t free) {
    const Ref x = emit_as(node.operands[0], node.over, free);
    const std::size_t out = free_above(x, free);
    Opcode code = code_for(*find_operator("="), node.over);
    for (std::size_t n = 1; n < node.operands.size(); ++n) {
      append(code, out, x, emit_as(node.operands[n], node.over, n == 1 ? out : out + 1));
      code = code_for(*node.operation, node.over);  // from the second on: or it is this one
    }
    return {Ref::registers, out};
  }

  Ref bucket(const Node& node, std::size_t free) {
    const Ref x = emit_as(node.operands[0], node.over, free);
    std::vector<Value> bounds;
    for (std::size_t n = 1; n < node.operands.size(); ++n) {
      const auto& literal = tree_.nodes[node.operands[n]].literal;
      const bool widens = node.over == Type::float64 && literal.is(Type::int64);
      bounds.push_back(widens ? compute(Opcode::to_real, literal, literal) : literal);
    }
    const Ref count = constant(Value::int64(static_cast<std::int64_t>(bounds.size())));
    for (const auto& bound : bounds) constant(bound);
    return issue(code_for(*node.operation, node.over), free, x, count);
  }

  const Tree& tree_;
  Program& program_;
};

}  // namespace

Expression Expression::compile(std::string_view text, std::span<const Input> inputs) {
  Tree tree = parse(text, inputs);
  check(text, tree);
  const auto& root = tree.nodes.back();
  if (!root.type) throw Error(Code::invalid, "expression: is always null, so it has no type");

  auto program = std::make_shared<Program>();
  program->text = text;
  program->type = *root.type;
  program->inputs = inputs.size();
  Emitter(tree, *program).run();
  program->literals = std::move(tree.literals);  // a deque's elements stay where they are
  for (const auto& node : tree.nodes)
    if (node.input) program->used.push_back({*node.input, inputs[*node.input].type});
  auto& used = program->used;
  std::sort(used.begin(), used.end(), [](const auto& a, const auto& b) { return a.input < b.input; });
  used.erase(std::unique(used.begin(), used.end(), [](const auto& a, const auto& b) { return a.input == b.input; }),
             used.end());
  return Expression(std::move(program));
}

Value Expression::evaluate(std::span<const Value> inputs) const noexcept { return program_->run(inputs); }
Type Expression::type() const { return program_->type; }
const std::string& Expression::text() const { return program_->text; }

std::vector<std::size_t> Expression::inputs_used() const {
  std::vector<std::size_t> out;
  for (const auto& use : program_->used) out.push_back(use.input);
  return out;
}

}  // namespace falaj::expr
