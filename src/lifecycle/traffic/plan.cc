// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/plan.h"

#include <set>
#include <unordered_map>

#include <fmt/format.h>

namespace falaj::traffic {
namespace {

// FNV-1a, then a finaliser whose every output bit depends on every input bit. Not against people who choose their keys:
// whoever may choose may also name a variant.
std::uint64_t mixed(std::string_view endpoint, std::string_view key) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::string_view text) {
    for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  };
  add(endpoint);
  add(std::string_view("\0", 1));
  add(key);
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccd;
  hash ^= hash >> 33;
  hash *= 0xc4ceb9fe1a85ec53;
  return hash ^ hash >> 33;
}

}  // namespace

double place_of(std::string_view endpoint, std::string_view key) {
  return static_cast<double>(mixed(endpoint, key) >> 11) * 0x1.0p-53;
}

int choose(const std::vector<Variant>& variants, double place) {
  double total = 0;
  int last = -1;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (variants[i].shadow || variants[i].weight <= 0) continue;
    total += variants[i].weight;
    last = static_cast<int>(i);
  }
  double left = place * total;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (variants[i].shadow || variants[i].weight <= 0) continue;
    left -= variants[i].weight;
    if (left < 0) return static_cast<int>(i);
  }
  return last;  // rounding
}

std::string full_name(const Endpoint& endpoint) {
  return fmt::format("{}.{}.{}", endpoint.tenant, endpoint.project, endpoint.name);
}

std::vector<Revoked> revoked_between(const Plan& before, const Plan& after) {
  std::unordered_map<std::string_view, const Caller*> now;
  for (const auto& caller : after.callers) now.emplace(caller.credential, &caller);
  std::vector<std::string> names_before, names_after;
  for (const auto& endpoint : before.endpoints) names_before.push_back(full_name(endpoint));
  for (const auto& endpoint : after.endpoints) names_after.push_back(full_name(endpoint));
  const auto name_at = [](const std::vector<std::string>& names, std::int64_t place) -> const std::string* {
    return place >= 0 && static_cast<std::size_t>(place) < names.size() ? &names[static_cast<std::size_t>(place)]
                                                                        : nullptr;
  };
  std::vector<Revoked> out;
  for (const auto& caller : before.callers) {
    const auto found = now.find(caller.credential);
    if (found == now.end() || found->second->secret_hash != caller.secret_hash ||
        found->second->expires_us < caller.expires_us) {
      out.push_back({caller.credential, ""});
      continue;
    }
    std::set<std::string_view> still;
    for (const auto place : found->second->endpoints)
      if (const auto* name = name_at(names_after, place)) still.insert(*name);
    for (const auto place : caller.endpoints)
      if (const auto* name = name_at(names_before, place); name && !still.contains(*name))
        out.push_back({caller.credential, *name});
  }
  return out;
}

std::string fingerprint(const Plan& plan) {
  const auto text = json::serialize(encode(plan));
  return fmt::format("{:016x}{:016x}", mixed("plan", text), mixed("nalp", text));
}

}  // namespace falaj::traffic
