// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/zone.h"

#include <algorithm>

#include "foundation/base/text.h"

namespace falaj::iam {

const TransferGrant* find_grant(std::span<const TransferGrant> grants, const ZoneName& from, const ZoneName& to,
                                const Scope& resource, std::int64_t now_us) {
  const auto found = std::find_if(grants.begin(), grants.end(), [&](const TransferGrant& g) {
    return g.from == from && g.to == to && now_us < g.expires_us && g.scope.contains(resource) &&
           matches_glob(g.resources, relative(g.scope.str(), resource.str()));
  });
  return found == grants.end() ? nullptr : &*found;
}

}  // namespace falaj::iam
