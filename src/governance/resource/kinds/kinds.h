// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "governance/iam/directory.h"
#include "governance/resource/kind.h"

namespace falaj::resource {

// One function per file of this directory. A kind keeps a reference to the directory.
Kind zone_kind(iam::Directory& directory);
Kind tenant_kind(iam::Directory& directory);
Kind project_kind(iam::Directory& directory);
Kind user_kind(iam::Directory& directory);
Kind service_account_kind(iam::Directory& directory);
Kind group_kind(iam::Directory& directory);
Kind role_kind(iam::Directory& directory);
Kind role_binding_kind(iam::Directory& directory);
Kind quota_kind(iam::Directory& directory);
Kind transfer_grant_kind(iam::Directory& directory);
Kind retention_policy_kind();

// All of the above, in the order in which they are applied. Modules above add theirs after these.
std::vector<Kind> governance_kinds(iam::Directory& directory);

// The resource a subject such as "user/ada" or "group/acme/ml" is declared by. Requires: is_subject(subject).
Key key_of_subject(std::string_view subject);

// Adds a fault when a resource of a tenant names a subject of another tenant.
void refuse_strangers(const Metadata& metadata, std::span<const std::string> subjects, std::string_view path,
                      Faults& faults);

// What `subjects` need. Those the directory knows without a declaration (the first administrator) need none, nor do
// certificates, which are not declared.
std::vector<Reference> references_to(const World& world, const iam::Snapshot& known,
                                     std::span<const std::string> subjects, std::string_view path);

}  // namespace falaj::resource
