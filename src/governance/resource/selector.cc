// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/selector.h"

#include <algorithm>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::resource {

Selector Selector::parse(std::string_view text) {
  constexpr std::size_t kTermsMax = 32;
  Selector out;
  if (trim(text).empty()) return out;
  for (const auto part : split(text, ',')) {
    const auto term = trim(part);
    Term t{Test::present, std::string(term), ""};
    if (const auto at = term.find("!="); at != std::string_view::npos) {
      t = {Test::differs, std::string(trim(term.substr(0, at))), std::string(trim(term.substr(at + 2)))};
    } else if (const auto equals = term.find('='); equals != std::string_view::npos) {
      t = {Test::equals, std::string(trim(term.substr(0, equals))), std::string(trim(term.substr(equals + 1)))};
    } else if (term.starts_with('!')) {
      t = {Test::absent, std::string(trim(term.substr(1))), ""};
    }
    if (!is_name(t.key) || out.terms_.size() >= kTermsMax)
      throw Error(
          Code::invalid,
          fmt::format(
              "label selector must be up to {} of key=value, key!=value, key or !key with ',' between, not '{}'",
              kTermsMax, text.substr(0, 100)));
    out.terms_.push_back(std::move(t));
  }
  return out;
}

bool Selector::accepts(const std::map<std::string, std::string>& labels) const {
  return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    const auto found = labels.find(term.key);
    const bool there = found != labels.end();
    switch (term.test) {
      case Test::equals:
        return there && found->second == term.value;
      case Test::differs:
        return !there || found->second != term.value;
      case Test::present:
        return there;
      case Test::absent:
        return !there;
    }
    return false;
  });
}

}  // namespace falaj::resource
