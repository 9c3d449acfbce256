// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "governance/audit/record.h"

namespace falaj::audit {

inline constexpr std::string_view kInclusionFormat = "falaj-audit-inclusion/1";
inline constexpr std::string_view kConsistencyFormat = "falaj-audit-consistency/1";

// What a proof shows. Whether `key` is the key of the server one means is the caller's to say.
struct Proved {
  Record record;
  SignedHead head;
  crypto::PublicKey key;
};

// Checks what AuditLog::prove made, needing nothing else. Throws invalid (it cannot be read) or corrupt (it proves
// nothing).
Proved check_proof(const json::value& proof);

// Checks what AuditLog::prove_consistency made: the log that `second` signs begins with the log that `first` signs.
// Both heads must be genuine already (is_genuine). Throws as check_proof does.
void check_consistency(const json::value& proof, const Head& first, const Head& second);

}  // namespace falaj::audit
