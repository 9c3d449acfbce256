// SPDX-License-Identifier: Apache-2.0
// Random expressions, written out with as few parentheses as the precedences allow or with more, against a naive
// evaluator that walks the tree they were written from and shares no code with the real one.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "foundation/expr/expression.h"

namespace falaj::expr {
namespace {

using Whole = std::int64_t;
constexpr Whole kLeastWhole = std::numeric_limits<Whole>::min(), kMostWhole = std::numeric_limits<Whole>::max();
constexpr Type kTypes[] = {Type::boolean, Type::int64, Type::float64, Type::text, Type::timestamp};

// Two inputs of each type: type t is at 2t and 2t + 1.
const std::vector<Input>& inputs() {
  static const auto kInputs = [] {
    std::vector<Input> out;
    for (const Type type : kTypes)
      for (const char c : {'a', 'b'}) out.push_back({fmt::format("{}_{}", name(type), c), type});
    return out;
  }();
  return kInputs;
}

// A value of the naive evaluator: `whole` also holds booleans and timestamps.
struct Cell {
  bool null = true;
  Whole whole = 0;
  double real = 0;
  std::string text;
};
Cell of(Whole v) { return {false, v, 0, {}}; }
Cell of(double v) { return {!std::isfinite(v), 0, v, {}}; }
Cell of(std::string v) { return {false, 0, 0, std::move(v)}; }
Cell fitting(__int128 v) { return v < kLeastWhole || v > kMostWhole ? Cell() : of(static_cast<Whole>(v)); }

struct Node {
  Type type = Type::boolean;
  std::string op;  // empty: a leaf
  std::vector<std::unique_ptr<Node>> operands;
  Cell literal;
  std::string spelt;  // a leaf as it is written
  int input = -1;
  bool is_null_literal = false;
};
using Tree = std::unique_ptr<Node>;

template <class... Trees>
Tree make(Type type, std::string op, Trees... operands) {
  auto out = std::make_unique<Node>();
  out->type = type;
  out->op = std::move(op);
  (out->operands.push_back(std::move(operands)), ...);
  return out;
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  Tree any(Type type, int depth) {
    if (depth == 0 || below(8) == 0) return leaf(type);
    if (below(5) == 0) return common(type, depth - 1);
    switch (type) {
      case Type::boolean:
        return boolean(depth - 1);
      case Type::int64:
        return int64(depth - 1);
      case Type::float64:
        return float64(depth - 1);
      case Type::text:
        return common(type, depth - 1);
      case Type::timestamp:
        return below(2) == 0 ? common(type, depth - 1) : extreme(type, depth - 1);
    }
    return leaf(type);
  }
  std::size_t below(std::size_t n) { return random_() % n; }
  Type type() { return kTypes[below(5)]; }

  Whole whole() {
    static constexpr Whole kOdd[] = {0,         1,        -1, 2, 7, 1000, kMostWhole, kLeastWhole, kMostWhole - 1,
                                     1LL << 53, 1LL << 62};
    return below(3) == 0 ? kOdd[below(std::size(kOdd))] : static_cast<Whole>(below(41)) - 20;
  }
  double real() {
    static constexpr double kOdd[] = {0, -0.0, 1, 0.5, -2.5, 1e308, -1e308, 5e-324, 9007199254740993.0, 1e19};
    return below(3) == 0 ? kOdd[below(std::size(kOdd))] : (static_cast<double>(below(4001)) - 2000) / 8;
  }
  std::string text() {
    static constexpr const char* kTexts[] = {"", "a", "LHR", "it's", "\xC3\xA9t\xC3\xA9", "a\nb", "\""};
    return kTexts[below(std::size(kTexts))];
  }

 private:
  Tree number(int depth) { return any(below(2) == 0 ? Type::int64 : Type::float64, depth); }
  Tree null() {
    auto out = std::make_unique<Node>();
    out->is_null_literal = true;
    out->spelt = "null";
    return out;
  }
  // One of the type, of an int64 where it is widened, or null.
  Tree like(Type type, int depth) {
    if (below(12) == 0) return null();
    return type == Type::float64 && below(3) == 0 ? any(Type::int64, depth) : any(type, depth);
  }

  Tree leaf(Type type) {
    auto out = std::make_unique<Node>();
    out->type = type;
    if (type == Type::timestamp || below(2) == 0) {
      const auto t = static_cast<int>(type) - static_cast<int>(Type::boolean);
      out->input = 2 * t + static_cast<int>(below(2));
      out->spelt = inputs()[static_cast<std::size_t>(out->input)].name;
      if (below(8) == 0) out->spelt = '"' + out->spelt + '"';
    } else if (type == Type::boolean) {
      out->literal = of(Whole(below(2)));
      out->spelt = out->literal.whole != 0 ? "true" : "false";
    } else if (type == Type::int64) {
      out->literal = of(whole());
      out->spelt = std::to_string(out->literal.whole);
    } else if (type == Type::float64) {
      out->literal = of(real());
      out->spelt = fmt::format("{}", out->literal.real);
      if (out->spelt.find_first_of(".e") == std::string::npos) out->spelt += below(2) == 0 ? ".0" : "e0";
    } else {
      out->literal = of(text());
      for (const char c : out->literal.text) out->spelt += c == '\'' ? "''" : std::string(1, c);
      out->spelt = '\'' + out->spelt + '\'';
    }
    return out;
  }

  Tree common(Type type, int depth) {
    auto out = make(type, below(3) == 0 ? "coalesce" : below(2) == 0 ? "if" : "case");
    if (out->op == "coalesce") {
      out->operands.push_back(any(type, depth));
      for (auto n = 1 + below(3); n > 0; --n) out->operands.push_back(like(type, depth));
      return out;
    }
    for (auto n = out->op == "if" ? 1 : 1 + below(3); n > 0; --n) {
      out->operands.push_back(any(Type::boolean, depth));
      out->operands.push_back(like(type, depth));
    }
    out->operands.push_back(any(type, depth));
    return out;
  }
  Tree extreme(Type type, int depth) {
    if (below(3) == 0) return make(type, "clip", any(type, depth), like(type, depth), like(type, depth));
    auto out = make(type, below(2) == 0 ? "least" : "greatest", any(type, depth));
    for (auto n = 1 + below(3); n > 0; --n) out->operands.push_back(like(type, depth));
    return out;
  }

  Tree boolean(int depth) {
    static constexpr const char* kOrders[] = {"<", "<=", ">", ">=", "=", "!=", "<>"};
    switch (below(6)) {
      case 0:
        return make(Type::boolean, below(2) == 0 ? "and" : "or", any(Type::boolean, depth), like(Type::boolean, depth));
      case 1:
        return make(Type::boolean, "not", any(Type::boolean, depth));
      case 2:
        return make(Type::boolean, below(2) == 0 ? "is null" : "is not null", any(type(), depth));
      case 3: {
        const Type t = type();
        auto out = make(Type::boolean, below(2) == 0 ? "in" : "not in", any(t, depth));
        for (auto n = 1 + below(4); n > 0; --n) out->operands.push_back(any(t, depth));
        return out;
      }
      case 4: {
        const Type t = below(2) == 0 ? Type::text : Type::boolean;
        return make(Type::boolean, kOrders[4 + below(3)], any(t, depth), any(t, depth));
      }
      default:
        if (below(3) == 0)
          return make(Type::boolean, kOrders[below(7)], any(Type::timestamp, depth), any(Type::timestamp, depth));
        return make(Type::boolean, kOrders[below(7)], number(depth), number(depth));
    }
  }
  Tree int64(int depth) {
    static constexpr const char* kOps[] = {"+", "-", "*", "%"};
    static constexpr const char* kParts[] = {"year", "month", "day", "hour", "minute", "day_of_week", "day_of_year"};
    static constexpr const char* kSame[] = {"unary -", "abs", "floor", "ceil", "round"};
    switch (below(6)) {
      case 0:
        return extreme(Type::int64, depth);
      case 1:
        return make(Type::int64, kParts[below(7)], any(Type::timestamp, depth));
      case 2:
        return make(Type::int64, kSame[below(5)], any(Type::int64, depth));
      case 3:
        return below(2) == 0 ? make(Type::int64, "length", any(Type::text, depth)) : bucket(depth);
      default:
        return make(Type::int64, kOps[below(4)], any(Type::int64, depth), like(Type::int64, depth));
    }
  }
  Tree bucket(int depth) {
    auto out = make(Type::int64, "bucket", number(depth));
    Whole bound = static_cast<Whole>(below(40)) - 20;
    for (auto n = 1 + below(5); n > 0; --n, bound += 1 + static_cast<Whole>(below(9))) {
      auto literal = leaf_of(bound);
      out->operands.push_back(std::move(literal));
    }
    return out;
  }
  Tree leaf_of(Whole v) {
    auto out = std::make_unique<Node>();
    out->type = Type::int64;
    out->literal = of(v);
    out->spelt = std::to_string(v);
    return out;
  }
  Tree float64(int depth) {
    static constexpr const char* kOps[] = {"+", "-", "*", "%"};
    static constexpr const char* kSame[] = {"unary -", "abs", "floor", "ceil", "round"};
    static constexpr const char* kReal[] = {"sqrt", "ln", "log10", "exp"};
    switch (below(8)) {
      case 0:
        return extreme(Type::float64, depth);
      case 1:
        return make(Type::float64, kSame[below(5)], any(Type::float64, depth));
      case 2:
        return make(Type::float64, kReal[below(4)], number(depth));
      case 3:
        return make(Type::float64, "pow", number(depth), number(depth));
      case 4:
        return make(Type::float64, "epoch", any(Type::timestamp, depth));
      case 5:
        return make(Type::float64, "-", any(Type::timestamp, depth), any(Type::timestamp, depth));
      case 6:
        return make(Type::float64, "/", number(depth), number(depth));
      default:
        if (below(2) == 0)
          return make(Type::float64, kOps[below(4)], like(Type::float64, depth), any(Type::float64, depth));
        return make(Type::float64, kOps[below(4)], any(Type::float64, depth), like(Type::float64, depth));
    }
  }

  std::mt19937_64 random_;
};

class Writer {
 public:
  explicit Writer(Generator& random) : random_(random) {}

