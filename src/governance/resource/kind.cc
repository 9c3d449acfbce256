// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/kind.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace falaj::resource {

std::string Kind::action(std::string_view verb) const { return fmt::format("{}.{}", lower(name), verb); }

Registry::Registry(std::vector<Kind> kinds) : kinds_(std::move(kinds)) {
  for (std::size_t i = 0; i < kinds_.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      CHECK(kinds_[i].name != kinds_[k].name && kinds_[i].plural != kinds_[k].plural, "every kind is registered once");
}

const Kind* Registry::find(std::string_view name) const {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& k) { return k.name == name; });
  return found == kinds_.end() ? nullptr : &*found;
}

const Kind& Registry::get(std::string_view any_name) const {
  const auto wanted = lower(any_name);
  for (const auto& kind : kinds_)
    if (lower(kind.name) == wanted || kind.plural == wanted) return kind;
  throw Error(Code::not_found, fmt::format("no kind '{}'{}", any_name.substr(0, 60), meant(any_name)));
}

std::size_t Registry::rank(std::string_view name) const {
  const auto* kind = find(name);
  CHECK(kind, "only registered kinds have a rank");
  return static_cast<std::size_t>(kind - kinds_.data());
}

std::string Registry::meant(std::string_view name) const {
  // Kinds of files that are work, not a state to be kept.
  if (lower(name) == "training") return "; a Training is run: falaj train -f FILE";
  if (lower(name) == "job") return "; a Job is run: falaj submit -f FILE";
  std::vector<std::string_view> names;
  for (const auto& kind : kinds_) names.push_back(kind.name);
  const auto near = nearest(name, names);
  return near ? fmt::format("; did you mean '{}'?", *near) : fmt::format("; allowed: {}", fmt::join(names, ", "));
}

}  // namespace falaj::resource
