// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct RoleSpec {
  std::vector<iam::Rule> rules;
};

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::RoleSpec> {
  using S = resource::RoleSpec;
  static constexpr std::string_view name = "RoleSpec";
  static Fields fields() {
    return {field("rules", &S::rules, "What it allows and forbids.").required().length(1, 100)};
  }
};

namespace falaj::resource {

Kind role_kind(iam::Directory& directory) {
  KindOf<RoleSpec> kind{"Role",
                        "roles",
                        "What may be done; a RoleBinding says by whom and where.",
                        {.platform = true, .tenant = true},
                        {},
                        {},
                        {}};
  kind.check = [](const World&, const Metadata& metadata, const RoleSpec&, Faults& faults) {
    if (iam::is_built_in_role(metadata.name))
      faults.push_back({"metadata.name", fmt::format("'{}' is a built-in role", metadata.name)});
  };
  kind.changed = [&directory](const ChangeOf<RoleSpec>& c) {
    const auto name = iam::owned_name(c.metadata.tenant, c.metadata.name);
    if (c.after)
      directory.put(c.writer, iam::Role{name, c.after->rules});
    else
      directory.remove<iam::Role>(c.writer, name);
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
