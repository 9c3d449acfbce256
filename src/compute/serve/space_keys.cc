// SPDX-License-Identifier: Apache-2.0
#include "compute/serve/space_keys.h"

#include "foundation/base/log.h"

namespace falaj::serve {

void SpaceKeyRing::need(const traffic::Plan& plan) {
  std::set<std::string> needed;
  for (const auto& endpoint : plan.endpoints) {
    if (!endpoint.features) continue;
    for (const auto& view : endpoint.features->views)
      if (!view.space.empty()) needed.insert(view.space);
  }
  Lock lock(mu_);
  std::erase_if(known_, [&](const auto& entry) { return !needed.contains(entry.first); });
  needed_ = std::move(needed);
}

bool SpaceKeyRing::fetch(client::ApiClient& control) {
  std::set<std::string> missing;
  {
    Lock lock(mu_);
    for (const auto& space : needed_)
      if (!known_.contains(space)) missing.insert(space);
  }
  bool came = false;
  for (const auto& space : missing) {
    try {
      auto keys = decode<traffic::SpaceKeys>(
          control.post("/v1/serving/spaces/" + client::path_element(space), json::object{}), "keys of a space");
      Lock lock(mu_);
      if (!needed_.contains(space)) continue;
      known_.insert_or_assign(space, std::move(keys));
      came = true;
    } catch (const Error& e) {
      // Asked for again with the next look at the plan, which may name another space by then.
      log::warn("keys_of_features_not_told", {{"space", space}, {"why", e.what()}});
    }
  }
  return came;
}

json::object SpaceKeyRing::told() const {
  Lock lock(mu_);
  json::object out;
  for (const auto& [space, keys] : known_) out[space] = encode(keys);
  return out;
}

}  // namespace falaj::serve
