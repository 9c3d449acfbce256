// SPDX-License-Identifier: Apache-2.0
#include "foundation/expr/syntax.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include <fmt/format.h>

#include "foundation/base/text.h"

namespace falaj::expr {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

struct Token {
  enum Kind { end, number, text, name, quoted_name, symbol };
  Kind kind = end;
  std::size_t at = 0;
  std::string_view source;  // as it stands
  std::string word;         // symbol; name in lower case; content of what is quoted
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    Token token{Token::end, at_, {}, {}};
    if (at_ == text_.size()) return token;
    const char c = text_[at_];
    if (is_digit(c)) {
      token.kind = Token::number;
      skip_number();
    } else if (is_name_start(c)) {
      token.kind = Token::name;
      while (is_name_start(peek()) || is_digit(peek())) ++at_;
      token.word = lower(text_.substr(token.at, at_ - token.at));
    } else if (c == '\'' || c == '"') {
      token.kind = c == '"' ? Token::quoted_name : Token::text;
      token.word = quoted(c);
    } else {
      token.kind = Token::symbol;
      token.word = symbol();
    }
    token.source = text_.substr(token.at, at_ - token.at);
    return token;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_digits(std::string_view after) {
    if (!is_digit(peek())) refuse(text_, at_, fmt::format("expected a digit after '{}'", after));
    while (is_digit(peek())) ++at_;
  }
  void skip_number() {
    skip_digits("");
    if (peek() == '.') ++at_, skip_digits(".");
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      skip_digits(text_.substr(at_ - 1, 1));
    }
    if (is_name_start(peek())) refuse(text_, at_, "a number ends here, expected an operator before the name");
  }
  std::string quoted(char quote) {
    const std::size_t from = at_++;
    std::string out;
    for (;; ++at_) {
      if (at_ == text_.size()) refuse(text_, from, fmt::format("what begins here has no closing {}", quote));
      if (text_[at_] == quote && (++at_ == text_.size() || text_[at_] != quote)) return out;
      out += text_[at_];
    }
  }
  std::string symbol() {
    static constexpr std::string_view kSymbols[] = {"!=", "<>", "<=", ">=", "+", "-", "*", "/",
                                                    "%",  "=",  "<",  ">",  "(", ")", ","};
    const auto rest = text_.substr(at_);
    if (rest.substr(0, 2) == "==") refuse(text_, at_, "found '==', expected '='");
    for (const auto symbol : kSymbols)
      if (rest.substr(0, symbol.size()) == symbol) {
        at_ += symbol.size();
        return std::string(symbol);
      }
    std::size_t bytes = 1;
    while (bytes < rest.size() && is_continuation(rest[bytes])) ++bytes;
    const auto c = static_cast<unsigned char>(rest[0]);
    if (c < 0x20 || c == 0x7F) refuse(text_, at_, fmt::format("found the control character {}", unsigned{c}));
    refuse(text_, at_, fmt::format("found '{}', which means nothing here", rest.substr(0, bytes)));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// A piece of the text as a message shows it: short, and cut between characters.
std::string shown(std::string_view piece) {
  constexpr std::size_t kShown = 40;
  if (piece.size() <= kShown) return std::string(piece);
  std::size_t size = kShown;
  while (is_continuation(piece[size])) --size;
  return std::string(piece.substr(0, size)) + "...";
}

constexpr std::string_view kReserved[] = {"and",  "or",   "not",  "is",  "null", "in",   "case",
                                          "when", "then", "else", "end", "true", "false"};

// How tightly operators bind, the loosest first. `not` stands before its operand, the others between two.
enum Precedence { kLoosest, kOr, kAnd, kNot, kComparison, kSum, kProduct, kUnary };

Precedence precedence_of(const Token& token) {
  static const std::unordered_map<std::string_view, Precedence> kOf = {
      {"or", kOr},         {"and", kAnd},        {"=", kComparison}, {"!=", kComparison}, {"<>", kComparison},
      {"<", kComparison},  {"<=", kComparison},  {">", kComparison}, {">=", kComparison}, {"is", kComparison},
      {"in", kComparison}, {"not", kComparison}, {"+", kSum},        {"-", kSum},         {"*", kProduct},
      {"/", kProduct},     {"%", kProduct}};
  if (token.kind != Token::symbol && token.kind != Token::name) return kLoosest;
  const auto it = kOf.find(token.word);
  return it == kOf.end() ? kLoosest : it->second;
}

class Parser {
 public:
  Parser(std::string_view text, std::span<const Input> inputs) : text_(text), inputs_(inputs), lexer_(text) {
    if (inputs.size() > kInputsMax)
      throw Error(Code::invalid, fmt::format("expression: {} inputs, more than {}", inputs.size(), kInputsMax));
    for (std::size_t n = 0; n < inputs.size(); ++n)
      if (!by_name_.emplace(inputs[n].name, n).second)
        throw Error(Code::invalid, fmt::format("expression: two inputs have one name: '{}'", shown(inputs[n].name)));
  }

  Tree run() {
    advance();
    expression(kLoosest);
    if (token_.kind != Token::end) expected("an operator or the end");
    return std::move(tree_);
  }

 private:
  // One more level of nesting while it lives.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kNestingMax)
        refuse(parser_.text_, parser_.token_.at, fmt::format("nested more than {} deep", kNestingMax));
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  void advance() { token_ = lexer_.next(); }
  bool at(std::string_view word) const {
    return (token_.kind == Token::symbol || token_.kind == Token::name) && token_.word == word;
  }
  bool accept(std::string_view word) {
    const bool found = at(word);
    if (found) advance();
    return found;
  }
  void require(std::string_view word) {
    if (!accept(word)) expected(fmt::format("'{}'", word));
  }
  [[noreturn]] void expected(std::string_view what) const {
    const auto found = token_.kind == Token::end ? "the end" : fmt::format("'{}'", shown(token_.source));
    refuse(text_, token_.at, fmt::format("found {}, expected {}", found, what));
  }

  std::size_t add(Node node) {
    tree_.nodes.push_back(std::move(node));
    return tree_.nodes.size() - 1;
  }
  std::size_t apply(std::size_t at, const Operation* operation, std::vector<std::size_t> operands) {
    Node node;
    node.at = at;
    node.operation = operation;
    node.operands = std::move(operands);
    return add(std::move(node));
  }
  std::size_t constant(std::size_t at, Value value, std::optional<Type> type) {
    Node node;
    node.at = at;
    node.literal = value;
    node.type = type;
    return add(std::move(node));
  }

  // What binds at least as tightly as `floor`. Recursion within a level of nesting goes from looser to tighter only.
  std::size_t expression(Precedence floor) {
    std::size_t left = operand(floor);
    for (;;) {
      const Precedence mine = precedence_of(token_);
      if (mine == kLoosest || mine < floor) return left;
      const auto place = token_.at;
      if (mine == kComparison) {
        left = comparison(left);
        if (precedence_of(token_) == kComparison)
          refuse(text_, token_.at,
                 fmt::format("found '{}' after a comparison: use parentheses, or 'and'", token_.source));
        continue;
      }
      const auto* operation = find_operator(token_.word);
      advance();
      left = apply(place, operation, {left, expression(static_cast<Precedence>(mine + 1))});
    }
  }

  std::size_t comparison(std::size_t left) {
    const auto place = token_.at;
    if (accept("is")) {
      const bool negated = accept("not");
      require("null");
      const auto out = apply(place, find_operator("is null"), {left});
      return negated ? apply(place, find_operator("not"), {out}) : out;
    }
    if (at("in") || at("not")) {
      const bool negated = accept("not");
      require("in");
      require("(");
      std::vector<std::size_t> operands{left};
      list(operands);
      const auto out = apply(place, find_operator("in"), std::move(operands));
      return negated ? apply(place, find_operator("not"), {out}) : out;
    }
    const auto* operation = find_operator(token_.word);
    advance();
    return apply(place, operation, {left, expression(kSum)});
  }

  std::size_t operand(Precedence floor) {
    const auto place = token_.at;
    if (floor <= kNot && accept("not")) {
      const Level level(*this);
      return apply(place, find_operator("not"), {expression(kNot)});
    }
    if (accept("-")) {
      if (token_.kind == Token::number) return number("-");
      const Level level(*this);
      return apply(place, find_operator("unary -"), {expression(kUnary)});
    }
    if (accept("(")) {
      const Level level(*this);
      const auto out = expression(kLoosest);
      require(")");
      return out;
    }
    if (accept("case")) return choice(place);
    switch (token_.kind) {
      case Token::number:
        return number("");
      case Token::text: {
        const auto& kept = tree_.literals.emplace_back(std::move(token_.word));
        advance();
        return constant(place, Value::text(kept), Type::text);
      }
      case Token::name:
      case Token::quoted_name:
        return word();
      default:
        expected("a value");
    }
  }

  std::size_t number(std::string_view sign) {
    const auto place = token_.at;
    const std::string digits = std::string(sign) + std::string(token_.source);
    const char* const end = digits.data() + digits.size();
    if (digits.find_first_of(".eE") == std::string::npos) {
      const auto v = parse_int(digits);
      if (!v)
        refuse(text_, place, fmt::format("does not fit an int64, write it with '.0' for a float64: {}", shown(digits)));
      advance();
      return constant(place, Value::int64(*v), Type::int64);
    }
    double v = 0;
    if (std::from_chars(digits.data(), end, v).ec != std::errc())
      refuse(text_, place, fmt::format("does not fit a float64: {}", shown(digits)));
    advance();
    return constant(place, Value::float64(v), Type::float64);
  }

  // A name, a call, or one of the words that are values.
  std::size_t word() {
    const Token token = std::move(token_);
    advance();
    const auto is = [&](std::string_view w) { return token.kind == Token::name && token.word == w; };
    if (is("true") || is("false")) return constant(token.at, Value::boolean(is("true")), Type::boolean);
    if (is("null")) return constant(token.at, Value(), std::nullopt);
    if (std::any_of(std::begin(kReserved), std::end(kReserved), is)) {
      refuse(text_, token.at,
             fmt::format("found '{}', expected a value; an input of that name is written \"{}\"", token.source,
                         token.source));
    }
    if (token.kind == Token::name && at("(")) return call(token);
    Node node;
    node.at = token.at;
    node.input = input(token);
    node.type = inputs_[*node.input].type;
    return add(std::move(node));
  }

  std::size_t input(const Token& token) const {
    const auto name = token.kind == Token::name ? token.source : std::string_view(token.word);
    const auto it = by_name_.find(name);
    if (it != by_name_.end()) return it->second;
    std::vector<std::string_view> names;
    for (const auto& input : inputs_) names.push_back(input.name);
    std::string hint;
    if (const auto near = nearest(name, names)) {
      hint = fmt::format("; the nearest is '{}'", shown(*near));
    } else if (token.kind == Token::quoted_name) {
      hint = "; a text is written in single quotes";
    } else if (find_function(token.word) != nullptr) {
      hint = fmt::format("; the function is written {}(...)", token.word);
    } else if (names.empty()) {
      hint = "; there are no inputs";
    } else if (names.size() <= 10) {
      hint = fmt::format("; there are: {}", shown_all(names));
    }
    refuse(text_, token.at, fmt::format("unknown name '{}'{}", shown(name), hint));
  }
  static std::string shown_all(const std::vector<std::string_view>& names) {
    std::string out;
    for (const auto name : names) out += (out.empty() ? "" : ", ") + shown(name);
    return out;
  }

  std::size_t call(const Token& token) {
    const auto* function = find_function(token.word);
    if (function == nullptr) {
      const auto names = function_names();
      const auto near = nearest(token.word, names);
      refuse(text_, token.at,
             near ? fmt::format("unknown function '{}'; the nearest is '{}'", shown(token.source), *near)
                  : fmt::format("unknown function '{}'; there are: {}", shown(token.source), shown_all(names)));
    }
    require("(");
    std::vector<std::size_t> operands;
    list(operands);
    const auto n = operands.size();
    if (n < function->least || n > function->most)
      refuse(text_, token.at,
             fmt::format("{} takes {} {}{}, found {}", function->name, function->least,
                         function->least == 1 ? "operand" : "operands",
                         function->most > function->least ? " or more" : "", n));
    return apply(token.at, function, std::move(operands));
  }

  // One or more, and the closing parenthesis.
  void list(std::vector<std::size_t>& out) {
    const Level level(*this);
    do out.push_back(expression(kLoosest));
    while (accept(","));
    if (!accept(")")) expected("',' or ')'");
  }

  std::size_t choice(std::size_t place) {
    const Level level(*this);
    std::vector<std::size_t> operands;
    if (!at("when")) expected("'when'");
    while (accept("when")) {
      operands.push_back(expression(kLoosest));
      require("then");
      operands.push_back(expression(kLoosest));
    }
    if (accept("else")) {
      operands.push_back(expression(kLoosest));
      require("end");
    } else {
      if (!accept("end")) expected("'when', 'else' or 'end'");
      operands.push_back(constant(place, Value(), std::nullopt));
    }
    return apply(place, find_operator("case"), std::move(operands));
  }

  const std::string_view text_;
  const std::span<const Input> inputs_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  Lexer lexer_;
  Token token_;
  Tree tree_;
  std::size_t depth_ = 0;
};

}  // namespace

void refuse(std::string_view text, std::size_t at, const std::string& what) {
  const auto before = text.substr(0, at);
  const auto newline = before.rfind('\n');
  const auto line = before.substr(newline == std::string_view::npos ? 0 : newline + 1);
  const auto column = 1 + std::count_if(line.begin(), line.end(), [](char c) { return !is_continuation(c); });
  std::string place;
  if (text.find('\n') != std::string_view::npos)
    place = fmt::format("line {}, ", 1 + std::count(before.begin(), before.end(), '\n'));
  throw Error(Code::invalid, fmt::format("expression, {}column {}: {}", place, column, what));
}

Tree parse(std::string_view text, std::span<const Input> inputs) {
  if (text.size() > kTextMax)
    throw Error(Code::invalid, fmt::format("expression: {} bytes long, more than {}", text.size(), kTextMax));
  if (!is_utf8(text)) throw Error(Code::invalid, "expression: not UTF-8");
  return Parser(text, inputs).run();
}

}  // namespace falaj::expr
