// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/plan.h"

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

std::string fingerprint(const Plan& plan) {
  const auto text = json::serialize(encode(plan));
  return fmt::format("{:016x}{:016x}", mixed("plan", text), mixed("nalp", text));
}

}  // namespace falaj::traffic
