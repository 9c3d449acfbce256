// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct TransferGrantSpec {
  ZoneName from, to;
  std::string tenant, project, resources = "*", reason, expires;
};

namespace {
bool is_time(std::string_view text) { return parse_time(text).has_value(); }
}  // namespace

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::TransferGrantSpec> {
  using S = resource::TransferGrantSpec;
  static constexpr std::string_view name = "TransferGrantSpec";
  static Fields fields() {
    return {field("from", &S::from, "The zone the bytes leave.").required(),
            field("to", &S::to, "The zone they go to.").required(),
            field("tenant", &S::tenant, "Whose bytes.").required().text({is_name, kNameRule}),
            field("project", &S::project, "Only those of this project.").text({is_name, kNameRule}),
            field("resources", &S::resources,
                  "Only those whose path below the tenant or project matches; '*' stands for anything.")
                .length(1, 512),
            field("reason", &S::reason, "Why it is lawful.").required().length(10, 2000),
            field("expires", &S::expires, "Until when.")
                .required()
                .text({resource::is_time, "a time such as 2027-01-31T00:00:00Z"})};
  }
};

namespace falaj::resource {

Kind transfer_grant_kind(iam::Directory& directory) {
  KindOf<TransferGrantSpec> kind{"TransferGrant",
                                 "transfergrants",
                                 "Lets bytes leave one zone for another; without one they stay.",
                                 {.platform = true},
                                 {},
                                 {},
                                 {}};
  kind.check = [](const World&, const Metadata&, const TransferGrantSpec& spec, Faults& faults) {
    if (spec.from == spec.to)
      faults.push_back({"spec.to", fmt::format("must be another zone than '{}'", spec.from.str())});
  };
  kind.refers_to = [](const World&, const Metadata&, const TransferGrantSpec& spec) {
    std::vector<Reference> out = {{{"Zone", "", "", spec.from.str()}, "spec.from"},
                                  {{"Zone", "", "", spec.to.str()}, "spec.to"},
                                  {{"Tenant", "", "", spec.tenant}, "spec.tenant"}};
    if (!spec.project.empty()) out.push_back({{"Project", spec.tenant, "", spec.project}, "spec.project"});
    return out;
  };
  kind.changed = [&directory](const ChangeOf<TransferGrantSpec>& c) {
    if (!c.after) return directory.remove<iam::TransferGrant>(c.writer, c.metadata.name);
    const auto& spec = *c.after;
    const auto scope =
        spec.project.empty() ? iam::Scope::of_tenant(spec.tenant) : iam::Scope::of_project(spec.tenant, spec.project);
    directory.put(c.writer, iam::TransferGrant{c.metadata.name, spec.from, spec.to, scope, spec.resources, spec.reason,
                                               c.act.actor, parse_time(spec.expires).value_or(0)});
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
