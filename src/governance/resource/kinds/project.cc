// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct ProjectSpec {
  ZoneName zone;
};

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::ProjectSpec> {
  using S = resource::ProjectSpec;
  static constexpr std::string_view name = "ProjectSpec";
  static Fields fields() {
    return {field("zone", &S::zone, "Where its bytes are: one of the tenant's zones.").required()};
  }
};

namespace falaj::resource {
namespace {

void check(const World& world, const Metadata& metadata, const ProjectSpec& spec, Faults& faults) {
  const auto tenant = world.spec({"Tenant", "", "", metadata.tenant});
  if (!tenant) return;  // said by the reference
  std::vector<std::string> zones;
  for (const auto& zone : tenant->at("zones").as_array()) zones.emplace_back(zone.as_string());
  for (const auto& zone : zones)
    if (zone == spec.zone.str()) return;
  faults.push_back({"spec.zone", fmt::format("must be one of tenant {}'s zones ({}), not '{}'", metadata.tenant,
                                             join(zones, ", "), spec.zone.str())});
}

}  // namespace

Kind project_kind(iam::Directory& directory) {
  KindOf<ProjectSpec> kind{
      "Project", "projects", "A piece of work of a tenant: its data, models and jobs.", {.tenant = true}, {}, {}, {}};
  kind.check = check;
  kind.refers_to = [](const World&, const Metadata&, const ProjectSpec& spec) {
    return std::vector<Reference>{{{"Zone", "", "", spec.zone.str()}, "spec.zone"}};
  };
  kind.changed = [&directory](const ChangeOf<ProjectSpec>& c) {
    if (c.before && c.after && c.before->zone != c.after->zone)
      throw Error(Code::invalid,
                  fmt::format("project {}/{}: its zone cannot change from {} to {}, because its bytes are there",
                              c.metadata.tenant, c.metadata.name, c.before->zone.str(), c.after->zone.str()));
    if (c.after)
      directory.put(c.writer, iam::Project{c.metadata.tenant, c.metadata.name, c.after->zone});
    else
      directory.remove<iam::Project>(c.writer, iam::owned_name(c.metadata.tenant, c.metadata.name));
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
