// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/track/filter.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "lifecycle/track/filter_grammar.h"

namespace falaj::track {
namespace {

constexpr std::size_t kFoundBytesMax = 40;  // of the input, in an error message

struct EntityName {
  std::string_view spelling;
  Entity entity;
};
constexpr EntityName kEntityNames[] = {
    {"attributes", Entity::attribute},
    {"attribute", Entity::attribute},
    {"attr", Entity::attribute},
    {"run", Entity::attribute},
    {"metrics", Entity::metric},
    {"metric", Entity::metric},
    {"params", Entity::param},
    {"param", Entity::param},
    {"parameters", Entity::param},
    {"parameter", Entity::param},
    {"tags", Entity::tag},
    {"tag", Entity::tag},
    {"datasets", Entity::dataset},
    {"dataset", Entity::dataset},
};

constexpr std::array<std::string_view, 12> kOpNames = {
    "=", "!=", "<", "<=", ">", ">=", "LIKE", "ILIKE", "IN", "NOT IN", "IS NULL", "IS NOT NULL"};

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_word(char c) {  // of a bare key; letters beyond ASCII too
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_sign(char c) { return c == '=' || c == '!' || c == '<' || c == '>'; }

// At most kFoundBytesMax bytes, not ending within a character.
std::string_view beginning(std::string_view text) {
  if (text.size() <= kFoundBytesMax) return text;
  std::size_t bytes = kFoundBytesMax;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// Reads a text from left to right.
class Scanner {
 public:
  Scanner(std::string doing, std::string_view text) : doing_(std::move(doing)), text_(text) { skip_spaces(); }

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  std::size_t place() const { return at_; }

  [[noreturn]] void refuse(std::size_t place, std::string_view expected) const {
    std::string_view found = text_.substr(place);
    const auto end = std::find_if(found.begin(), found.end(), is_space);
    found = found.substr(0, static_cast<std::size_t>(end - found.begin()));
    throw Error(Code::invalid, fmt::format("{} at byte {}: expected {}, found {}", doing_, place, expected,
                                           found.empty() ? "the end" : fmt::format("'{}'", beginning(found))));
  }
  [[noreturn]] void refuse(std::string_view expected) const { refuse(at_, expected); }

  void skip_spaces() {
    while (!at_end() && is_space(text_[at_])) ++at_;
  }
  bool take(char c) {
    if (at_end() || peek() != c) return false;
    ++at_;
    return true;
  }
  template <class Is>
  std::string_view take_while(Is is) {
    const auto first = text_.begin() + static_cast<std::ptrdiff_t>(at_);
    const auto length = static_cast<std::size_t>(std::find_if_not(first, text_.end(), is) - first);
    at_ += length;
    return text_.substr(at_ - length, length);
  }
  // The next word if it is this one, in any case, with the spaces after it.
  bool take_keyword(std::string_view keyword) {
    const std::size_t before = at_;
    if (lower(take_while(is_word)) != keyword) {
      at_ = before;
      return false;
    }
    skip_spaces();
    return true;
  }
  std::string take_quoted() {
    const std::size_t from = at_;
    const char quote = text_[at_++];
    std::string inside;
    for (;;) {
      const auto end = text_.find(quote, at_);
      if (end == std::string_view::npos) refuse(from, fmt::format("a closing {} somewhere after", quote));
      inside += text_.substr(at_, end - at_);
      at_ = end + 1;
      if (!take(quote)) return inside;
      inside += quote;
    }
  }
  double take_number() {
    const std::string_view rest = text_.substr(at_);
    const std::string_view digits = rest.substr(rest.starts_with('-') ? 1 : 0);
    double number = 0;
    // Not "inf", "nan": from_chars would read them.
    if (digits.empty() || !(is_digit(digits[0]) || digits[0] == '.')) refuse("a number");
    const auto [end, fault] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (fault == std::errc::result_out_of_range) refuse("a number of double precision");
    if (fault != std::errc()) refuse("a number");
    const auto length = static_cast<std::size_t>(end - rest.data());
    if (length < rest.size() && (is_word(rest[length]) || rest[length] == '.')) refuse("a number");
    at_ += length;
    return number;
  }

 private:
  const std::string doing_;
  const std::string_view text_;
  std::size_t at_ = 0;
};

struct Ident {
  Entity entity = Entity::attribute;
  std::string key;  // canonical
  Ops ops = kNoOps;
};

enum class For { filter, order };

std::string listed_ops(Ops ops) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kOpNames.size(); ++i)
    if ((ops & bit(static_cast<Op>(i))) != 0) names.emplace_back(kOpNames[i]);
  return join(names, " ");
}

// What may stand at the beginning, for an error message.
std::string listed_idents(const Grammar& grammar, For purpose) {
  std::vector<std::string> names;
  for (const Attribute& attribute : grammar.attributes)
    if (attribute.spelling == attribute.name && (purpose == For::order ? attribute.orders : attribute.ops != kNoOps))
      names.emplace_back(attribute.name);
  for (const Keyed& keyed : grammar.keyed)
    if (purpose == For::filter || keyed.orders)
      names.push_back(
          fmt::format("{}.{}", name(keyed.entity), keyed.entity == Entity::dataset ? "name|digest|context" : "<key>"));
  return fmt::format("one of {}", join(names, ", "));
}

const Attribute* find_attribute(const Grammar& grammar, std::string_view spelling, For purpose) {
  for (const Attribute& attribute : grammar.attributes)
    if (attribute.spelling == spelling && (purpose == For::order ? attribute.orders : attribute.ops != kNoOps))
      return &attribute;
  return nullptr;
}

const Keyed* find_keyed(const Grammar& grammar, Entity entity, For purpose) {
  for (const Keyed& keyed : grammar.keyed)
    if (keyed.entity == entity && (purpose == For::filter || keyed.orders)) return &keyed;
  return nullptr;
}

std::optional<Entity> find_entity(std::string_view spelling) {
  for (const EntityName& known : kEntityNames)
    if (known.spelling == spelling) return known.entity;
  return std::nullopt;
}

std::optional<Ident> resolve(std::optional<Entity> entity, std::string_view key, const Grammar& grammar, For purpose) {
  if (!entity || key.empty()) return std::nullopt;
  if (*entity == Entity::attribute) {
    const Attribute* attribute = find_attribute(grammar, key, purpose);
    if (attribute == nullptr) return std::nullopt;
    return Ident{Entity::attribute, std::string(attribute->name), attribute->ops};
  }
  const Keyed* keyed = find_keyed(grammar, *entity, purpose);
  if (keyed == nullptr) return std::nullopt;
  if (*entity == Entity::dataset &&
      std::find(std::begin(kDatasetKeys), std::end(kDatasetKeys), key) == std::end(kDatasetKeys))
    return std::nullopt;
  return Ident{*entity, std::string(key), keyed->ops};
}

std::string take_key(Scanner& in) {
  if (in.peek() == '`' || in.peek() == '"' || in.peek() == '\'') return in.take_quoted();
  std::string key(in.take_while([](char c) { return is_word(c) || c == '.'; }));
  if (!in.at_end() && std::string_view("-/:@$*+#%&").find(in.peek()) != std::string_view::npos)
    in.refuse("a key with other characters than letters, digits, _ and . in quotes, as metrics.`val-loss`");
  return key;
}

Ident take_ident(Scanner& in, const Grammar& grammar, For purpose) {
  const std::size_t place = in.place();
  const bool plain = is_word(in.peek());
  if (!plain && in.peek() != '`' && in.peek() != '"') in.refuse(listed_idents(grammar, purpose));
  const bool entity_may_be = in.peek() != '"';
  std::string first = plain ? std::string(in.take_while(is_word)) : in.take_quoted();
  std::optional<Ident> ident;
  if (entity_may_be && in.take('.')) {
    const std::string key = take_key(in);
    ident = resolve(find_entity(first), key, grammar, purpose);
  } else {
    ident = resolve(Entity::attribute, first, grammar, purpose);
  }
  if (!ident) in.refuse(place, listed_idents(grammar, purpose));
  in.skip_spaces();
  return *std::move(ident);
}

std::optional<Op> take_any_op(Scanner& in) {
  if (is_sign(in.peek())) {
    const std::string_view sign = in.take_while(is_sign);
    const auto* known = std::find(kOpNames.begin(), kOpNames.end(), sign);
    if (known == kOpNames.end()) return std::nullopt;
    return static_cast<Op>(known - kOpNames.begin());
  }
  if (in.take_keyword("like")) return Op::like;
  if (in.take_keyword("ilike")) return Op::ilike;
  if (in.take_keyword("in")) return Op::in;
  if (in.take_keyword("not")) return in.take_keyword("in") ? std::optional(Op::not_in) : std::nullopt;
  if (!in.take_keyword("is")) return std::nullopt;
  const bool no = in.take_keyword("not");
  if (!in.take_keyword("null")) return std::nullopt;
  return no ? Op::is_not_null : Op::is_null;
}

Op take_op(Scanner& in, const Ident& ident) {
  const std::size_t place = in.place();
  const auto op = take_any_op(in);
  if (!op || (ident.ops & bit(*op)) == 0)
    in.refuse(place,
              fmt::format("after {}.{} one of {}", name(ident.entity), beginning(ident.key), listed_ops(ident.ops)));
  in.skip_spaces();
  return *op;
}

std::string take_text(Scanner& in) {
  if (in.peek() != '\'' && in.peek() != '"') in.refuse("a text in single or double quotes");
  std::string text = in.take_quoted();
  in.skip_spaces();
  return text;
}

// A comma may follow the last, as in Python's ('x',), which is how clients write a list of one.
std::vector<std::string> take_list(Scanner& in) {
  std::vector<std::string> list;
  if (!in.take('(')) in.refuse("a list of texts in parentheses");
  in.skip_spaces();
  do {
    if (list.size() == kFilterListMax) in.refuse(fmt::format("at most {} texts in a list", kFilterListMax));
    list.push_back(take_text(in));
    if (!in.take(',')) break;
    in.skip_spaces();
  } while (in.peek() != ')');
  if (!in.take(')')) in.refuse("a comma or the closing parenthesis of a list");
  in.skip_spaces();
  return list;
}

Comparison take_comparison(Scanner& in, const Grammar& grammar) {
  Ident ident = take_ident(in, grammar, For::filter);
  Comparison comparison{.entity = ident.entity, .key = ident.key, .op = take_op(in, ident), .text = {}, .list = {}};
  if ((bit(comparison.op) & kNullOps) != 0) return comparison;
  if ((bit(comparison.op) & kListOps) != 0) {
    comparison.list = take_list(in);
  } else if (ident.ops == kNumberOps) {
    comparison.number = in.take_number();
    in.skip_spaces();
  } else {
    comparison.text = take_text(in);
  }
  return comparison;
}

void refuse_if_long(std::string_view doing, std::string_view text) {
  if (text.size() > kFilterBytesMax)
    throw Error(Code::invalid, fmt::format("{}: longer than {} bytes: {}", doing, kFilterBytesMax, text.size()));
}

}  // namespace

std::string_view name(Entity entity) {
  switch (entity) {
    case Entity::attribute:
      return "attributes";
    case Entity::metric:
      return "metrics";
    case Entity::param:
      return "params";
    case Entity::tag:
      return "tags";
    case Entity::dataset:
      return "datasets";
  }
  CHECK(false, "an entity without a name");
  return "";
}

std::string_view name(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }

std::vector<Comparison> parse_filter(std::string_view text, const Grammar& grammar) {
  const std::string doing = fmt::format("filter of {}", grammar.things);
  refuse_if_long(doing, text);
  Scanner in(doing, text);
  std::vector<Comparison> comparisons;
  while (!in.at_end()) {
    if (!comparisons.empty() && !in.take_keyword("and")) in.refuse("AND or the end (there is no OR and no grouping)");
    if (comparisons.size() == kFilterComparisonsMax)
      in.refuse(fmt::format("at most {} comparisons", kFilterComparisonsMax));
    comparisons.push_back(take_comparison(in, grammar));
  }
  return comparisons;
}

std::vector<Order> parse_order_by(std::span<const std::string> items, const Grammar& grammar) {
  const std::string doing = fmt::format("order_by of {}", grammar.things);
  if (items.size() > kOrdersMax)
    throw Error(Code::invalid, fmt::format("{}: more than {} items: {}", doing, kOrdersMax, items.size()));
  std::vector<Order> orders;
  for (std::size_t i = 0; i < items.size(); ++i) {
    refuse_if_long(doing, items[i]);
    Scanner in(fmt::format("{}, item {}", doing, i), items[i]);
    Ident ident = take_ident(in, grammar, For::order);
    const bool descending = in.take_keyword("desc");
    if (!descending) in.take_keyword("asc");
    if (!in.at_end()) in.refuse("ASC, DESC or the end");
    const auto named = [&](const Order& other) { return other.entity == ident.entity && other.key == ident.key; };
    if (std::any_of(orders.begin(), orders.end(), named))
      throw Error(Code::invalid,
                  fmt::format("{}: named twice: {}.{}", doing, name(ident.entity), beginning(ident.key)));
    orders.push_back({ident.entity, std::move(ident.key), !descending});
  }
  return orders;
}

Order order_by_field(std::string_view field, bool ascending, const Grammar& grammar) {
  const std::string doing = fmt::format("order_by of {}", grammar.things);
  refuse_if_long(doing, field);
  const auto dot = field.find('.');
  const bool divided = dot != std::string_view::npos;
  auto ident = divided ? resolve(find_entity(field.substr(0, dot)), field.substr(dot + 1), grammar, For::order)
                       : resolve(Entity::attribute, trim(field), grammar, For::order);
  if (!ident)
    throw Error(Code::invalid, fmt::format("{}: expected {}, found '{}'", doing, listed_idents(grammar, For::order),
                                           beginning(field)));
  return {ident->entity, std::move(ident->key), ascending};
}

}  // namespace falaj::track
