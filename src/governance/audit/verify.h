// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "governance/audit/record.h"
#include "storage/sql/database.h"

namespace falaj::audit {

struct VerifyOptions {
  std::optional<SignedHead> earlier;  // kept elsewhere: the log must still begin with what it signs
  std::function<void(std::int64_t done, std::int64_t all)> progress;
};

struct Verdict {
  bool intact = false;
  std::int64_t records = 0;            // checked
  std::optional<std::int64_t> record;  // the first that is altered, missing or inserted, where it can be told
  std::string why;                     // "" when intact
  std::optional<SignedHead> head;      // of the log as it is; keep it elsewhere
};

// Reads the whole log in one snapshot and computes everything again from the records' own columns: leaves, tree, heads,
// signatures. Shares with the appender only the definition of the format, none of its bookkeeping.
Verdict verify(sql::Database& database, const crypto::PublicKey& key, const VerifyOptions& options = {});

}  // namespace falaj::audit
