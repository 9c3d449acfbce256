// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/base/names.h"
#include "governance/iam/scope.h"

namespace falaj::iam {

// A place whose law holds for the bytes in it.
struct Zone {
  ZoneName name;
  std::string residency;              // country, or country and region: "AE", "EU", "DE-BE"
  std::vector<std::string> backends;  // names of the stores that keep its bytes
  friend bool operator==(const Zone&, const Zone&) = default;
};

// Lets bytes leave a zone for another. Without one they stay.
struct TransferGrant {
  std::string name;
  ZoneName from, to;
  Scope scope;                  // what lies in it may move...
  std::string resources = "*";  // ...when its path relative to the scope matches this
  std::string reason;           // why it is lawful: for the audit
  std::string granted_by;
  std::int64_t expires_us = 0;  // wall clock; 0 = never valid, so a grant always says until when
  friend bool operator==(const TransferGrant&, const TransferGrant&) = default;
};

// The grant under which `resource` may move now; nothing when it may not. Moving within a zone needs none: ask only
// when the zones differ.
const TransferGrant* find_grant(std::span<const TransferGrant> grants, const ZoneName& from, const ZoneName& to,
                                const Scope& resource, std::int64_t now_us);
inline bool may_transfer(std::span<const TransferGrant> grants, const ZoneName& from, const ZoneName& to,
                         const Scope& resource, std::int64_t now_us) {
  return from == to || find_grant(grants, from, to, resource, now_us) != nullptr;
}

}  // namespace falaj::iam
