// SPDX-License-Identifier: Apache-2.0
#include "lifecycle/traffic/tallies.h"

namespace falaj::traffic {
namespace {

Grown counted(const Tally& tally) {
  Grown out{tally.requests, tally.failures, {}};
  for (std::size_t i = 0; i + 1 < tally.latency.size(); i += 2) {
    const auto at = tally.latency[i], count = tally.latency[i + 1];
    if (at >= 0 && at < static_cast<std::int64_t>(out.latency.size()) && count > 0)
      out.latency[static_cast<std::size_t>(at)] = static_cast<std::uint64_t>(count);
  }
  return out;
}

bool began_anew(const Grown& before, const Grown& now) {
  if (now.requests < before.requests || now.failures < before.failures) return true;
  for (std::size_t i = 0; i < now.latency.size(); ++i)
    if (now.latency[i] < before.latency[i]) return true;
  return false;
}

}  // namespace

Tallies::Tallies(const std::vector<Tally>& tallies) {
  for (const auto& tally : tallies) {
    before_.insert_or_assign({tally.server, tally.variant, tally.version}, counted(tally));
    servers_.insert(tally.server);
  }
}

void Tallies::add_growth(Grown& to, const Tally& tally) const {
  const auto now = counted(tally);
  const auto found = before_.find({tally.server, tally.variant, tally.version});
  const auto before = found == before_.end() || began_anew(found->second, now) ? Grown() : found->second;
  to.requests += now.requests - before.requests;
  to.failures += now.failures - before.failures;
  for (std::size_t i = 0; i < now.latency.size(); ++i) to.latency[i] += now.latency[i] - before.latency[i];
}

}  // namespace falaj::traffic
