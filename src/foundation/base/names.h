// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj {

// A name that says what it names, so that a tenant cannot be passed where a zone is meant.
template <class Tag>
struct Name {
  std::string value;

  // The only way in for outside text; throws invalid.
  static Name parse(std::string_view text) {
    if (!is_name(text)) {
      throw Error(Code::invalid, "a " + std::string(Tag::kWhat) + " name is " + std::string(kNameRule) + ": '" +
                                     std::string(text.substr(0, 80)) + "'");
    }
    return {std::string(text)};
  }
  bool empty() const { return value.empty(); }
  const std::string& str() const { return value; }
  friend auto operator<=>(const Name&, const Name&) = default;
};

struct TenantTag {
  static constexpr std::string_view kWhat = "tenant";
};
struct ProjectTag {
  static constexpr std::string_view kWhat = "project";
};
struct ZoneTag {
  static constexpr std::string_view kWhat = "zone";
};
using TenantName = Name<TenantTag>;
using ProjectName = Name<ProjectTag>;
using ZoneName = Name<ZoneTag>;

}  // namespace falaj

template <class Tag>
struct std::hash<falaj::Name<Tag>> {
  std::size_t operator()(const falaj::Name<Tag>& name) const noexcept { return std::hash<std::string>()(name.value); }
};