  std::string write(const Node& node, int floor = 0) {
    const std::string text = written(node);
    return level(node) < floor || random_.below(15) == 0 ? '(' + gap() + text + gap() + ')' : text;
  }

 private:
  enum { kOr = 1, kAnd, kNot, kComparison, kSum, kProduct, kUnary, kPrimary };
  static int level(const Node& node) {
    const auto& op = node.op;
    if (op.empty()) return node.spelt[0] == '-' ? kUnary : kPrimary;
    if (op == "or") return kOr;
    if (op == "and") return kAnd;
    if (op == "not") return kNot;
    if (op == "+" || op == "-") return kSum;
    if (op == "*" || op == "/" || op == "%") return kProduct;
    if (op == "unary -") return kUnary;
    if (op[0] == '<' || op[0] == '>' || op[0] == '=' || op[0] == '!') return kComparison;
    return op.substr(0, 3) == "is " || op == "in" || op == "not in" ? kComparison : kPrimary;
  }
  std::string gap() { return random_.below(4) == 0 ? random_.below(2) == 0 ? "\n" : "  " : ""; }
  std::string word(std::string w) {
    if (random_.below(4) == 0)
      for (char& c : w) c = static_cast<char>(std::toupper(c));
    return ' ' + w + ' ';
  }
  std::string list(const Node& node, std::size_t first) {
    std::string out = "(";
    for (std::size_t n = first; n < node.operands.size(); ++n)
      out += (n == first ? "" : "," + gap()) + write(*node.operands[n]);
    return out + ')';
  }

