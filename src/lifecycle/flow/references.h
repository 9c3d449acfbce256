// SPDX-License-Identifier: Apache-2.0
#pragma once

// ${{ steps.train.outputs.version }} in the texts of a pipeline: a value that is known later. Pure.
//
// A text that is one reference becomes the value itself, with its type; within a longer text it becomes words.
// "$${{" stands for "${{".

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/shape.h"
#include "foundation/expr/value.h"

namespace falaj::flow {

struct Reference {
  std::vector<std::string> path;  // "steps", "train", "outputs", "version"

  std::string text() const;  // "steps.train.outputs.version"
  const std::string& root() const { return path.front(); }
  friend auto operator<=>(const Reference&, const Reference&) = default;
};

inline constexpr std::size_t kReferencesMax = 1'000;  // of one step

// A part of a text: words, or a reference. Throws invalid for "${{" without an end or with something else inside.
struct Piece {
  std::string words;
  std::optional<Reference> reference;
};
std::vector<Piece> pieces_of(std::string_view text);

// Every reference below a value, with the place of the text that has it. Texts that are no good become faults.
using EachReference = std::function<void(const Reference& reference, const std::string& path)>;
void each_reference(const json::value& value, const std::string& path, const EachReference& each, Faults& faults);

// What a reference stands for. May throw, which then is what fill throws.
using Lookup = std::function<json::value(const Reference& reference)>;
json::value fill(const json::value& value, const Lookup& lookup);
std::string words_of(const json::value& value);  // as within a text

// What a condition such as "${{steps.check.outputs.failed}} = 0" says. Its inputs have the types that `type_of` gives;
// a value of another type is null, and null is not true. Throws invalid.
using TypeOf = std::function<expr::Type(const Reference& reference)>;
void check_condition(std::string_view text, const TypeOf& type_of);
bool holds(std::string_view text, const TypeOf& type_of, const Lookup& lookup);

}  // namespace falaj::flow
