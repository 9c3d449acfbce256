// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct UserSpec {
  std::string full_name, email;
  bool disabled = false;
};

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::UserSpec> {
  using S = resource::UserSpec;
  static constexpr std::string_view name = "UserSpec";
  static Fields fields() {
    return {field("fullName", &S::full_name, "For people to read.").length(0, 256),
            field("email", &S::email, "For people to write to.").length(0, 256),
            field("disabled", &S::disabled, "Whether every credential of the user is refused.")};
  }
};

namespace falaj::resource {

Kind user_kind(iam::Directory& directory) {
  KindOf<UserSpec> kind{"User",
                        "users",
                        "A person. Passwords and tokens are not part of the declaration.",
                        {.platform = true, .tenant = true},
                        {},
                        {},
                        {}};
  kind.changed = [&directory](const ChangeOf<UserSpec>& c) {
    const auto& m = c.metadata;
    if (c.after)
      directory.put(c.writer, iam::User{m.tenant, m.name, c.after->full_name, c.after->email, c.after->disabled});
    else
      directory.remove<iam::User>(c.writer, iam::owned_name(m.tenant, m.name));
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