  std::string written(const Node& node) {
    const auto& op = node.op;
    const auto at = [&](std::size_t n, int floor) { return write(*node.operands[n], floor); };
    if (op.empty()) return node.spelt;
    const int mine = level(node);
    if (op == "unary -") return "- " + at(0, kUnary);
    if (op == "not") return word(op) + at(0, kNot);
    if (op.substr(0, 3) == "is ") return at(0, kSum) + word(op);
    if (op == "in" || op == "not in") return at(0, kSum) + word(op) + list(node, 1);
    if (op == "case") {
      std::string out = word("case");
      std::size_t n = 0;
      for (; n + 1 < node.operands.size(); n += 2) out += word("when") + at(n, 0) + word("then") + at(n + 1, 0);
      return out + word("else") + at(n, 0) + word("end");
    }
    if (mine == kPrimary) return word(op) + gap() + list(node, 0);
    const int left = mine == kComparison ? kSum : mine;
    return at(0, left) + (mine == kOr || mine == kAnd ? word(op) : gap() + op + gap()) + at(1, mine + 1);
  }

  Generator& random_;
};

class Naive {
 public:
  explicit Naive(const std::vector<Cell>& row) : row_(row) {}

  Cell eval(const Node& node) const {
    const auto& op = node.op;
    if (node.is_null_literal) return {};
    if (op.empty()) return node.input >= 0 ? row_[static_cast<std::size_t>(node.input)] : node.literal;
    if (op == "case" || op == "if") {
      std::size_t n = 0;
      while (n + 1 < node.operands.size() && !is_true(eval(*node.operands[n]))) n += 2;
      return as(n + 1 < node.operands.size() ? n + 1 : n, node, node.type);
    }
    if (op == "coalesce" || op == "least" || op == "greatest") return best_of(node);
    if (op == "and" || op == "or") return logic(node);
    if (op == "not") return negated(eval(*node.operands[0]));
    if (op == "is null") return of(Whole(eval(*node.operands[0]).null));
    if (op == "is not null") return of(Whole(!eval(*node.operands[0]).null));
    if (op == "in" || op == "not in") return membership(node);
    // Everything else is null when an operand is.
    std::vector<Cell> v;
    const Type type = widest(node);
    for (std::size_t n = 0; n < node.operands.size(); ++n) v.push_back(as(n, node, type));
    for (const auto& cell : v)
      if (cell.null) return {};
    if (is_comparison(op)) return of(Whole(holds(op, type, v[0], v[1])));
    if (op == "clip") {
      const Cell& raised = smaller(type, v[0], v[1]) ? v[1] : v[0];
      return smaller(type, v[2], raised) ? v[2] : raised;
    }
    if (op == "bucket") {
      Whole count = 0;
      for (std::size_t n = 1; n < v.size(); ++n) count += smaller(type, v[0], v[n]) ? 0 : 1;
      return of(count);
    }
    if (type == Type::timestamp) return time(op, v);
    if (type == Type::text) return of(length(v[0].text));
    return node.type == Type::float64 ? real(op, v) : whole(op, v);
  }

