// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "api/call.h"
#include "foundation/base/text.h"
#include "governance/vault/vault.h"

namespace falaj::api {

// The project that the query's "scope" names. Throws invalid when it names something else.
inline vault::Where project_of(const iam::Scope& scope) {
  if (scope.project().empty() || !scope.kind().empty())
    throw Error(Code::invalid, fmt::format("scope: must be a project, such as /t/acme/p/flights, not {}", scope.str()));
  return {TenantName::parse(scope.tenant()), ProjectName::parse(scope.project())};
}
inline vault::Where project_of(const Call& call) { return project_of(call.scope()); }

// Cursors of lists that are searched anew for each page: how many items came before it.
inline std::size_t offset_of(std::string_view cursor) {
  if (cursor.empty()) return 0;
  const auto offset = parse_int(cursor);
  if (!offset || *offset < 0) throw Error(Code::invalid, "cursor: not one that a page gave");
  return static_cast<std::size_t>(*offset);
}

}  // namespace falaj::api
