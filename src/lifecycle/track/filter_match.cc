// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "foundation/base/error.h"
#include "lifecycle/track/filter.h"

namespace falaj::track {
namespace {

char folded(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

// Where the character after the one at `at` begins. Stray continuation bytes count as part of the one before.
std::size_t next_character(std::string_view text, std::size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

}  // namespace

// When the rest does not fit, only the last % can help by taking one character more: what the ones before it took was
// the shortest that fits, so giving them more leaves less for the rest. Hence no recursion.
bool like(std::string_view pattern, std::string_view text, bool fold_case) {
  constexpr auto kNone = std::string_view::npos;
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t after_percent = kNone;
  std::size_t taken_to = 0;
  while (t < text.size()) {
    const char wanted = p < pattern.size() ? pattern[p] : '\0';
    if (p < pattern.size() && wanted == '%') {
      after_percent = ++p;
      taken_to = t;
    } else if (p < pattern.size() && wanted == '_') {
      ++p;
      t = next_character(text, t);
    } else if (p < pattern.size() && (fold_case ? folded(wanted) == folded(text[t]) : wanted == text[t])) {
      ++p;
      ++t;
    } else if (after_percent != kNone) {
      p = after_percent;
      t = taken_to = next_character(text, taken_to);
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('%', p) == kNone;
}

bool matches(const Comparison& comparison, std::string_view value) {
  const auto listed = [&] {
    return std::find(comparison.list.begin(), comparison.list.end(), value) != comparison.list.end();
  };
  switch (comparison.op) {
    case Op::eq:
      return value == comparison.text;
    case Op::ne:
      return value != comparison.text;
    case Op::like:
      return like(comparison.text, value, false);
    case Op::ilike:
      return like(comparison.text, value, true);
    case Op::in:
      return listed();
    case Op::not_in:
      return !listed();
    case Op::is_null:
      return false;
    case Op::is_not_null:
      return true;
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
      break;
  }
  CHECK(false, "a text compared as a number");
  return false;
}

bool matches(const Comparison& comparison, double value) {
  switch (comparison.op) {
    case Op::eq:
      return value == comparison.number;
    case Op::ne:
      return value != comparison.number;
    case Op::lt:
      return value < comparison.number;
    case Op::le:
      return value <= comparison.number;
    case Op::gt:
      return value > comparison.number;
    case Op::ge:
      return value >= comparison.number;
    case Op::is_null:
      return false;
    case Op::is_not_null:
      return true;
    case Op::like:
    case Op::ilike:
    case Op::in:
    case Op::not_in:
      break;
  }
  CHECK(false, "a number compared as a text");
  return false;
}

}  // namespace falaj::track
