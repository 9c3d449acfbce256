// SPDX-License-Identifier: Apache-2.0
#include "governance/iam/principal.h"

#include <array>

#include <fmt/format.h>

#include "foundation/base/error.h"
#include "foundation/base/text.h"

namespace falaj::iam {
namespace {

constexpr std::array kKinds = {Principal::Kind::user, Principal::Kind::service, Principal::Kind::workload,
                               Principal::Kind::certificate};

// What follows the kind: NAME or TENANT/NAME.
bool split_owner(std::string_view rest, std::string_view& tenant, std::string_view& name) {
  const auto slash = rest.find('/');
  tenant = slash == std::string_view::npos ? std::string_view() : rest.substr(0, slash);
  name = slash == std::string_view::npos ? rest : rest.substr(slash + 1);
  return is_name(name) && (slash == std::string_view::npos || is_name(tenant));
}

}  // namespace

std::string_view name(Principal::Kind kind) {
  switch (kind) {
    case Principal::Kind::user:
      return "user";
    case Principal::Kind::service:
      return "service";
    case Principal::Kind::workload:
      return "workload";
    case Principal::Kind::certificate:
      return "certificate";
  }
  CHECK(false, "every kind of principal has a name");
  return {};
}

std::string Principal::str() const {
  std::string out(iam::name(kind));
  out += '/';
  if (!tenant.empty()) (out += tenant) += '/';
  return out += name;
}

Principal Principal::parse(std::string_view text) {
  const auto slash = text.find('/');
  if (slash != std::string_view::npos) {
    for (const auto kind : kKinds) {
      std::string_view tenant, owned;
      if (iam::name(kind) == text.substr(0, slash) && split_owner(text.substr(slash + 1), tenant, owned))
        return {kind, std::string(owned), std::string(tenant), {}};
    }
  }
  throw Error(Code::invalid,
              fmt::format("principal must be KIND/NAME or KIND/TENANT/NAME, not '{}'", text.substr(0, 100)));
}

bool is_subject(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  const auto kind = text.substr(0, slash);
  std::string_view tenant, owned;
  return (kind == "user" || kind == "service" || kind == "certificate" || kind == "group") &&
         split_owner(text.substr(slash + 1), tenant, owned);
}

}  // namespace falaj::iam
