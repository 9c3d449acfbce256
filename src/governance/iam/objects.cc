// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/objects.h"

#include <algorithm>

#include <fmt/format.h>

namespace falaj::iam {

std::string owned_name(std::string_view tenant, std::string_view name) {
  return tenant.empty() ? std::string(name) : fmt::format("{}/{}", tenant, name);
}

bool is_action_pattern(std::string_view text) {
  return !text.empty() && text.size() <= 100 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '*';
  });
}

void decode_one(Scope& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults) {
  std::string text = out.str();
  const auto before = faults.size();
  shape::decode_one(text, in, bounds, path, faults);
  if (faults.size() > before) return;
  try {
    out = Scope::parse(text);
  } catch (const Error& e) {
    faults.push_back({path, e.what()});
  }
}

void decode_one(Effect& out, const json::value& in, const Bounds& bounds, const std::string& path, Faults& faults) {
  std::string text;
  Bounds named = bounds;
  named.one_of = kEffects;
  const auto before = faults.size();
  shape::decode_one(text, in, named, path, faults);
  if (faults.size() == before) out = text == "allow" ? Effect::allow : Effect::forbid;
}

}  // namespace falaj::iam
