// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct ServiceAccountSpec {
  bool disabled = false;
};

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::ServiceAccountSpec> {
  using S = resource::ServiceAccountSpec;
  static constexpr std::string_view name = "ServiceAccountSpec";
  static Fields fields() {
    return {field("disabled", &S::disabled, "Whether every credential of the account is refused.")};
  }
};

namespace falaj::resource {

Kind service_account_kind(iam::Directory& directory) {
  KindOf<ServiceAccountSpec> kind{"ServiceAccount",
                                  "serviceaccounts",
                                  "An account for a program. Its tokens are not part of the declaration.",
                                  {.platform = true, .tenant = true},
                                  {},
                                  {},
                                  {}};
  kind.changed = [&directory](const ChangeOf<ServiceAccountSpec>& c) {
    const auto& m = c.metadata;
    if (c.after)
      directory.put(c.writer, iam::Service{m.tenant, m.name, c.after->disabled});
    else
      directory.remove<iam::Service>(c.writer, iam::owned_name(m.tenant, m.name));
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
