// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/crypto/key.h"
#include "governance/iam/scope.h"

namespace falaj::iam {

// What one job may do while it holds one lease: read its inputs, write its outputs, and nothing else; it cannot list,
// and no role adds to it. The token says so itself and is verified without a table, so it must be short-lived.
struct WorkloadClaims {
  std::string job;         // a name; unique within the project
  std::int64_t epoch = 0;  // of its lease: the owner of the job refuses an older one
  std::string tenant, project;
  std::int64_t issued_us = 0, expires_us = 0;  // wall clock
  std::vector<Scope> inputs, outputs;          // exact
  friend bool operator==(const WorkloadClaims&, const WorkloadClaims&) = default;
};

inline constexpr std::int64_t kWorkloadLifeMaxUs = std::int64_t{60} * 60 * 1'000'000;
inline constexpr std::size_t kWorkloadTokenCharsMax = 8 * 1024;  // it travels in a header

// falajw_<claims>.<HMAC-SHA256 of them>, both base64url. Throws invalid: too long a life, too many inputs to fit,
// things of another tenant.
std::string sign_workload(const crypto::Key& key, const WorkloadClaims& claims);
// Nothing unless it was signed with `key` and is valid at `now_us`.
std::optional<WorkloadClaims> verify_workload(const crypto::Key& key, std::string_view token, std::int64_t now_us);
// Whether text claims to be one: tells which check to run, never the result.
bool is_workload_token(std::string_view text);

// The verb decides: "blob.read" needs the resource among inputs or outputs, "blob.create", ".write" and ".update" among
// outputs. Every other verb is denied.
bool permits(const WorkloadClaims& claims, std::string_view action, const Scope& resource);

}  // namespace falaj::iam
