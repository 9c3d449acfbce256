// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "foundation/expr/syntax.h"

namespace falaj::expr {
namespace {

using Maybe = std::optional<Type>;  // nothing: null, which goes with every type

bool is_number(Maybe type) { return !type || type == Type::int64 || type == Type::float64; }
bool is_ordered(Maybe type) { return is_number(type) || type == Type::timestamp; }
std::string_view shown(Maybe type) { return type ? name(*type) : "null"; }

class Checker {
 public:
  Checker(std::string_view text, Tree& tree) : text_(text), tree_(tree) {}

  void run() {
    for (auto& node : tree_.nodes)
      if (node.operation != nullptr) apply(node);
  }

 private:
  const Node& operand(const Node& node, std::size_t n) const { return tree_.nodes[node.operands[n]]; }

  [[noreturn]] void wrong(const Node& node, std::string_view takes) const {
    std::string found;
    for (std::size_t n = 0; n < node.operands.size() && n < 5; ++n)
      found += fmt::format("{}{}", n == 0 ? "" : ", ", shown(operand(node, n).type));
    auto name = std::string(node.operation->name);
    if (name == "unary -") name = "-";
    if (name.front() < 'a') name = '\'' + name + '\'';
    refuse(text_, node.at,
           fmt::format("{} takes {}, found {}{}", name, takes, found, node.operands.size() > 5 ? ", ..." : ""));
  }

  // The type that every operand can be widened to.
  Maybe one_type(const Node& node, std::string_view takes) const {
    Maybe out;
    for (const auto n : node.operands) {
      const Maybe type = tree_.nodes[n].type;
      if (!type || type == out) continue;
      if (out && !(is_number(out) && is_number(type))) wrong(node, takes);
      out = out ? Type::float64 : type;
    }
    return out;
  }
  template <class Allowed>
  Maybe one_type_of(const Node& node, Allowed allowed, std::string_view takes) const {
    for (const auto n : node.operands)
      if (!allowed(tree_.nodes[n].type)) wrong(node, takes);
    return one_type(node, takes);
  }
  Maybe only(const Node& node, Type type, std::string_view takes) const {
    one_type_of(
        node, [&](Maybe t) { return !t || t == type; }, takes);
    return type;
  }

  void refuse_null(const Node& node) const {
    for (const auto n : node.operands)
      if (!tree_.nodes[n].type)
        refuse(text_, node.at,
               fmt::format("comparing with null by '{}' is never true, expected 'is null'", node.operation->name));
  }

  void apply(Node& node) const {
    constexpr std::string_view kOrdered = "numbers or timestamps of one type", kAlike = "values of one type";
    switch (node.operation->rule) {
      case Rule::numbers:
        node.over = node.type = one_type_of(node, is_number, "numbers");
        break;
      case Rule::difference:
        node.over = node.type = one_type_of(node, is_ordered, "two numbers or two timestamps");
        if (node.over == Type::timestamp) node.type = Type::float64;
        break;
      case Rule::reals:
        one_type_of(node, is_number, "numbers");
        node.over = node.type = Type::float64;
        break;
      case Rule::ordered:
      case Rule::clip:
        node.over = node.type = one_type_of(node, is_ordered, kOrdered);
        break;
      case Rule::alike:
        node.over = node.type = one_type(node, kAlike);
        break;
      case Rule::equality:
      case Rule::membership:
        refuse_null(node);
        node.over = one_type(node, kAlike);
        node.type = Type::boolean;
        break;
      case Rule::order:
        refuse_null(node);
        node.over = one_type_of(node, is_ordered, kOrdered);
        node.type = Type::boolean;
        break;
      case Rule::logic:
        node.over = node.type = only(node, Type::boolean, "booleans");
        break;
      case Rule::presence:
        node.over = operand(node, 0).type, node.type = Type::boolean;
        break;
      case Rule::choice:
        choice(node);
        break;
      case Rule::bucket:
        bucket(node);
        break;
      case Rule::date:
        node.over = only(node, Type::timestamp, "a timestamp"), node.type = Type::int64;
        break;
      case Rule::epoch:
        node.over = only(node, Type::timestamp, "a timestamp"), node.type = Type::float64;
        break;
      case Rule::text:
        node.over = only(node, Type::text, "a text"), node.type = Type::int64;
        break;
    }
  }

  void choice(Node& node) const {
    const std::size_t last = node.operands.size() - 1;
    for (std::size_t n = 0; n < last; n += 2) {
      const auto& condition = operand(node, n);
      if (condition.type && condition.type != Type::boolean)
        refuse(text_, condition.at,
               fmt::format("the condition of {} is a boolean, found {}", node.operation->name, shown(condition.type)));
    }
    // Results stand at 1, 3, 5, ... and at the end, which is even.
    Maybe out = operand(node, last).type;
    for (std::size_t n = 1; n < last; n += 2) {
      const auto& result = operand(node, n);
      if (!result.type || result.type == out) continue;
      if (out && !(is_number(out) && is_number(result.type)))
        refuse(text_, result.at,
               fmt::format("the results of {} are of one type, found {} and {}", node.operation->name,
                           shown(result.type), shown(out)));
      out = out ? Type::float64 : result.type;
    }
    node.over = node.type = out;
  }

  void bucket(Node& node) const {
    node.over = one_type_of(node, is_number, "numbers");
    node.type = Type::int64;
    const Value* before = nullptr;
    for (std::size_t n = 1; n < node.operands.size(); ++n) {
      const auto& bound = operand(node, n);
      if (bound.operation != nullptr || bound.input || bound.literal.is_null())
        refuse(text_, bound.at, "a bound of bucket is a number written out");
      if (before != nullptr && !ascends(*before, bound.literal, node.over))
        refuse(text_, bound.at, "the bounds of bucket ascend, found one that is not above the one before");
      before = &bound.literal;
    }
  }

  static bool ascends(const Value& a, const Value& b, Maybe over) {
    const auto real = [](const Value& v) {
      return v.is(Type::int64) ? static_cast<double>(v.as_int64()) : v.as_float64();
    };
    return over == Type::int64 ? a.as_int64() < b.as_int64() : real(a) < real(b);
  }

  const std::string_view text_;
  Tree& tree_;
};

}  // namespace

std::string_view name(Type type) {
  switch (type) {
    case Type::boolean:
      return "boolean";
    case Type::int64:
      return "int64";
    case Type::float64:
      return "float64";
    case Type::text:
      return "text";
    case Type::timestamp:
      return "timestamp";
  }
  return "unknown";
}

void check(std::string_view text, Tree& tree) { Checker(text, tree).run(); }

}  // namespace falaj::expr