 private:
  static bool is_true(const Cell& c) { return !c.null && c.whole != 0; }
  static bool is_false(const Cell& c) { return !c.null && c.whole == 0; }
  static Cell negated(const Cell& c) { return c.null ? c : of(Whole(c.whole == 0)); }
  static bool is_comparison(const std::string& op) { return std::string_view("<>=!").find(op[0]) != std::string::npos; }

  // Operand n, widened.
  Cell as(std::size_t n, const Node& node, Type type) const {
    Cell out = eval(*node.operands[n]);
    if (!out.null && type == Type::float64 && node.operands[n]->type == Type::int64)
      out = of(static_cast<double>(out.whole));
    return out;
  }
  // What the operands are computed in.
  static Type widest(const Node& node) {
    const auto& op = node.op;
    if (op == "/" || op == "sqrt" || op == "ln" || op == "log10" || op == "exp" || op == "pow") return Type::float64;
    Type out = Type::int64;
    for (const auto& operand : node.operands) {
      if (operand->is_null_literal) continue;
      if (operand->type != Type::int64) out = operand->type;
    }
    return out;
  }
  static bool smaller(Type type, const Cell& a, const Cell& b) {
    return type == Type::float64 ? a.real < b.real : a.whole < b.whole;
  }
  static bool same(Type type, const Cell& a, const Cell& b) {
    return type == Type::text ? a.text == b.text : type == Type::float64 ? a.real == b.real : a.whole == b.whole;
  }
  static bool holds(const std::string& op, Type type, const Cell& a, const Cell& b) {
    if (op == "=") return same(type, a, b);
    if (op == "!=" || op == "<>") return !same(type, a, b);
    if (op == "<") return smaller(type, a, b);
    if (op == ">") return smaller(type, b, a);
    return same(type, a, b) || (op == "<=" ? smaller(type, a, b) : smaller(type, b, a));
  }

