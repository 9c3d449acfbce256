// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/quarantine.h"

#include <set>

#include <fmt/format.h>

#include "foundation/base/log.h"

namespace falaj::serve {
namespace {

std::string name_in(const CrashNote::Name& name) {
  return name[0] == 0 ? std::string() : std::string(name, CrashNote::kDigest);
}

}  // namespace

void Quarantine::take_out(const std::string& digest, const char* doing, const std::string& how) {
  if (digest.empty()) return;
  out_[digest] = fmt::format("the worker ended ({}) {} this model", how, doing);
  log::warn("model_quarantined", {{"model", digest}, {"how", how}});
}

void Quarantine::strike(const std::string& digest, const char* doing, const std::string& how, sys::Micros now) {
  if (digest.empty()) return;
  auto& at = strikes_[digest];
  std::erase_if(at, [&](sys::Micros one) { return now - one >= kStrikeWindow; });
  at.push_back(now);
  if (at.size() >= kStrikes) take_out(digest, doing, how);
}

void Quarantine::blame(const CrashNote& note, const std::string& how, sys::Micros now) {
  const auto loading = name_in(note.loading);
  if (const auto crashed = name_in(note.crashed); !crashed.empty())
    return take_out(crashed, crashed == loading ? "loading" : "running", how);
  strike(loading, "loading", how, now);
  std::set<std::string> running;
  for (const auto& lane : note.running) running.insert(name_in(lane));
  running.erase(loading);
  for (const auto& digest : running) strike(digest, "running", how, now);
}

void Quarantine::forget_all_but(const traffic::Plan& plan) {
  std::set<std::string> named;
  for (const auto& endpoint : plan.endpoints)
    for (const auto& variant : endpoint.variants)
      if (!endpoint.stopped) named.insert(variant.sha256);
  std::erase_if(out_, [&](const auto& entry) { return !named.contains(entry.first); });
  std::erase_if(strikes_, [&](const auto& entry) { return !named.contains(entry.first); });
}

json::object Quarantine::told() const {
  json::object out;
  for (const auto& [digest, why] : out_) out[digest] = why;
  return out;
}

}  // namespace falaj::serve
