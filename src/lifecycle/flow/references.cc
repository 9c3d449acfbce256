// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/flow/references.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"
#include "foundation/expr/expression.h"

namespace falaj::flow {
namespace {

constexpr std::string_view kOpen = "${{", kClose = "}}";

bool is_path_element(std::string_view text) {
  return !text.empty() && text.size() <= 250 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

Reference parse_reference(std::string_view text) {
  Reference out;
  for (const auto element : split(trim(text), '.')) {
    if (!is_path_element(element))
      throw Error(Code::invalid, fmt::format("'{}' is no reference; write it like ${{{{params.NAME}}}} or "
                                             "${{{{steps.NAME.outputs.version}}}}",
                                             text.substr(0, 80)));
    out.path.emplace_back(element);
  }
  return out;
}

// The expression with each reference as an input of its own, named by its path.
struct Condition {
  std::string text;
  std::vector<Reference> references;
  std::vector<expr::Input> inputs;
};
Condition read_condition(std::string_view text, const TypeOf& type_of) {
  Condition out;
  for (const auto& piece : pieces_of(text)) {
    out.text += piece.words;
    if (!piece.reference) continue;
    const auto name = piece.reference->text();
    out.text += fmt::format("\"{}\"", name);
    if (std::find(out.references.begin(), out.references.end(), *piece.reference) != out.references.end()) continue;
    out.references.push_back(*piece.reference);
    out.inputs.push_back({name, type_of(*piece.reference)});
  }
  return out;
}

expr::Expression compile(const Condition& condition) {
  auto out = expr::Expression::compile(condition.text, condition.inputs);
  if (out.type() != expr::Type::boolean)
    throw Error(Code::invalid, fmt::format("must be true or false, but is {}", expr::name(out.type())));
  return out;
}

expr::Value value_of(const json::value& value, expr::Type type) {
  switch (type) {
    case expr::Type::boolean:
      return value.is_bool() ? expr::Value::boolean(value.get_bool()) : expr::Value();
    case expr::Type::int64:
      return value.is_int64() ? expr::Value::int64(value.get_int64()) : expr::Value();
    case expr::Type::float64:
      return value.is_number() ? expr::Value::float64(value.to_number<double>()) : expr::Value();
    case expr::Type::text:
      return value.is_string() ? expr::Value::text(value.get_string()) : expr::Value();
    case expr::Type::timestamp:
      break;
  }
  return {};
}

}  // namespace

std::string Reference::text() const { return join(path, "."); }

std::vector<Piece> pieces_of(std::string_view text) {
  std::vector<Piece> out;
  std::string words;
  std::size_t many = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with("$${{")) {
      words += kOpen;
      at += kOpen.size() + 1;
      continue;
    }
    if (!text.substr(at).starts_with(kOpen)) {
      words += text[at++];
      continue;
    }
    const auto end = text.find(kClose, at);
    if (end == std::string_view::npos) throw Error(Code::invalid, "a '${{' has no '}}'");
    if (++many > kReferencesMax) throw Error(Code::invalid, fmt::format("more than {} references", kReferencesMax));
    out.push_back({std::move(words), parse_reference(text.substr(at + kOpen.size(), end - at - kOpen.size()))});
    words.clear();
    at = end + kClose.size();
  }
  if (!words.empty()) out.push_back({std::move(words), std::nullopt});
  return out;
}

void each_reference(const json::value& value, const std::string& path, const EachReference& each, Faults& faults) {
  if (const auto* text = value.if_string()) {
    try {
      for (const auto& piece : pieces_of(*text))
        if (piece.reference) each(*piece.reference, path);
    } catch (const Error& e) {
      faults.push_back({path, e.what()});
    }
  } else if (const auto* array = value.if_array()) {
    for (std::size_t i = 0; i < array->size(); ++i) each_reference((*array)[i], shape::below(path, i), each, faults);
  } else if (const auto* object = value.if_object()) {
    for (const auto& member : *object) each_reference(member.value(), shape::below(path, member.key()), each, faults);
  }
}

std::string words_of(const json::value& value) {
  if (const auto* text = value.if_string()) return std::string(*text);
  return json::serialize(value);
}

json::value fill(const json::value& value, const Lookup& lookup) {
  if (const auto* text = value.if_string()) {
    const auto pieces = pieces_of(*text);
    if (pieces.size() == 1 && pieces[0].reference && pieces[0].words.empty()) return lookup(*pieces[0].reference);
    std::string out;
    for (const auto& piece : pieces) {
      out += piece.words;
      if (piece.reference) out += words_of(lookup(*piece.reference));
    }
    return json::value(out);
  }
  if (const auto* array = value.if_array()) {
    json::array out;
    for (const auto& item : *array) out.push_back(fill(item, lookup));
    return out;
  }
  if (const auto* object = value.if_object()) {
    json::object out;
    for (const auto& member : *object) out[member.key()] = fill(member.value(), lookup);
    return out;
  }
  return value;
}

void check_condition(std::string_view text, const TypeOf& type_of) { compile(read_condition(text, type_of)); }

bool holds(std::string_view text, const TypeOf& type_of, const Lookup& lookup) {
  const auto condition = read_condition(text, type_of);
  const auto expression = compile(condition);
  std::vector<json::value> values;  // texts are borrowed from them
  for (const auto& reference : condition.references) values.push_back(lookup(reference));
  std::vector<expr::Value> inputs;
  for (std::size_t i = 0; i < values.size(); ++i) inputs.push_back(value_of(values[i], condition.inputs[i].type));
  const auto answer = expression.evaluate(inputs);
  return !answer.is_null() && answer.as_boolean();
}

}  // namespace falaj::flow