  Cell best_of(const Node& node) const {
    Cell best;
    for (std::size_t n = 0; n < node.operands.size(); ++n) {
      const Cell next = as(n, node, node.type);
      if (next.null) continue;
      if (best.null || (node.op == "least" && smaller(node.type, next, best)) ||
          (node.op == "greatest" && smaller(node.type, best, next)))
        best = next;
    }
    return best;
  }
  Cell logic(const Node& node) const {
    const Cell a = eval(*node.operands[0]), b = eval(*node.operands[1]);
    const bool decides = node.op == "and" ? is_false(a) || is_false(b) : is_true(a) || is_true(b);
    if (decides) return of(Whole(node.op == "or"));
    return a.null || b.null ? Cell() : of(Whole(node.op == "and"));
  }
  Cell membership(const Node& node) const {
    const Type type = widest(node);
    const Cell x = as(0, node, type);
    bool found = false, unknown = x.null;
    for (std::size_t n = 1; n < node.operands.size(); ++n) {
      const Cell item = as(n, node, type);
      unknown = unknown || item.null;
      found = found || (!x.null && !item.null && same(type, x, item));
    }
    const Cell out = found ? of(Whole(1)) : unknown ? Cell() : of(Whole(0));
    return node.op == "in" ? out : negated(out);
  }
  static Cell whole(const std::string& op, const std::vector<Cell>& v) {
    const __int128 a = v[0].whole, b = v.size() > 1 ? v[1].whole : 0;
    if (op == "+") return fitting(a + b);
    if (op == "-") return fitting(a - b);
    if (op == "*") return fitting(a * b);
    if (op == "%") return b == 0 ? Cell() : fitting(a % b);
    if (op == "unary -") return fitting(-a);
    if (op == "abs") return fitting(a < 0 ? -a : a);
    return v[0];  // floor, ceil, round
  }
  static Cell real(const std::string& op, const std::vector<Cell>& v) {
    const double a = v[0].real, b = v.size() > 1 ? v[1].real : 0;
    if (op == "+") return of(a + b);
    if (op == "-") return of(a - b);
    if (op == "*") return of(a * b);
    if (op == "/") return b == 0 ? Cell() : of(a / b);
    if (op == "%") return b == 0 ? Cell() : of(std::fmod(a, b));
    if (op == "unary -") return of(-a);
    if (op == "abs") return of(a < 0 ? -a : a);
    if (op == "floor") return of(std::floor(a));
    if (op == "ceil") return of(std::ceil(a));
    if (op == "round")
      return of(std::trunc(a) == a || std::fabs(a - std::trunc(a)) < 0.5 ? std::trunc(a)
                                                                         : std::trunc(a) + (a < 0 ? -1 : 1));
    if (op == "sqrt") return a < 0 ? Cell() : of(std::sqrt(a));
    if (op == "ln") return a <= 0 ? Cell() : of(std::log(a));
    if (op == "log10") return a <= 0 ? Cell() : of(std::log10(a));
    if (op == "exp") return of(std::exp(a));
    return of(std::pow(a, b));
  }
  static Cell time(const std::string& op, const std::vector<Cell>& v) {
    const Whole us = v[0].whole;
    if (op == "epoch") return of(static_cast<double>(us) / 1e6);
    if (op == "-") {
      const Cell gap = fitting(static_cast<__int128>(us) - v[1].whole);
      return gap.null ? gap : of(static_cast<double>(gap.whole) / 1e6);
    }
    const std::time_t seconds = us / 1'000'000 - (us % 1'000'000 < 0 ? 1 : 0);
    std::tm t{};
    gmtime_r(&seconds, &t);
    if (op == "year") return of(Whole(t.tm_year) + 1900);
    if (op == "month") return of(Whole(t.tm_mon + 1));
    if (op == "day") return of(Whole(t.tm_mday));
    if (op == "hour") return of(Whole(t.tm_hour));
    if (op == "minute") return of(Whole(t.tm_min));
    if (op == "day_of_week") return of(Whole(t.tm_wday == 0 ? 7 : t.tm_wday));
    return of(Whole(t.tm_yday + 1));
  }
  static Whole length(const std::string& text) {
    Whole out = 0;
    for (std::size_t n = 0; n < text.size(); ++out) {
      const auto c = static_cast<unsigned char>(text[n]);
      n += c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    }
    return out;
  }

