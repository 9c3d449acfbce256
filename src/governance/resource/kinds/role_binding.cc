// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct RoleBindingSpec {
  std::string role;
  std::vector<std::string> subjects;
};

namespace {
bool is_role_name(std::string_view text) {
  const auto parts = split(text, '/');
  return parts.size() <= 2 && is_name(parts[0]) && is_name(parts.back());
}
}  // namespace

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::RoleBindingSpec> {
  using S = resource::RoleBindingSpec;
  static constexpr std::string_view name = "RoleBindingSpec";
  static Fields fields() {
    return {
        field("role", &S::role, "viewer, developer, operator, auditor, admin, a role of the platform, or TENANT/ROLE.")
            .required()
            .text({resource::is_role_name, "the NAME of a role of the platform, or TENANT/NAME"}),
        field("subjects", &S::subjects, "Who gets it: user/ada, service/acme/ci, group/acme/ml.")
            .required()
            .length(1, 1000)
            .text({iam::is_subject, iam::kSubjectRule})};
  }
};

namespace falaj::resource {
namespace {

Key role_key(std::string_view role) {
  const auto parts = split(role, '/');
  return {"Role", std::string(parts.size() == 2 ? parts[0] : ""), "", std::string(parts.back())};
}

// Where the role holds: the platform, tenant or project the binding belongs to.
iam::Scope scope_of(const Metadata& m) {
  if (m.tenant.empty()) return {};
  return m.project.empty() ? iam::Scope::of_tenant(m.tenant) : iam::Scope::of_project(m.tenant, m.project);
}

void check_role_binding(const World&, const Metadata& metadata, const RoleBindingSpec& spec, Faults& faults) {
  const auto key = role_key(spec.role);
  if (!key.tenant.empty() && key.tenant != metadata.tenant)
    faults.push_back({"spec.role", fmt::format("a role of tenant {} can only be bound in that tenant", key.tenant)});
  refuse_strangers(metadata, spec.subjects, "spec.subjects", faults);
}

}  // namespace

Kind role_binding_kind(iam::Directory& directory) {
  KindOf<RoleBindingSpec> kind{
      "RoleBinding",
      "rolebindings",
      "Gives a role to subjects, for the platform, tenant or project it belongs to and everything in that.",
      {.platform = true, .tenant = true, .project = true},
      {},
      {},
      {}};
  kind.check = check_role_binding;
  kind.refers_to = [&directory](const World& world, const Metadata&, const RoleBindingSpec& spec) {
    auto out = references_to(world, *directory.snapshot(), spec.subjects, "spec.subjects");
    if (!iam::is_built_in_role(spec.role)) out.push_back({role_key(spec.role), "spec.role"});
    return out;
  };
  kind.changed = [&directory](const ChangeOf<RoleBindingSpec>& c) {
    const auto& spec = c.after ? *c.after : *c.before;
    const iam::Binding binding{c.metadata.name, spec.role, spec.subjects, scope_of(c.metadata)};
    if (c.after)
      directory.put(c.writer, binding);
    else
      directory.remove<iam::Binding>(c.writer, key_of(binding));
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
