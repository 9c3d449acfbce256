// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct GroupSpec {
  std::vector<std::string> members;
};

namespace {
bool is_member(std::string_view text) { return iam::is_subject(text) && !text.starts_with("group/"); }
}  // namespace

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::GroupSpec> {
  using S = resource::GroupSpec;
  static constexpr std::string_view name = "GroupSpec";
  static Fields fields() {
    return {
        field("members", &S::members, "Who belongs to it: user/ada, service/acme/ci.")
            .length(0, 10'000)
            .text(
                {resource::is_member,
                 "user/NAME, service/NAME or certificate/NAME, with TENANT/ before the name when it belongs to one"})};
  }
};

namespace falaj::resource {

Kind group_kind(iam::Directory& directory) {
  KindOf<GroupSpec> kind{
      "Group", "groups", "Principals that get the same roles.", {.platform = true, .tenant = true}, {}, {}, {}};
  kind.check = [](const World&, const Metadata& metadata, const GroupSpec& spec, Faults& faults) {
    refuse_strangers(metadata, spec.members, "spec.members", faults);
  };
  kind.refers_to = [&directory](const World& world, const Metadata&, const GroupSpec& spec) {
    return references_to(world, *directory.snapshot(), spec.members, "spec.members");
  };
  kind.changed = [&directory](const ChangeOf<GroupSpec>& c) {
    const auto& m = c.metadata;
    if (c.after)
      directory.put(c.writer, iam::Group{m.tenant, m.name, c.after->members});
    else
      directory.remove<iam::Group>(c.writer, iam::owned_name(m.tenant, m.name));
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
