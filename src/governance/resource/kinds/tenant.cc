// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "governance/resource/kinds/kinds.h"

namespace falaj::resource {

struct TenantSpec {
  std::vector<ZoneName> zones;
  std::string isolation_min;
};
inline constexpr std::string_view kIsolations[] = {"", "none", "restricted", "contained", "isolated"};

}  // namespace falaj::resource

template <>
struct falaj::Shape<falaj::resource::TenantSpec> {
  using S = resource::TenantSpec;
  static constexpr std::string_view name = "TenantSpec";
  static Fields fields() {
    return {field("zones", &S::zones, "Where its bytes may be; the first is for projects that name none.")
                .required()
                .length(1, 64),
            field("isolationMin", &S::isolation_min,
                  "Its jobs are started only where they are kept apart at least so far; the server's when absent.")
                .one_of(resource::kIsolations)};
  }
};

namespace falaj::resource {
namespace {

// A zone cannot be taken from under a project that is in it.
void check(const iam::Snapshot& known, const World& world, const Metadata& metadata, const TenantSpec& spec,
           Faults& faults) {
  for (const auto& [key, project] : known.all<iam::Project>()) {
    if (project.tenant != metadata.name) continue;
    const auto declared = world.spec({"Project", project.tenant, "", project.name});
    const auto* named = declared ? declared->as_object().if_contains("zone") : nullptr;
    if (!named) continue;
    const auto zone = ZoneName::parse(named->as_string());
    if (std::find(spec.zones.begin(), spec.zones.end(), zone) == spec.zones.end())
      faults.push_back(
          {"spec.zones", fmt::format("must hold '{}' as long as project {} is in it", zone.str(), project.name)});
  }
}

}  // namespace

Kind tenant_kind(iam::Directory& directory) {
  KindOf<TenantSpec> kind{"Tenant",
                          "tenants",
                          "An organisation: its people, projects and bytes are apart from all others.",
                          {.platform = true},
                          {},
                          {},
                          {}};
  kind.check = [&directory](const World& world, const Metadata& metadata, const TenantSpec& spec, Faults& faults) {
    check(*directory.snapshot(), world, metadata, spec, faults);
  };
  kind.refers_to = [](const World&, const Metadata&, const TenantSpec& spec) {
    std::vector<Reference> out;
    for (const auto& zone : spec.zones)
      out.push_back({{"Zone", "", "", zone.str()}, shape::below("spec.zones", out.size())});
    return out;
  };
  kind.changed = [&directory](const ChangeOf<TenantSpec>& c) {
    if (c.after)
      directory.put(c.writer, iam::Tenant{c.metadata.name, c.after->zones, c.after->isolation_min});
    else
      directory.remove<iam::Tenant>(c.writer, c.metadata.name);
  };
  return make_kind(std::move(kind));
}

}  // namespace falaj::resource