  const std::vector<Cell>& row_;
};

std::vector<Cell> random_row(Generator& random) {
  std::vector<Cell> out;
  for (const Type type : kTypes)
    for (int n = 0; n < 2; ++n) {
      if (random.below(5) == 0)
        out.push_back({});
      else if (type == Type::float64)
        out.push_back(of(random.real()));
      else if (type == Type::text)
        out.push_back(of(random.text()));
      else if (type == Type::timestamp)
        out.push_back(of(random.below(4) == 0 ? random.whole() : random.whole() % 1'000'000 * 86'399'999'999));
      else
        out.push_back(of(type == Type::boolean ? Whole(random.below(2)) : random.whole()));
    }
  return out;
}

Value value(const Cell& cell, Type type) {
  if (cell.null) return {};
  switch (type) {
    case Type::boolean:
      return Value::boolean(cell.whole != 0);
    case Type::int64:
      return Value::int64(cell.whole);
    case Type::float64:
      return Value::float64(cell.real);
    case Type::text:
      return Value::text(cell.text);
    case Type::timestamp:
      return Value::timestamp(cell.whole);
  }
  return {};
}

std::string shown(const Cell& cell) {
  return cell.null ? "null" : fmt::format("{}|{}|{}", cell.whole, cell.real, cell.text);
}

std::string shown(const std::vector<Cell>& cells) {
  std::string out;
  for (const auto& cell : cells) out += shown(cell) + "  ";
  return out;
}

TEST(ExpressionProperty, RandomTreesAgreeWithTheNaiveEvaluator) {
  const auto& names = inputs();
  std::size_t evaluated = 0, not_null = 0, too_long = 0;
  for (std::uint64_t seed = 1; seed <= 5'000; ++seed) {
    Generator random(seed);
    const Tree tree = random.any(random.type(), 1 + static_cast<int>(random.below(5)));
    const std::string text = Writer(random).write(*tree);
    if (text.size() > kTextMax) {
      ++too_long;
      continue;
    }
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, text));
    try {
      const auto expression = Expression::compile(text, names);
      ASSERT_EQ(name(expression.type()), name(tree->type));
      for (int row = 0; row < 5; ++row) {
        const auto cells = random_row(random);
        std::vector<Value> values;
        for (std::size_t n = 0; n < cells.size(); ++n) values.push_back(value(cells[n], names[n].type));
        const Cell wanted = Naive(cells).eval(*tree);
        ASSERT_TRUE(expression.evaluate(values) == value(wanted, tree->type))
            << "wanted " << shown(wanted) << " of " << shown(cells);
        ++evaluated;
        not_null += wanted.null ? 0 : 1;
      }
    } catch (const Error& error) {
      FAIL() << error.what();
    }
  }
  // Or the test has become empty.
  EXPECT_GT(evaluated, 23'000U);
  EXPECT_GT(not_null, evaluated / 2);
  EXPECT_LT(too_long, 250U);
}

}  // namespace
}  // namespace falaj::expr
