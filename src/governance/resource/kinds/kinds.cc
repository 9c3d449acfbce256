// SPDX-License-Identifier: Apache-2.0
#include "governance/resource/kinds/kinds.h"

#include <fmt/format.h>

namespace falaj::resource {

std::vector<Kind> governance_kinds(iam::Directory& directory) {
  return {zone_kind(directory),           tenant_kind(directory),          project_kind(directory),
          user_kind(directory),           service_account_kind(directory), group_kind(directory),
          role_kind(directory),           role_binding_kind(directory),    quota_kind(directory),
          transfer_grant_kind(directory), retention_policy_kind()};
}

Key key_of_subject(std::string_view subject) {
  const auto parts = split(subject, '/');
  const auto kind = parts[0] == "user"      ? "User"
                    : parts[0] == "service" ? "ServiceAccount"
                    : parts[0] == "group"   ? "Group"
                                            : "";
  return {kind, std::string(parts.size() == 3 ? parts[1] : ""), "", std::string(parts.back())};
}

void refuse_strangers(const Metadata& metadata, std::span<const std::string> subjects, std::string_view path,
                      Faults& faults) {
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const auto key = key_of_subject(subjects[i]);
    if (!metadata.tenant.empty() && !key.tenant.empty() && key.tenant != metadata.tenant)
      faults.push_back({shape::below(path, i), fmt::format("must be of tenant {} or of the platform, not '{}'",
                                                           metadata.tenant, subjects[i])});
  }
}

std::vector<Reference> references_to(const World& world, const iam::Snapshot& known,
                                     std::span<const std::string> subjects, std::string_view path) {
  std::vector<Reference> out;
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const auto key = key_of_subject(subjects[i]);
    if (key.kind.empty()) continue;
    if (key.kind == "User" && !world.spec(key) && known.find<iam::User>(iam::owned_name(key.tenant, key.name)))
      continue;
    out.push_back({key, shape::below(path, i)});
  }
  return out;
}

}  // namespace falaj::resource
